// SPDX-License-Identifier: MIT OR Apache-2.0
//! How the blocks reach memory: 16-byte aligned IOVAs, offset by
//! PC.TASK_DMA_BASE_ADDR, and never beyond what the [`Bus`] grants.

use super::trap::Stop;
use super::vectors::Vectors;
use super::{Bus, Direction, Fault, Master};

/// First address that 32 bits cannot hold.
const ADDRESS_END: i64 = 1 << 32;

/// What stands between the masters of a core and its bus, which they share.
pub(crate) trait MemoryPort {
    /// Makes an access.
    ///
    /// # Errors
    /// The access's own, or what ends the kick before it.
    fn access(&self, access: &mut dyn FnMut(&mut dyn Bus) -> Result<(), Fault>)
    -> Result<(), Stop>;
}

/// The memory port of one core, for the length of a task.
#[derive(Clone, Copy)]
pub(crate) struct Dma<'a> {
    port: &'a dyn MemoryPort,
    /// Added to every address (PC.TASK_DMA_BASE_ADDR).
    offset: u32,
    literal: bool,
}

impl<'a> Dma<'a> {
    pub(crate) fn new(port: &'a dyn MemoryPort, offset: u32) -> Self {
        Self {
            port,
            offset,
            literal: false,
        }
    }

    /// The same port, for [`super::ChipOptions::literal`].
    pub(crate) fn literally(self, literal: bool) -> Self {
        Self { literal, ..self }
    }

    /// Whether to compute by the defining formulas.
    pub(crate) fn literal(&self) -> bool {
        self.literal
    }

    /// What loops are computed with.
    pub(crate) fn vectors(&self) -> Vectors {
        if self.literal {
            Vectors::Literal
        } else {
            Vectors::detect()
        }
    }

    /// Reads `out.len()` bytes from `address` on.
    pub(crate) fn read(&self, master: Master, address: i64, out: &mut [u8]) -> Result<(), Stop> {
        if out.is_empty() {
            return Ok(());
        }
        let iova = self.place(master, Direction::Read, address, out.len())?;
        self.port.access(&mut |bus| bus.read(master, iova, out))
    }

    /// Whether `len` bytes from `address` on can be read.
    pub(crate) fn check_read(&self, master: Master, address: i64, len: usize) -> Result<(), Stop> {
        if len == 0 {
            return Ok(());
        }
        let iova = self.place(master, Direction::Read, address, len)?;
        self.port
            .access(&mut |bus| bus.check_read(master, iova, len))
    }

    /// Writes `data` from `address` on.
    pub(crate) fn write(&self, master: Master, address: i64, data: &[u8]) -> Result<(), Stop> {
        if data.is_empty() {
            return Ok(());
        }
        let iova = self.place(master, Direction::Write, address, data.len())?;
        self.port.access(&mut |bus| bus.write(master, iova, data))
    }

    /// Addresses are 32 bits wide; a range that leaves them is a fault at the
    /// first byte outside. (What silicon does there is not known.)
    fn place(
        &self,
        master: Master,
        direction: Direction,
        address: i64,
        len: usize,
    ) -> Result<u32, Stop> {
        let fault = |address: i64| {
            Stop::Fault(Fault {
                address: address as u64,
                direction,
                master,
            })
        };
        let start = address.saturating_add(self.offset.into());
        let iova = u32::try_from(start).map_err(|_| fault(start))?;
        if start + len as i64 > ADDRESS_END {
            return Err(fault(ADDRESS_END));
        }
        Ok(iova)
    }
}

/// A zeroed buffer for data of a task, whose size a program chooses.
///
/// A program may ask for more than the host has; that ends the task, not the
/// process.
pub(crate) fn buffer<T: Copy + Default>(len: usize) -> Result<Vec<T>, Stop> {
    let mut data = Vec::new();
    data.try_reserve_exact(len).map_err(|_| Stop::HostMemory)?;
    data.resize(len, T::default());
    Ok(data)
}

/// The first `len` bytes of `data`, which is replaced if it has fewer. What
/// they are is left open.
pub(crate) fn resized(data: &mut Vec<u8>, len: usize) -> Result<&mut [u8], Stop> {
    if data.len() < len {
        // The old memory goes before the new is asked for.
        *data = Vec::new();
        *data = buffer(len)?;
    }
    Ok(&mut data[..len])
}

#[cfg(test)]
pub(crate) mod tests {
    use std::cell::RefCell;

    use super::*;

    impl<B: Bus> MemoryPort for RefCell<B> {
        fn access(
            &self,
            access: &mut dyn FnMut(&mut dyn Bus) -> Result<(), Fault>,
        ) -> Result<(), Stop> {
            access(&mut *self.borrow_mut()).map_err(Stop::Fault)
        }
    }

    /// Memory from IOVA 0 on, as long as the vector.
    pub(crate) struct Flat(pub(crate) Vec<u8>);

    impl Bus for Flat {
        fn read(&mut self, master: Master, iova: u32, out: &mut [u8]) -> Result<(), Fault> {
            let start = iova as usize;
            let source = self.0.get(start..start + out.len()).ok_or(Fault {
                address: iova.into(),
                direction: Direction::Read,
                master,
            })?;
            out.copy_from_slice(source);
            Ok(())
        }

        fn write(&mut self, master: Master, iova: u32, data: &[u8]) -> Result<(), Fault> {
            let start = iova as usize;
            let target = self.0.get_mut(start..start + data.len()).ok_or(Fault {
                address: iova.into(),
                direction: Direction::Write,
                master,
            })?;
            target.copy_from_slice(data);
            Ok(())
        }
    }

    #[test]
    fn nothing_outside_32_bits_reaches_the_bus() {
        let bus = RefCell::new(Flat(vec![0; 64]));
        let mut out = [0; 16];
        for (offset, address, right) in [
            (0, 0, true),
            (0, -16, false),
            (0, ADDRESS_END, false),
            (0, ADDRESS_END - 8, false),
            (0, i64::MAX, false),
            (48, 0, true),
            (64, 0, false),
        ] {
            let read = Dma::new(&bus, offset).read(Master::Feature, address, &mut out);
            assert_eq!(read.is_ok(), right, "{offset}: {address:#x}");
            assert!(right || matches!(read, Err(Stop::Fault(_))));
        }
        let written = Dma::new(&bus, 0).write(Master::DpuWrite, 60, &out);
        assert!(matches!(written, Err(Stop::Fault(_))));
    }

    #[test]
    fn absurd_sizes_end_the_task() {
        assert!(matches!(
            buffer::<u32>(usize::MAX / 4),
            Err(Stop::HostMemory)
        ));
    }
}
