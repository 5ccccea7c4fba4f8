// SPDX-License-Identifier: MIT OR Apache-2.0
//! Splits the nodes of a graph into runs for our device and runs for the CPU.
//!
//! A server computes the same graph for each token until its KV cache is a block longer. So the
//! split is kept, and computed again only if a tensor or the evidence differs.

use std::ops::Range;

use crate::ggml::abi::Tensor;

/// The side that computes a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// Our device.
    Npu,
    Cpu,
    /// There is nothing to compute.
    Any,
}

/// Consecutive nodes of the same side, by their indices in the graph.
pub(crate) type Run = (Side, Range<usize>);

/// Returns the runs of nodes of the same side, in order. Nodes without work join a run.
pub(crate) fn runs(sides: impl IntoIterator<Item = Side>) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for (index, side) in sides.into_iter().enumerate() {
        match runs.last_mut() {
            Some((last, run)) if *last == side || side == Side::Any => run.end = index + 1,
            Some((last @ Side::Any, run)) => {
                *last = side;
                run.end = index + 1;
            }
            _ => runs.push((side, index..index + 1)),
        }
    }
    runs
}

/// What decisions about a graph depend on, beside its tensors: counters that differ after a change.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct SplitState {
    /// Changes of the evidence.
    pub(crate) evidence: u64,
    /// Begins and ends of the NPU's rests.
    pub(crate) rests: u64,
    /// Weights that were left to the CPU after they were for the NPU.
    pub(crate) withdrawn: u64,
}

/// The split of the last graph.
#[derive(Debug, Default)]
pub(crate) struct KeptSplit {
    /// The structs of ggml that the decisions read.
    tensors: Vec<Tensor>,
    /// The state at that time.
    state: SplitState,
    runs: Vec<Run>,
}

// SAFETY: the pointers in `tensors` are compared, never followed.
unsafe impl Send for KeptSplit {}

impl KeptSplit {
    /// Returns the kept runs, if the decisions would read the same `tensors` as for the last graph
    /// and the state is the same.
    pub(crate) fn of<'a>(
        &self,
        tensors: impl Iterator<Item = &'a Tensor>,
        state: SplitState,
    ) -> Option<&[Run]> {
        let is_same =
            !self.tensors.is_empty() && self.state == state && self.tensors.iter().eq(tensors);
        is_same.then_some(&self.runs)
    }

    /// Keeps the runs of a graph.
    pub(crate) fn keep<'a>(
        &mut self,
        tensors: impl Iterator<Item = &'a Tensor>,
        state: SplitState,
        runs: Vec<Run>,
    ) {
        self.tensors.clear();
        self.tensors.extend(tensors.cloned());
        self.state = state;
        self.runs = runs;
    }
}

#[cfg(test)]
mod tests {
    use super::Side::{Any, Cpu, Npu};
    use super::*;

    #[test]
    fn runs_are_as_long_as_they_can_be() {
        assert_eq!(runs([]), []);
        assert_eq!(runs([Any, Any]), [(Any, 0..2)]);
        assert_eq!(runs([Any, Npu, Any, Npu]), [(Npu, 0..4)]);
        let sides = [Any, Cpu, Any, Npu, Npu, Any, Cpu, Npu];
        let expected = [(Cpu, 0..3), (Npu, 3..6), (Cpu, 6..7), (Npu, 7..8)];
        assert_eq!(runs(sides), expected);
    }
}
