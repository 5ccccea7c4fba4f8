// SPDX-License-Identifier: MIT OR Apache-2.0
//! Totals of an engine's work.

use std::sync::atomic::{AtomicU64, Ordering};

/// Totals over the life of an engine, for all devices and threads. Only completed jobs and matmuls
/// count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Matmuls: calls that returned a result.
    pub matmuls: u64,
    /// Matmuls that were planned instead of taken from the cache.
    pub plans: u64,
    /// SUBMIT calls.
    pub submits: u64,
    /// Jobs: one wait each.
    pub jobs: u64,
    /// Tasks: register programs run.
    pub tasks: u64,
    /// Multiply-accumulates, M*K*N for each matmul, without padding.
    pub macs: u64,
    /// Bytes of buffers that the CPU filled for the devices: weights,
    /// activations (once for each device), programs.
    pub bytes_to_device: u64,
    /// Bytes of output buffers that the CPU read.
    pub bytes_from_device: u64,
    /// Bytes that PREP_BO invalidated in CPU caches; each call counts the whole buffer. Includes
    /// calls by others on the engine's file descriptors.
    pub prep_bytes: u64,
    /// Bytes that FINI_BO cleaned in CPU caches, counted like `prep_bytes`.
    pub fini_bytes: u64,
    /// First tasks of their kind that were checked on the CPU; see
    /// [`PlanOptions::check_first`](crate::PlanOptions::check_first).
    pub checked_tasks: u64,
}

/// Counters that many threads add to.
#[derive(Debug, Default)]
pub(crate) struct AtomicCounters {
    matmuls: AtomicU64,
    plans: AtomicU64,
    submits: AtomicU64,
    jobs: AtomicU64,
    tasks: AtomicU64,
    macs: AtomicU64,
    bytes_to_device: AtomicU64,
    bytes_from_device: AtomicU64,
    checked_tasks: AtomicU64,
}

impl AtomicCounters {
    pub(crate) fn add(&self, more: &Counters) {
        // The totals need no order between them: relaxed is enough.
        for (total, more) in [
            (&self.matmuls, more.matmuls),
            (&self.plans, more.plans),
            (&self.submits, more.submits),
            (&self.jobs, more.jobs),
            (&self.tasks, more.tasks),
            (&self.macs, more.macs),
            (&self.bytes_to_device, more.bytes_to_device),
            (&self.bytes_from_device, more.bytes_from_device),
            (&self.checked_tasks, more.checked_tasks),
        ] {
            total.fetch_add(more, Ordering::Relaxed);
        }
    }

    /// The totals, without those that the devices count.
    pub(crate) fn snapshot(&self) -> Counters {
        let get = |total: &AtomicU64| total.load(Ordering::Relaxed);
        Counters {
            matmuls: get(&self.matmuls),
            plans: get(&self.plans),
            submits: get(&self.submits),
            jobs: get(&self.jobs),
            tasks: get(&self.tasks),
            macs: get(&self.macs),
            bytes_to_device: get(&self.bytes_to_device),
            bytes_from_device: get(&self.bytes_from_device),
            checked_tasks: get(&self.checked_tasks),
            ..Counters::default()
        }
    }
}
