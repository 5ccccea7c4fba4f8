// SPDX-License-Identifier: MIT OR Apache-2.0
//! How much PREP_BO and FINI_BO were asked to do.
//!
//! The NPU does not see the CPU's caches. PREP_BO invalidates and FINI_BO
//! cleans them line by line over a whole buffer object
//! (`dma_sync_sgtable_for_cpu` and `_for_device` in the kernel's
//! `rocket_gem.c`), however little of it is used.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Calls, and the lengths of their buffer objects, since a file was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheTraffic {
    /// PREP_BO calls.
    pub preps: u64,
    /// Bytes of the objects of those PREP_BO calls, each call counted.
    pub prep_bytes: u64,
    /// FINI_BO calls.
    pub finis: u64,
    /// Bytes of the objects of those FINI_BO calls, each call counted.
    pub fini_bytes: u64,
}

impl CacheTraffic {
    /// Bytes of both kinds of calls.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.prep_bytes.saturating_add(self.fini_bytes)
    }
}

/// The same, counted by many threads, each beside a call of the driver.
#[derive(Debug, Default)]
pub(crate) struct CacheCounters(Mutex<CacheTraffic>);

impl CacheCounters {
    fn lock(&self) -> MutexGuard<'_, CacheTraffic> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn count_prep(&self, len: usize) {
        let mut traffic = self.lock();
        traffic.preps += 1;
        traffic.prep_bytes += len as u64;
    }

    pub(crate) fn count_fini(&self, len: usize) {
        let mut traffic = self.lock();
        traffic.finis += 1;
        traffic.fini_bytes += len as u64;
    }

    pub(crate) fn snapshot(&self) -> CacheTraffic {
        *self.lock()
    }
}
