// SPDX-License-Identifier: MIT OR Apache-2.0
//! The CPU's caches over the memory of a buffer object, in the worst case.
//!
//! On the board the NPU does not see the CPU's caches. PREP_BO invalidates the
//! object's lines (`dma_sync_sgtable_for_cpu`), FINI_BO writes them back
//! (`dma_sync_sgtable_for_device`). Between these calls lines may be evicted at
//! any time. Here none is: the CPU sees nothing new from the NPU before the
//! next PREP_BO, and the NPU sees nothing new from the CPU before the next
//! FINI_BO. So a client that forgets one of the calls fails each time instead
//! of rarely.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use rustix::io::Errno;

use crate::base::lock::lock;
use crate::base::memory::{Backing, PAGE_BYTES, Pages};

/// Whether CPU and NPU see the same bytes of buffer objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Caches {
    /// Both always see the same bytes, so a forgotten call has no effect.
    #[default]
    Coherent,
    /// Bytes pass only at PREP_BO and FINI_BO, the worst case of a board. This
    /// takes three times the memory of the objects, all of it at CREATE_BO, and
    /// two passes over an object for each call.
    Manual,
}

/// Bytes of a cache line (Cortex-A55 and A76).
const LINE_BYTES: usize = 64;

/// The memory behind the caches of one object. The object's pages are the CPU's
/// view.
#[derive(Debug)]
pub(crate) struct Cache {
    /// The bytes that the NPU sees.
    device: Arc<Pages>,
    /// The CPU's view at the last call. The CPU has written the bytes that
    /// differ now.
    synced: Mutex<Pages>,
    /// Whether a job that writes the object has ended since the last PREP_BO.
    written_by_npu: AtomicBool,
}

impl Cache {
    /// A cache in front of `len` zero bytes.
    pub(crate) fn new(len: usize) -> Result<Self, Errno> {
        Ok(Self {
            device: Arc::new(Pages::new(len, Backing::Heap)?),
            synced: Mutex::new(Pages::new(len, Backing::Heap)?),
            written_by_npu: AtomicBool::new(false),
        })
    }

    pub(crate) fn device(&self) -> &Arc<Pages> {
        &self.device
    }

    /// Records that a job that writes the object has ended.
    pub(crate) fn note_write(&self) {
        self.written_by_npu.store(true, Ordering::Release);
    }

    /// PREP_BO. Returns whether it discarded bytes that the CPU had written.
    pub(crate) fn invalidate(&self, cpu: &Pages) -> bool {
        let synced = lock(&self.synced);
        self.written_by_npu.store(false, Ordering::Release);
        let mut lost = false;
        let [mut seen, mut old, mut new] = [[0; PAGE_BYTES]; 3];
        for at in (0..cpu.len()).step_by(PAGE_BYTES) {
            cpu.load(at, &mut seen);
            synced.load(at, &mut old);
            self.device.load(at, &mut new);
            lost |= seen != old;
            if seen != new {
                cpu.store(at, &new);
            }
            if old != new {
                synced.store(at, &new);
            }
        }
        lost
    }

    /// FINI_BO: writes back the lines that the CPU has written. Returns whether
    /// there were any although the CPU has not seen what the NPU wrote.
    pub(crate) fn write_back(&self, cpu: &Pages) -> bool {
        let synced = lock(&self.synced);
        let mut dirty = false;
        let [mut seen, mut old] = [[0; PAGE_BYTES]; 2];
        for at in (0..cpu.len()).step_by(PAGE_BYTES) {
            cpu.load(at, &mut seen);
            synced.load(at, &mut old);
            if seen == old {
                continue;
            }
            dirty = true;
            let lines = seen.chunks(LINE_BYTES).zip(old.chunks(LINE_BYTES));
            for (index, (line, _)) in lines.enumerate().filter(|(_, (line, old))| line != old) {
                self.device.store(at + index * LINE_BYTES, line);
            }
            synced.store(at, &seen);
        }
        dirty && self.written_by_npu.load(Ordering::Acquire)
    }

    /// Whether the CPU has written bytes that the NPU cannot see.
    pub(crate) fn is_dirty(&self, cpu: &Pages) -> bool {
        let synced = lock(&self.synced);
        let [mut seen, mut old] = [[0; PAGE_BYTES]; 2];
        (0..cpu.len()).step_by(PAGE_BYTES).any(|at| {
            cpu.load(at, &mut seen);
            synced.load(at, &mut old);
            seen != old
        })
    }
}
