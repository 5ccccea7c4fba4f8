// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counters of the cache maintenance by PREP_BO and FINI_BO.
//!
//! The NPU does not see the CPU's caches. PREP_BO invalidates and FINI_BO cleans them line
//! by line over the whole buffer object, however little of it is used
//! (`dma_sync_sgtable_for_cpu` and `_for_device` in the kernel's `rocket_gem.c`).

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
