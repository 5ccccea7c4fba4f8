// SPDX-License-Identifier: MIT OR Apache-2.0
//! How much PREP_BO and FINI_BO were asked to do.
//!
//! The NPU does not see the CPU's caches. PREP_BO invalidates and FINI_BO
//! cleans them line by line over a whole buffer object
//! (`dma_sync_sgtable_for_cpu` and `_for_device` in the kernel's
//! `rocket_gem.c`), however little of it is used.

use std::sync::atomic::{AtomicU64, Ordering};

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

/// The same, counted by many threads.
#[derive(Debug, Default)]
pub(crate) struct CacheCounters {
    preps: AtomicU64,
    prep_bytes: AtomicU64,
    finis: AtomicU64,
    fini_bytes: AtomicU64,
}

impl CacheCounters {
    pub(crate) fn count_prep(&self, len: usize) {
        // Totals without an order between them: relaxed is enough.
        self.preps.fetch_add(1, Ordering::Relaxed);
        self.prep_bytes.fetch_add(len as u64, Ordering::Relaxed);
    }

    pub(crate) fn count_fini(&self, len: usize) {
        self.finis.fetch_add(1, Ordering::Relaxed);
        self.fini_bytes.fetch_add(len as u64, Ordering::Relaxed);
    }

    pub(crate) fn snapshot(&self) -> CacheTraffic {
        let get = |total: &AtomicU64| total.load(Ordering::Relaxed);
        CacheTraffic {
            preps: get(&self.preps),
            prep_bytes: get(&self.prep_bytes),
            finis: get(&self.finis),
            fini_bytes: get(&self.fini_bytes),
        }
    }
}
