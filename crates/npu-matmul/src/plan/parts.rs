// SPDX-License-Identifier: MIT OR Apache-2.0
//! Into how many parts a product is cut, so that packing, computing and unpacking
//! overlap.
//!
//! ```text
//!   CPU   pack 0 | pack 1 | pack 2 |        unpack 0 | unpack 1 | unpack 2
//!   NPU          | part 0     | part 1     | part 2     |
//! ```
//!
//! A part is a range of rows, where the NPU fetches B anew in any case; in it a range
//! of K tiles, of which each has its own parts of A and B; and where that is still
//! faster, a range of channels, for which the NPU fetches the rows of A anew. More
//! parts leave less of the first pack and the last unpack for itself. Each costs a job,
//! and where tiles must be lower for it another fetch of B. Which number is best the
//! modelled call tells ([`Plan::call`]). At last tiles of fewer channels are tried.

use super::predict::TaskWorks;
use super::{Plan, PlanOptions, even_tile};
use crate::dtype::ROW_MULTIPLE;

/// Numbers of ranges of rows, of K tiles, and of channels that are tried, and of tiles
/// of a job's channels.
const CUTS: [usize; 6] = [2, 3, 4, 6, 8, 12];

/// Steps from which on a product that the limits of a job cut is left as it is.
const STEPS_MAX: usize = 16;

/// Numbers in a row that may be worse than one before; then no more are tried.
const WORSE_MAX: usize = 1;

impl Plan {
    /// This plan, in the number of parts that makes the modelled call shortest.
    pub(super) fn in_parts(self, options: &PlanOptions) -> Self {
        let most = options.parts.unwrap_or(usize::MAX);
        if most <= 1 || self.m <= ROW_MULTIPLE || self.steps().len() > STEPS_MAX {
            return self;
        }
        let mut works = TaskWorks::default();
        let mut whole = self.call_with(options, &mut works);
        // A job costs more than could be hidden.
        let driver = &options.profile.machine.driver;
        if whole.pack_ps.saturating_add(whole.unpack_ps) <= driver.attach_ps {
            return self;
        }
        let mut best = self.clone();
        let cuts = [
            Self::cut_into,
            Self::shallower,
            Self::narrowed,
            Self::in_narrow_tiles,
        ];
        for cut in cuts {
            let base = best.clone();
            let mut worse = 0;
            for count in CUTS.into_iter().filter(|&cuts| base.parts() * cuts <= most) {
                let Some(plan) = cut(&base, count, options) else {
                    break;
                };
                let call = plan.call_with(options, &mut works);
                if call.call_ps < whole.call_ps {
                    (best, whole) = (plan, call);
                    worse = 0;
                } else {
                    worse += 1;
                }
                if worse > WORSE_MAX {
                    break;
                }
            }
        }
        best
    }

    /// Parts that it is cut into.
    fn parts(&self) -> usize {
        let bands = self.row_tile_count().div_ceil(self.row_tiles_per_job);
        bands * self.weights.k_tile_count().div_ceil(self.k_tiles_per_job)
    }

    /// With jobs of so few K tiles that there are about `depths` of them for each range
    /// of rows; `None` where there are not as many.
    fn shallower(&self, depths: usize, _: &PlanOptions) -> Option<Self> {
        let k_tiles_per_job = self.k_tiles_per_job.div_ceil(depths);
        let plan = Self {
            k_tiles_per_job,
            ..self.clone()
        };
        (self.k_tiles_per_job >= depths).then(|| plan.ordered())
    }

    /// With jobs of so few channels that there are about `widths` of them for each
    /// range of rows; `None` where there are not as many groups of kernels.
    fn narrowed(&self, widths: usize, _: &PlanOptions) -> Option<Self> {
        let most = self.groups_per_job.div_ceil(widths);
        let plan = Self {
            groups_per_job: even_tile(self.groups_per_job, most, 1),
            ..self.clone()
        };
        (self.groups_per_job >= widths).then(|| plan.ordered())
    }

    /// With tiles of so few channels that a job has `tiles` of them; `None` where they are
    /// forced, or a job has not as many groups of kernels or would exceed its limits.
    fn in_narrow_tiles(&self, tiles: usize, options: &PlanOptions) -> Option<Self> {
        let groups = self.groups_per_job.div_ceil(tiles);
        let plan = Self {
            n_tile: groups * self.weights.dtype.kernel_group(),
            ..self.clone()
        };
        let [rows, width, depth] = [
            self.row_tiles_per_job,
            self.groups_per_job,
            self.k_tiles_per_job,
        ];
        let narrower = options.n_tile.is_none() && width >= tiles && plan.n_tile < self.n_tile;
        (narrower && plan.job_fits(&options.limits, rows, width, depth)).then(|| plan.ordered())
    }

    /// With jobs of so few rows that there are about `parts` of them, one after the
    /// other; `None` where there are not as many rows.
    fn cut_into(&self, parts: usize, options: &PlanOptions) -> Option<Self> {
        let mut plan = self.clone();
        if plan.row_tile_count() < parts && options.row_tile.is_none() {
            let rows = self.m.div_ceil(parts).next_multiple_of(ROW_MULTIPLE);
            if rows * (parts - 1) >= self.m {
                return None;
            }
            plan.row_tile = even_tile(self.m, rows, ROW_MULTIPLE);
            plan.fill_jobs(&options.limits).ok()?;
            plan = plan.ordered();
        }
        let tiles = plan.row_tile_count();
        plan.row_tiles_per_job = plan.row_tiles_per_job.min(tiles.div_ceil(parts));
        Some(plan)
    }
}
