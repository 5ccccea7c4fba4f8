// SPDX-License-Identifier: MIT OR Apache-2.0
//! What else a plan could have chosen, to be measured.

use super::choose::{Candidate, candidates, cheapest};
use super::depth::with_copies;
use super::{Plan, PlanError, PlanOptions, PlanSizes, even_tile};
use crate::dtype::{Dtype, ROW_MULTIPLE};

/// Sizes that a plan could choose, and what it would take with them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alternative {
    /// Sizes of tiles and parts.
    pub choice: PlanSizes,
    /// The weights so cut, and the modelled time.
    pub candidate: Candidate,
}

/// Up to `count` sensible choices for a product of as many rows as the options'
/// conditions say with B, `n x k`; no two are the same. The one of a plan is the
/// first, the others follow by modelled cost. Where the options fix the depth of K
/// tiles, only choices with that are taken, of which there may be none.
///
/// They differ in how B is cut, and in the rows of a tile: as many as fit, which
/// fetches B least often; half of them, which lets work begin sooner; or as many
/// as let B stay in CBUF, where the plan prefers that.
///
/// # Errors
/// As [`WeightPlan::new`](super::WeightPlan::new).
pub fn alternatives(
    dtype: Dtype,
    n: usize,
    k: usize,
    devices: usize,
    options: &PlanOptions,
    count: usize,
) -> Result<Vec<Alternative>, PlanError> {
    let mut cuts = candidates(dtype, n, k, devices, options)?;
    cuts.retain(|cut| {
        options
            .k_tile
            .is_none_or(|k_tile| k_tile == cut.weights.k_tile)
    });
    let mut all = Vec::new();
    // The plan's own is tried first of its cut, so that `cheapest` has it below.
    for cut in &cuts {
        let planned = Alternative::of(cut.clone(), options)?;
        for row_tile in planned.row_tiles(options) {
            let choice = PlanSizes {
                row_tile,
                ..planned.choice
            };
            // Else the limits of a job are against it.
            if choice != planned.choice
                && let Ok(candidate) = Candidate::new(cut.weights.clone(), &choice.forced(options))
            {
                all.push(Alternative { choice, candidate });
            }
        }
        all.push(planned);
    }
    all.sort_by_key(|one| one.candidate.cost_ps());
    if let Some(copied) = with_copies(dtype, n, k, devices, options)?.replicate {
        cuts.retain(|cut| copied == (cut.weights.replicas > 1));
    }
    if let Some(chosen) = cheapest(cuts) {
        let chosen = Alternative::of(chosen, options)?;
        all.retain(|one| one.choice != chosen.choice);
        all.insert(0, chosen);
    }
    all.truncate(count);
    Ok(all)
}

impl Alternative {
    fn of(candidate: Candidate, options: &PlanOptions) -> Result<Self, PlanError> {
        let conditions = &options.conditions;
        let plan = Plan::with_results(
            &candidate.weights,
            conditions.rows.max(1),
            conditions.results,
            options,
        )?;
        let choice = PlanSizes::of(&plan);
        // With these sizes fixed the parts may be others.
        Ok(Self {
            candidate: Candidate::new(candidate.weights, &choice.forced(options))?,
            choice,
        })
    }

    /// The most rows of a tile, and half of them.
    fn row_tiles(&self, options: &PlanOptions) -> Vec<usize> {
        let weights = &self.candidate.weights;
        let share = options.conditions.rows.max(1).div_ceil(weights.replicas);
        let most = weights.row_tile_max.max(ROW_MULTIPLE);
        let tile = |max: usize| even_tile(share, max, ROW_MULTIPLE);
        let largest = tile(most);
        let half = tile((largest / 2).next_multiple_of(ROW_MULTIPLE));
        match options.row_tile {
            Some(_) => Vec::new(),
            None if half < largest => vec![largest, half],
            None => vec![largest],
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::WeightPlan;
    use super::*;

    proptest! {
        #![proptest_config(test_support::cases(24))]

        #[test]
        fn the_plans_own_choice_is_first_and_none_comes_twice(
            dtype in prop::sample::select(&Dtype::ALL[..]),
            m in 1..1500_usize,
            k in 1..9000_usize,
            n in 1..3000_usize,
            devices in 1..5_usize,
        ) {
            let mut options = PlanOptions::default();
            options.conditions.rows = m;
            let all = alternatives(dtype, n, k, devices, &options, usize::MAX).unwrap();
            let weights = WeightPlan::new(dtype, n, k, devices, &options).unwrap();
            let planned = PlanSizes::of(&Plan::new(&weights, m, &options).unwrap());
            prop_assert_eq!(all[0].choice, planned);
            prop_assert!(all[1..].is_sorted_by_key(|one| one.candidate.cost_ps()));
            for (at, one) in all.iter().enumerate() {
                prop_assert!(all[..at].iter().all(|other| other.choice != one.choice));
                // What was predicted is what these sizes make.
                let forced = one.choice.forced(&options);
                let plan = Plan::new(&one.candidate.weights, m, &forced).unwrap();
                prop_assert_eq!(PlanSizes::of(&plan), one.choice);
                let again = plan.predict(&options.profile.machine);
                prop_assert_eq!(again, one.candidate.prediction);
            }
            let few = alternatives(dtype, n, k, devices, &options, 2).unwrap();
            prop_assert_eq!(&few[..], &all[..all.len().min(2)]);
        }
    }
}
