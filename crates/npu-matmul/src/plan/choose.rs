// SPDX-License-Identifier: MIT OR Apache-2.0
//! Into how many tiles K is cut, and whether devices share N or M: what must be
//! chosen when weights are loaded, because they are stored so.
//!
//! Deep tiles save sums on the CPU. But the deeper a tile, the fewer rows of A
//! fit into CBUF beside it, and all of B is fetched again for every such few
//! rows. Which is better depends on M, N, clock and memory, so every sensible
//! number is tried against the timing model.
//!
//! Where N is small, a device's share of it is computed faster than A is fetched.
//! Then each device gets all of B and a share of the rows: of A and C it moves
//! only that.

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

/// Weights beyond this are not copied to each device, bytes: a matrix of 4096 x
/// 4096 INT8 weights. Those of the key and value projections of today's models
/// are below it, and together a small part of a model.
pub(super) const REPLICATED_BYTES_MAX: u64 = 16 << 20;

/// Weights whose copies are cheap: key and value projections of 4096 x 1024 INT8.
pub(super) const CHEAP_COPY_BYTES_MAX: u64 = 4 << 20;

/// Numbers of K tiles are tried one by one up to this, then in steps that grow
/// with them: one more of many changes little.
const ALL_UP_TO: usize = 8;

/// A copy of the weights on each device must save this share of the cost, in
/// percent: it costs the memory of the other copies, and a prediction is no
/// better than docs/timing.md says. Of weights of up to
/// [`CHEAP_COPY_BYTES_MAX`], of the device's part in the cost: what the CPU adds
/// up is nearly the same however devices share.
const REPLICAS_SAVE_PERCENT: u64 = 10;

/// The candidate with the least cost, one with copies of the weights only where
/// these save a tenth; `None` where there is none.
#[must_use]
pub fn cheapest(candidates: Vec<Candidate>) -> Option<Candidate> {
    let (copied, shared): (Vec<_>, Vec<_>) = candidates
        .into_iter()
        .partition(|candidate| candidate.weights.replicas > 1);
    let best = |list: Vec<Candidate>| list.into_iter().min_by_key(Candidate::cost_ps);
    match (best(copied), best(shared)) {
        (Some(copied), Some(shared)) => {
            let less = |ps: u64| ps / 100 * (100 - REPLICAS_SAVE_PERCENT);
            let faster = shared.weights.device_bytes() <= CHEAP_COPY_BYTES_MAX
                && copied.prediction.npu_ps <= less(shared.prediction.npu_ps);
            let pays = copied.cost_ps() <= less(shared.cost_ps())
                || faster && copied.cost_ps() <= shared.cost_ps();
            Some(if pays { copied } else { shared })
        }
        (copied, shared) => copied.or(shared),
    }
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
            found.extend(of_depth(dtype, n, k, devices, k_tile, options)?);
        }
        // Shallower tiles let no more rows share a pass, and add sums.
        if fitting >= most || k_tile <= dtype.k_tile_multiple() {
            return Ok(found);
        }
        tiles += tiles.div_ceil(ALL_UP_TO);
    }
}

/// Every sensible way to share B, with K cut at `k_tile`: channels, or where it is
/// small also rows.
///
/// # Errors
/// As [`WeightPlan::new`].
pub(super) fn of_depth(
    dtype: Dtype,
    n: usize,
    k: usize,
    devices: usize,
    k_tile: usize,
    options: &PlanOptions,
) -> Result<Vec<Candidate>, PlanError> {
    let cut = |replicas| {
        let cut = Cut::new(dtype, k_tile, replicas, options);
        WeightPlan::cut(dtype, n, k, devices, cut)
    };
    let shared = cut(1)?;
    let small = shared.device_bytes() <= REPLICATED_BYTES_MAX;
    let plans = match (options.replicate, devices) {
        (Some(true), several) => vec![cut(several)?],
        (None, 2..) if small => vec![shared, cut(devices)?],
        _ => vec![shared],
    };
    // Else the limits of a job, or a forced tile, are against it.
    let candidates = plans.into_iter().map(|plan| Candidate::new(plan, options));
    Ok(candidates.filter_map(Result::ok).collect())
}
