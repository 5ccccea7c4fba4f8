// SPDX-License-Identifier: MIT OR Apache-2.0
//! How the blocks reach memory: 16-byte aligned IOVAs, offset by
//! PC.TASK_DMA_BASE_ADDR, and never beyond what the [`Bus`] grants.

use super::trap::Stop;
use super::{Bus, Direction, Fault, Master};

/// First address that 32 bits cannot hold.
const ADDRESS_END: i64 = 1 << 32;

/// The memory port of one core, for the length of a task.
#[derive(Clone, Copy)]
pub(crate) struct Dma<'a> {
    bus: &'a dyn Bus,
    /// Added to every address (PC.TASK_DMA_BASE_ADDR).
    offset: u32,
    literal: bool,
}

impl<'a> Dma<'a> {
    pub(crate) fn new(bus: &'a dyn Bus, offset: u32) -> Self {
        Self {
            bus,
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

    /// Reads `out.len()` bytes from `address` on.
    pub(crate) fn read(&self, master: Master, address: i64, out: &mut [u8]) -> Result<(), Stop> {
        if out.is_empty() {
            return Ok(());
        }
        let iova = self.place(master, Direction::Read, address, out.len())?;
        self.bus.read(master, iova, out).map_err(Stop::Fault)
    }

    /// Whether `len` bytes from `address` on can be read.
    pub(crate) fn check_read(&self, master: Master, address: i64, len: usize) -> Result<(), Stop> {
        if len == 0 {
            return Ok(());
        }
        let iova = self.place(master, Direction::Read, address, len)?;
        self.bus.check_read(master, iova, len).map_err(Stop::Fault)
    }

    /// Writes `data` from `address` on.
    pub(crate) fn write(&self, master: Master, address: i64, data: &[u8]) -> Result<(), Stop> {
        if data.is_empty() {
            return Ok(());
        }
        let iova = self.place(master, Direction::Write, address, data.len())?;
        self.bus.write(master, iova, data).map_err(Stop::Fault)
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
    use super::*;

    /// Memory from IOVA 0 on, as long as the vector.
    pub(crate) struct Flat(pub(crate) std::sync::Mutex<Vec<u8>>);

    impl Flat {
        pub(crate) fn new(bytes: Vec<u8>) -> Self {
            Self(std::sync::Mutex::new(bytes))
        }
    }

    impl Bus for Flat {
        fn read(&self, master: Master, iova: u32, out: &mut [u8]) -> Result<(), Fault> {
            let memory = self.0.lock().unwrap();
            let start = iova as usize;
            let source = memory.get(start..start + out.len()).ok_or(Fault {
                address: iova.into(),
                direction: Direction::Read,
                master,
            })?;
            out.copy_from_slice(source);
            Ok(())
        }

        fn write(&self, master: Master, iova: u32, data: &[u8]) -> Result<(), Fault> {
            let mut memory = self.0.lock().unwrap();
            let start = iova as usize;
            let target = memory.get_mut(start..start + data.len()).ok_or(Fault {
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
        let bus = Flat::new(vec![0; 64]);
        let dma = Dma::new(&bus, 0);
        let mut out = [0; 16];
        assert!(dma.read(Master::Feature, 0, &mut out).is_ok());
        for address in [-16, ADDRESS_END, ADDRESS_END - 8, i64::MAX] {
            assert!(matches!(
                dma.read(Master::Feature, address, &mut out),
                Err(Stop::Fault(_))
            ));
        }
        assert!(matches!(
            dma.write(Master::DpuWrite, 60, &out),
            Err(Stop::Fault(_))
        ));
        assert!(
            Dma::new(&bus, 48)
                .read(Master::Feature, 0, &mut out)
                .is_ok()
        );
        assert!(
            Dma::new(&bus, 64)
                .read(Master::Feature, 0, &mut out)
                .is_err()
        );
    }

    #[test]
    fn absurd_sizes_end_the_task() {
        assert!(matches!(
            buffer::<u32>(usize::MAX / 4),
            Err(Stop::HostMemory)
        ));
    }
}
