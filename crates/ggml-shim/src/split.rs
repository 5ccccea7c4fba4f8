// SPDX-License-Identifier: MIT OR Apache-2.0
//! Splits the nodes of a graph into runs for our device and runs for the CPU.
//!
//! A server computes the same graph for each token until its KV cache is a block longer. So the
//! split is kept, and computed again only if a tensor or the evidence differs.

use std::ops::Range;

use crate::abi::Tensor;
use crate::host_tensor::HostTensor;

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

/// The split of the last graph.
#[derive(Debug, Default)]
pub(crate) struct KeptSplit {
    /// The parts of ggml's structs that the decisions read, see [`tensors`].
    tensors: Vec<Tensor>,
    /// Number of changes of the evidence at that time.
    changes: u64,
    runs: Vec<Run>,
}

// SAFETY: the pointers in `tensors` are compared, never followed.
unsafe impl Send for KeptSplit {}

impl KeptSplit {
    /// Returns the kept runs, if the graph has the same tensors as the last one and the evidence is
    /// the same.
    pub(crate) fn of(&self, nodes: &[HostTensor<'_>], changes: u64) -> Option<&[Run]> {
        let is_same = !self.tensors.is_empty()
            && self.changes == changes
            && self.tensors.iter().eq(tensors(nodes));
        is_same.then_some(&self.runs)
    }

    /// Keeps the runs of a graph.
    pub(crate) fn keep(&mut self, nodes: &[HostTensor<'_>], changes: u64, runs: Vec<Run>) {
        self.tensors.clear();
        self.tensors.extend(tensors(nodes).cloned());
        self.changes = changes;
        self.runs = runs;
    }
}

/// Nodes, their operands, and the owners of the operands' data.
fn tensors<'a>(nodes: &[HostTensor<'a>]) -> impl Iterator<Item = &'a Tensor> {
    nodes.iter().flat_map(|node| {
        let operands = node.operands().flatten();
        let read = operands.flat_map(|operand| [Some(operand), operand.viewed()]);
        [Some(*node), node.viewed()]
            .into_iter()
            .chain(read)
            .flatten()
            .map(HostTensor::fields)
    })
}

#[cfg(test)]
mod tests {
    use super::Side::{Any, Cpu, Npu};
    use super::*;
    use crate::abi::type_id;
    use crate::host::tests::fake_host;
    use crate::tensor::tests::{host_tensor, tensor};

    #[test]
    fn runs_are_as_long_as_they_can_be() {
        assert_eq!(runs([]), []);
        assert_eq!(runs([Any, Any]), [(Any, 0..2)]);
        assert_eq!(runs([Any, Npu, Any, Npu]), [(Npu, 0..4)]);
        let sides = [Any, Cpu, Any, Npu, Npu, Any, Cpu, Npu];
        let expected = [(Cpu, 0..3), (Npu, 3..6), (Cpu, 6..7), (Npu, 7..8)];
        assert_eq!(runs(sides), expected);
    }

    #[test]
    fn a_split_is_kept_while_no_tensor_and_no_evidence_changes() {
        let host = fake_host();
        // Weights, the tensor that they are a view of, activations, a node.
        let mut graph: [_; 4] = std::array::from_fn(|_| tensor(type_id::F32, [64, 64, 1, 1]));
        let mut kept = KeptSplit::default();
        let [weights, owner, activations, node] = &mut graph;
        weights.view_src = owner;
        node.src[0] = weights;
        node.src[1] = activations;
        let is_kept = |kept: &KeptSplit, graph: &[Tensor; 4], changes| {
            kept.of(&[host_tensor(&host, &graph[3])], changes).is_some()
        };
        assert!(!is_kept(&kept, &graph, 0));
        kept.keep(&[host_tensor(&host, &graph[3])], 7, runs([Npu]));
        assert!(is_kept(&kept, &graph, 7) && !is_kept(&kept, &graph, 8));
        for index in 0..4 {
            let changes: [fn(&mut Tensor); 4] = [
                |tensor| tensor.ne[1] += 1,
                |tensor| tensor.flags ^= 1,
                |tensor| tensor.op_params[15] ^= 1,
                |tensor| tensor.name[0] ^= 1,
            ];
            for change in changes {
                let before = graph[index].clone();
                change(&mut graph[index]);
                assert!(!is_kept(&kept, &graph, 7), "{index}");
                graph[index] = before;
                assert!(is_kept(&kept, &graph, 7));
            }
        }
        // A graph with fewer or more nodes is another one.
        let node = host_tensor(&host, &graph[3]);
        assert!(kept.of(&[], 7).is_none() && kept.of(&[node, node], 7).is_none());
    }
}
