// SPDX-License-Identifier: MIT OR Apache-2.0
//! Predicted speed of a model: prompts, and parallel sequences.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use npu_offload::{Graph, GraphTime, ModelShape, OffloadRules, PlanTarget, WeightMatrix};
use serde::Serialize;

use crate::base::flags::planning::HERTZ_PER_MHZ;

/// Clocks besides the profile's: mainline's at boot, the usual vendor clock, the highest.
const MEGAHERTZ: [u64; 3] = [200, 600, 1000];
const PROMPTS: [usize; 4] = [128, 512, 2048, 8192];
const SEQUENCES: [usize; 6] = [1, 2, 4, 8, 16, 32];
/// Tokens of each sequence before the new one.
const CONTEXT: usize = 512;

/// Predicted speed, tokens per second.
#[derive(Debug, Serialize)]
pub(super) struct SpeedReport {
    /// NPU clocks of the columns `npu` below.
    pub(super) clocks_mhz: Vec<u64>,
    /// Context length of the model, if the file has it.
    pub(super) context_length: Option<usize>,
    /// Prompt processing, in batches of 512 tokens.
    pub(super) prompts: Vec<SpeedRow>,
    /// Token generation of parallel sequences, one token each.
    pub(super) parallel: Vec<SpeedRow>,
    pub(super) parallel_context: usize,
}

/// A predicted rate: what a board is likely to show, and the upper bound.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct RateRange {
    pub(super) likely: f64,
    pub(super) upper_bound: f64,
}

impl fmt::Display for RateRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1} ({:.1})", self.likely, self.upper_bound)
    }
}

#[derive(Debug, Serialize)]
pub(super) struct SpeedRow {
    pub(super) count: usize,
    pub(super) cpu_alone: RateRange,
    pub(super) npu: Vec<RateRange>,
    /// The largest part of the likely time at the profile's clock, and its share of the time.
    pub(super) mostly: &'static str,
    pub(super) mostly_percent: f64,
}

impl SpeedReport {
    pub(super) fn new(
        shape: ModelShape,
        context_length: Option<usize>,
        weights: &[WeightMatrix],
        rules: &OffloadRules,
    ) -> Self {
        let here = rules.target.megahertz();
        let clocks_mhz = BTreeSet::from_iter(MEGAHERTZ.into_iter().chain([here]));
        let clocks_mhz = Vec::from_iter(clocks_mhz);
        let cpu = Graph::of_weights(shape, weights.to_vec(), rules).on_cpu();
        let rules: Vec<_> = clocks_mhz.iter().map(|mhz| at_clock(rules, *mhz)).collect();
        let graph = |rules| Graph::of_weights(shape, weights.to_vec(), rules);
        let graphs: Vec<_> = rules.iter().map(graph).collect();
        let here = clocks_mhz.iter().position(|clock| *clock == here);
        let row = |count, time: &dyn Fn(&Graph<'_>) -> GraphTime| {
            let rate = |graph: &Graph<'_>| RateRange {
                likely: time(graph).tokens_per_second(count),
                upper_bound: time(&graph.upper_bound()).tokens_per_second(count),
            };
            let now = here.and_then(|here| graphs.get(here)).map(time);
            let now = now.unwrap_or_default();
            let (largest, mostly) = now.largest();
            SpeedRow {
                count,
                cpu_alone: rate(&cpu),
                npu: graphs.iter().map(rate).collect(),
                mostly,
                mostly_percent: 100.0 * largest as f64 / now.total().max(1) as f64,
            }
        };
        let is_possible = |tokens: &usize| context_length.is_none_or(|most| *tokens <= most);
        let prompts = PROMPTS.into_iter().filter(is_possible);
        let prompts = prompts.map(|tokens| row(tokens, &|graph| graph.prompt(tokens)));
        let parallel = SEQUENCES.map(|count| row(count, &|graph| graph.step(count, CONTEXT)));
        Self {
            prompts: prompts.collect(),
            parallel: parallel.into(),
            clocks_mhz,
            context_length,
            parallel_context: CONTEXT,
        }
    }
}

/// The same rules for a machine with another NPU clock.
fn at_clock(rules: &OffloadRules, megahertz: u64) -> OffloadRules {
    let mut options = rules.target.options().clone();
    if megahertz != rules.target.megahertz() {
        let profile = options.profile.at_clock(megahertz * HERTZ_PER_MHZ);
        options.profile = Arc::new(profile);
    }
    OffloadRules::new(PlanTarget::new(rules.target.fds, options))
}
