// SPDX-License-Identifier: MIT OR Apache-2.0
//! Plans whose A or C is a row-major matrix, for callers who fill and read them
//! in place.
//!
//! The rows that silicon was measured to take from a row-major A are fewer than
//! of a cube ([`row_major_rows`]), and the notch bounds how wide a row-major C
//! is. K must be whole: how rows of a part of K are fetched from longer ones has
//! not been measured, and C would be several matrices to add up.

use std::ops::Range;

use rknpu_regcmd::{
    ChipProfile, Layouts, MatmulError, MatrixLayout, ROW_PITCH_MAX, row_major_rows,
};

use super::options::{PlanError, PlanOptions};
use super::weights::tile_task;
use super::{Plan, WeightPlan, even_tile, to_u32};
use crate::dtype::{Dtype, ROW_MULTIPLE, Results};
use crate::layout;

impl Plan {
    /// Plans as [`Plan::with_results`], with A or C row-major. What was
    /// measured to be best is not looked up where one is row-major.
    ///
    /// # Errors
    /// As [`Plan::new`], and [`PlanError::RowMajorDepth`],
    /// [`PlanError::RowMajorInt4`].
    pub fn with_row_major(
        weights: &WeightPlan,
        m: usize,
        results: Results,
        row_major: [bool; 2],
        options: &PlanOptions,
    ) -> Result<Self, PlanError> {
        if row_major == [false; 2] {
            return Self::with_results(weights, m, results, options);
        }
        if weights.dtype == Dtype::Int4 {
            return Err(PlanError::RowMajorInt4);
        }
        let k_tiles = weights.k_tile_count();
        if k_tiles > 1 {
            return Err(PlanError::RowMajorDepth { k_tiles });
        }
        let row_tile = match (options.row_tile, row_major) {
            (None, [true, _]) => Some(row_tile(weights, m, options)),
            (chosen, _) => chosen,
        };
        let mut options = PlanOptions {
            row_tile,
            ..options.clone()
        };
        let mut plan = Self::predicted(weights, m, results, row_major[0], &options)?;
        plan.row_major = row_major;
        plan.fit_notch();
        plan.check_orders()?;
        // The order of tasks may be another one in narrower jobs.
        options.row_tile = Some(plan.row_tile);
        Ok(plan.keeping_operands(&options))
    }

    /// How the tasks of jobs that compute the channels `n` find A and C.
    pub(super) fn task_layouts(&self, n: &Range<usize>) -> Layouts {
        let dtype = self.weights.dtype;
        let order = |row_major, bytes| match row_major {
            false => MatrixLayout::Cube,
            true => MatrixLayout::RowMajor {
                pitch: to_u32(bytes),
            },
        };
        let k = dtype.input_bytes(self.weights.k_padded());
        let n = n.len().next_multiple_of(dtype.kernel_group());
        Layouts {
            a: order(self.row_major[0], k),
            c: order(self.row_major[1], layout::output_bytes(self.ty, 1, n)),
        }
    }

    /// Makes jobs no wider than rows of C may be apart.
    fn fit_notch(&mut self) {
        if self.row_major[1] {
            let group = self.weights.dtype.kernel_group();
            let widest = ROW_PITCH_MAX as usize / layout::output_bytes(self.ty, 1, group);
            self.groups_per_job = even_tile(self.groups_per_job, widest, 1);
        }
    }

    /// Checks the largest tile of the widest job against the rules of the
    /// hardware.
    fn check_orders(&self) -> Result<(), PlanError> {
        let (m, k) = (self.row_tile, self.weights.k_padded());
        let channels = self.groups_per_job * self.weights.dtype.kernel_group();
        let n = channels.min(self.n_tile);
        tile_task(self.ty, m, k, n)
            .laid_out(self.task_layouts(&(0..channels)))
            .check(&ChipProfile::RK3588)
            .map(|_| ())
            .map_err(|source: MatmulError| PlanError::IllegalTile { m, k, n, source })
    }
}

/// Rows of a tile of a row-major A: even ones, as many as were measured.
fn row_tile(weights: &WeightPlan, m: usize, options: &PlanOptions) -> usize {
    let (dtype, k) = (weights.dtype, weights.k_padded());
    let known = row_major_rows(dtype.matmul_type(), to_u32(k)) as usize;
    let most = known.min(options.rows_max_of(dtype, true, k));
    let most = most / ROW_MULTIPLE * ROW_MULTIPLE;
    // One that is illegal is refused by name.
    even_tile(
        m.div_ceil(weights.replicas),
        most.max(ROW_MULTIPLE),
        ROW_MULTIPLE,
    )
}
