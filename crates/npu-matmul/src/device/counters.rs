// SPDX-License-Identifier: MIT OR Apache-2.0
//! Totals of an engine's work.

/// Totals over the life of an engine, for all devices and threads. Only completed jobs and matmuls
/// count, unless stated otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Matmuls: calls that returned a result.
    pub calls: u64,
    /// Matmuls that were planned instead of taken from the cache.
    pub plans: u64,
    /// SUBMIT calls.
    pub submits: u64,
    /// Jobs. One that ran twice counts once.
    pub jobs: u64,
    /// Jobs that the driver killed or dropped, and that ran a second time, also if that failed.
    pub jobs_run_again: u64,
    /// Jobs that completed at their second run.
    pub jobs_recovered: u64,
    /// Jobs that the CPU computed in place of the NPU; not in [`Self::jobs`].
    pub jobs_on_cpu: u64,
    /// Tasks: register programs run.
    pub tasks: u64,
    /// Multiply-accumulates, M*K*N for each matmul, without padding.
    pub macs: u64,
    /// Bytes of buffers that the CPU filled for the devices: weights,
    /// activations (once for each device), programs.
    pub bytes_to_device: u64,
    /// Bytes of output buffers of completed jobs. The CPU reads them, unless the call fails.
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
