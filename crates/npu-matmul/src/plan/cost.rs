// SPDX-License-Identifier: MIT OR Apache-2.0
//! An upper bound of the time that a tile takes on one core.
//!
//! The kernel kills a job that runs for 500 ms (mainline
//! `drivers/accel/rocket`, `JOB_TIMEOUT_MS`), so a plan cuts jobs by the time
//! they could take in the worst conditions that we know of, not by the time
//! they should take. It is a bound and no prediction.

use crate::dtype::Dtype;
use crate::layout;

/// The slowest clock the NPU runs at: the RK3588 boots with 200 MHz
/// (E-clock-boot), and nothing promises that somebody raised it.
const CLOCK_HZ: u64 = 200_000_000;

/// Bytes a nanosecond that a core surely moves: 3 at 600 MHz (E-time-memory); a
/// third of that covers the slowest clock.
const DMA_BYTES_PER_NS: u64 = 1;

/// Fixed time of a task: kick, interrupt, first fetch; twice what a job with one
/// tiny task takes (E-time-submit).
const TASK_OVERHEAD_NS: u64 = 100_000;

/// Nanoseconds that a task over one tile takes at most; the sum of computing
/// and moving, although the hardware overlaps them. Sizes are padded ones.
pub(crate) fn task_time_bound_ns(dtype: Dtype, m: usize, k: usize, n: usize) -> u64 {
    let macs = (m as u64) * (k as u64) * (n as u64);
    let clocks = macs / dtype.macs_per_clock();
    let compute = clocks * (1_000_000_000 / CLOCK_HZ);
    let bytes = layout::activation_bytes(dtype, m, k)
        + layout::weight_bytes(dtype, n, k)
        + layout::output_bytes(dtype.matmul_type(), m, n);
    TASK_OVERHEAD_NS + compute + bytes as u64 / DMA_BYTES_PER_NS
}
