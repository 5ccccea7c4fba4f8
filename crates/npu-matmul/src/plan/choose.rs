// SPDX-License-Identifier: MIT OR Apache-2.0
//! Into how many tiles K is cut: what must be
//! chosen when weights are loaded, because they are stored so.
//!
//! Deep tiles save sums on the CPU. But the deeper a tile, the fewer rows of A
//! fit into CBUF beside it, and all of B is fetched again for every such few
//! rows. Which is better depends on M, N, clock and memory, so every sensible
//! number is tried against the timing model.

use super::weights::{Cut, check_sizes, even_k_tile, k_tile_max};
use super::{CallTime, Plan, PlanError, PlanOptions, Prediction, WeightPlan};
use crate::dtype::{Dtype, Results};

/// Products that plans are made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conditions {
    /// Rows that weights will mostly be multiplied with: a prompt's batch.
    pub rows: usize,
    /// What those products will mostly be made into.
    pub results: Results,
}

impl Default for Conditions {
    /// llama.cpp's default batch of 512 rows.
    fn default() -> Self {
        Self {
            rows: 512,
            results: Results::Sums,
        }
    }
}

/// One way to cut K.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The weights so cut.
    pub weights: WeightPlan,
    /// What a product of [`Conditions::rows`] takes with it.
    pub prediction: Prediction,
    /// What the whole call takes.
    pub call: CallTime,
}

impl Candidate {
    /// These weights, with what the conditions' product takes.
    ///
    /// # Errors
    /// Why there is no such product; see [`PlanError`].
    pub fn new(weights: WeightPlan, options: &PlanOptions) -> Result<Self, PlanError> {
        let Conditions { rows, results } = options.conditions;
        let plan = Plan::with_results(&weights, rows.max(1), results, options)?;
        Ok(Self {
            prediction: plan.predict(&options.profile.machine),
            call: plan.call(options),
            weights,
        })
    }

    /// What is minimised: the whole call.
    #[must_use]
    pub fn cost_ps(&self) -> u64 {
        self.call.call_ps
    }
}

/// Numbers of K tiles are tried one by one up to this, then in steps that grow
/// with them: one more of many changes little.
const ALL_UP_TO: usize = 8;

/// The candidate with the least cost; `None` where there is none.
#[must_use]
pub fn cheapest(candidates: Vec<Candidate>) -> Option<Candidate> {
    candidates.into_iter().min_by_key(Candidate::cost_ps)
}

/// Every sensible way to cut the K of B, `n x k`, the deepest tiles first; none
/// where no plan keeps to the options' limits.
///
/// # Errors
/// As [`WeightPlan::new`].
pub fn candidates(
    dtype: Dtype,
    n: usize,
    k: usize,
    devices: usize,
    options: &PlanOptions,
) -> Result<Vec<Candidate>, PlanError> {
    check_sizes(dtype, n, k, devices)?;
    let most = options.most_rows(dtype).min(options.conditions.rows);
    let mut found: Vec<Candidate> = Vec::new();
    let mut tiles = 1;
    loop {
        let k_tile = even_k_tile(dtype, k, tiles);
        let fitting = if k_tile > k_tile_max(dtype, options) {
            0
        } else {
            options.rows_max(dtype, k_tile)
        };
        let new = found
            .last()
            .is_none_or(|last| last.weights.k_tile != k_tile);
        if new && fitting > 0 {
            let weights = WeightPlan::cut(dtype, n, k, devices, Cut::new(dtype, k_tile, options))?;
            // Else the limits of a job, or a forced tile, are against it.
            found.extend(Candidate::new(weights, options).ok());
        }
        // Shallower tiles let no more rows share a pass, and add sums.
        if fitting >= most || k_tile <= dtype.k_tile_multiple() {
            return Ok(found);
        }
        tiles += tiles.div_ceil(ALL_UP_TO);
    }
}
