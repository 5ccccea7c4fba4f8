// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counters of the cache maintenance by PREP_BO and FINI_BO.
//!
//! The NPU does not see the CPU's caches. PREP_BO invalidates and FINI_BO cleans them line
//! by line over the whole buffer object, however little of it is used
//! (`dma_sync_sgtable_for_cpu` and `_for_device` in the kernel's `rocket_gem.c`).

use std::sync::{Mutex, MutexGuard, PoisonError};

/// PREP_BO and FINI_BO calls of a file since it was opened, with the bytes of their
/// objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheTraffic {
    /// PREP_BO calls.
    pub preps: u64,
    /// Sum of the object lengths over all PREP_BO calls, bytes.
    pub prep_bytes: u64,
    /// FINI_BO calls.
    pub finis: u64,
    /// Sum of the object lengths over all FINI_BO calls, bytes.
    pub fini_bytes: u64,
}

impl CacheTraffic {
    /// Bytes of PREP_BO and FINI_BO calls together.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.prep_bytes.saturating_add(self.fini_bytes)
    }
}

/// A [`CacheTraffic`] that many threads update, each beside its call of the driver.
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
