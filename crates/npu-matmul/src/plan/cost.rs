// SPDX-License-Identifier: MIT OR Apache-2.0
//! An upper bound of a task's time on one core.
//!
//! The kernel kills a job that runs for 500 ms (mainline `drivers/accel/rocket`, `JOB_TIMEOUT_MS`).
//! So a plan limits jobs by their time in the worst known conditions, not by their predicted time.

use crate::numbers::dtype::Dtype;
use crate::numbers::layout;

/// The slowest clock of the NPU. The RK3588 boots at 200 MHz (E-clock-boot), and possibly nothing
/// raised it.
const CLOCK_HZ: u64 = 200_000_000;

/// Least bytes per nanosecond that a core moves: 3 at 600 MHz (E-time-memory), a third of that at
/// the slowest clock.
const DMA_BYTES_PER_NS: u64 = 1;

/// Fixed time of a task for kick, interrupt and first fetch: twice the time of a job with one tiny
/// task (E-time-submit).
const TASK_OVERHEAD_NS: u64 = 100_000;

/// Upper bound of the time of one tile's task, in nanoseconds: computing plus moving, although the
/// hardware overlaps them. Sizes are the padded ones.
pub(crate) fn task_time_bound_ns(dtype: Dtype, m: usize, k: usize, n: usize) -> u64 {
    let macs = (m as u64) * (k as u64) * (n as u64);
    let clocks = macs / dtype.macs_per_clock();
    let compute = clocks * (1_000_000_000 / CLOCK_HZ);
    let bytes = layout::activation_bytes(dtype, m, k)
        + layout::weight_bytes(dtype, n, k)
        + layout::output_bytes(dtype, m, n);
    TASK_OVERHEAD_NS + compute + bytes as u64 / DMA_BYTES_PER_NS
}
