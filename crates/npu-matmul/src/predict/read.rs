// SPDX-License-Identifier: MIT OR Apache-2.0
//! The CPU's time to read results.

use crate::plan::{PlanOptions, Step};
use crate::profile::{KernelCost, UnpackTo};

/// Picoseconds to read the results of a step, and bytes that the CPU moves for it.
pub(super) fn read(step: &Step, options: &PlanOptions) -> (u64, u64) {
    let host = &options.profile.host;
    let bytes: usize = step.jobs.iter().map(|job| job.output_bytes).sum();
    // The caches of the jobs' results are maintained at the same time.
    let together = (step.jobs.len() as u64).clamp(1, u64::from(host.cores.max(1)));
    let (mut ps, mut moved) = (host.sync_ps(bytes as u64) / together, 0_u64);
    for job in &step.jobs {
        let first = job.band.k_tiles.first().map_or(0, |a| a.index);
        for task in &job.tasks {
            let a = &job.band.k_tiles[task.activation];
            let to = match a.index {
                0 => UnpackTo::Result,
                index if index > first => UnpackTo::CachedSum,
                _ => UnpackTo::Sum,
            };
            let elements = (job.band.rows.len() * task.n.len()) as u64;
            let kernel = KernelCost::unpack(job.dtype, to);
            ps = ps.saturating_add(host.kernel_ps(elements, kernel));
            moved = moved.saturating_add(kernel.bytes(elements));
        }
    }
    (ps, moved)
}
