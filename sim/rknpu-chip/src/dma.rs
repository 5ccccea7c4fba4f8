// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory access of the blocks: 16-byte aligned IOVAs, offset by
//! PC.TASK_DMA_BASE_ADDR, and never beyond what the [`Bus`] grants.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};

use rknpu_regcmd::Iova;

use super::trap::Stop;
use super::{Bus, Direction, Fault, Master};

/// First address that 32 bits cannot hold.
const ADDRESS_END: i64 = Iova::END as i64;

/// The memory port of one core, for the duration of a task.
pub(crate) struct Dma<'a> {
    /// The bus, which all masters of the core share.
    bus: RefCell<&'a mut dyn Bus>,
    /// Set by a reset of the core, which ends its accesses.
    aborted: &'a AtomicBool,
    /// Added to every address (PC.TASK_DMA_BASE_ADDR).
    offset: u32,
}

impl<'a> Dma<'a> {
    pub(crate) fn new(bus: &'a mut dyn Bus, aborted: &'a AtomicBool, offset: u32) -> Self {
        Self {
            bus: RefCell::new(bus),
            aborted,
            offset,
        }
    }

    /// Reads `out.len()` bytes from `address` on.
    pub(crate) fn read(
        &self,
        master: impl Into<Master>,
        address: i64,
        out: &mut [u8],
    ) -> Result<(), Stop> {
        let (master, len) = (master.into(), out.len());
        self.access(master, Direction::Read, address, len, |bus, iova| {
            bus.read(master, iova, out)
        })
    }

    /// Checks that `len` bytes from `address` on can be read.
    pub(crate) fn check_read(
        &self,
        master: impl Into<Master>,
        address: i64,
        len: usize,
    ) -> Result<(), Stop> {
        let master = master.into();
        self.access(master, Direction::Read, address, len, |bus, iova| {
            bus.check_read(master, iova, len)
        })
    }

    /// Writes `data` from `address` on.
    pub(crate) fn write(
        &self,
        master: impl Into<Master>,
        address: i64,
        data: &[u8],
    ) -> Result<(), Stop> {
        let (master, len) = (master.into(), data.len());
        self.access(master, Direction::Write, address, len, |bus, iova| {
            bus.write(master, iova, data)
        })
    }

    /// Makes an access at its IOVA, unless the core was reset. Addresses are 32
    /// bits wide; a range beyond them faults at the first byte outside.
    /// (Silicon's behaviour is not known.)
    fn access(
        &self,
        master: Master,
        direction: Direction,
        address: i64,
        len: usize,
        access: impl FnOnce(&mut dyn Bus, u32) -> Result<(), Fault>,
    ) -> Result<(), Stop> {
        if len == 0 {
            return Ok(());
        }
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
        if self.aborted.load(Ordering::Relaxed) {
            // Nothing uses the result after a reset.
            return Err(Stop::Hang);
        }
        access(&mut **self.bus.borrow_mut(), iova).map_err(Stop::Fault)
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

/// The first `len` bytes of `data`, which is replaced if it has fewer. Their
/// contents are unspecified.
pub(crate) fn resized(data: &mut Vec<u8>, len: usize) -> Result<&mut [u8], Stop> {
    if data.len() < len {
        // Free the old memory before the new is allocated.
        *data = Vec::new();
        *data = buffer(len)?;
    }
    Ok(&mut data[..len])
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use rknpu_regcmd::DmaEngine;

    /// A port to `bus` that no reset closes.
    pub(crate) fn port(bus: &mut dyn Bus, offset: u32) -> Dma<'_> {
        static NEVER: AtomicBool = AtomicBool::new(false);
        Dma::new(bus, &NEVER, offset)
    }

    #[test]
    fn nothing_outside_32_bits_reaches_the_bus() {
        let mut memory = vec![0; 64];
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
            let read = port(&mut memory, offset).read(DmaEngine::Feature, address, &mut out);
            assert_eq!(read.is_ok(), right, "{offset}: {address:#x}");
            assert!(right || matches!(read, Err(Stop::Fault(_))));
        }
        let written = port(&mut memory, 0).write(DmaEngine::DpuWrite, 60, &out);
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
