// SPDX-License-Identifier: MIT OR Apache-2.0
//! Computes whole graphs from ggml's RPC server (`GGML_ROCKET_SERVE=1`).
//!
//! That server asks no device what it supports, and has one device for each graph. So this module
//! does the work of ggml's scheduler and asks our device about each node. Runs of nodes that it
//! takes go to [`crate::compute::graph`], all other nodes to a CPU backend of our own. The split into runs
//! is kept while the graph stays the same ([`crate::ggml::split`]). A graph without nodes for our device,
//! such as that of every decoded token, goes to the CPU as a whole.
//!
//! The server does not identify weights either: see [`crate::ggml::written_bytes`].

use std::ffi::c_int;

use crate::compute::classify;
use crate::compute::graph;
use crate::compute::runtime::{NO_CPU_BACKEND, Runtime};
use crate::ggml::abi::{Graph, Tensor, status};
use crate::ggml::cpu_ops::CpuStream;
use crate::ggml::log::LogLevel;
use crate::ggml::split::{self, Run, Side, SplitState};
use crate::ggml::stream::Stream;
use crate::ggml::tensor_ref::TensorRef;
use crate::ggml::written_bytes::WrittenBytes;
use crate::weights::watched_buffers::WrittenRange;

/// Computes a graph with these nodes; returns a value of [`status`].
///
/// # Safety
/// The graph is live, and has these nodes. They and their operands are allocated, and until this
/// returns nobody else accesses their data, except to read operands.
pub(crate) unsafe fn compute(
    runtime: &Runtime,
    stream: &Stream,
    evidence: &WrittenBytes,
    (graph, nodes): (*mut Graph, &[TensorRef<'_>]),
) -> c_int {
    let runs = runs(runtime, stream, evidence, nodes);
    if runs.iter().all(|(side, _)| *side != Side::Npu) {
        return on_cpu(runtime, stream, nodes.len(), |cpu| {
            // SAFETY: the CPU computes the same graph as in a server without our device; the rest
            // by the caller's promise.
            unsafe { cpu.compute_graph(graph) }
        });
    }
    for (side, run) in runs {
        if stream.is_aborted() {
            return status::ABORTED;
        }
        let nodes = &nodes[run];
        let status = match side {
            // SAFETY: the caller's promise is the callee's.
            Side::Npu => unsafe { graph::compute(runtime, stream, nodes) },
            Side::Cpu | Side::Any => {
                let nodes: Vec<_> = nodes.iter().map(|node| node.as_ptr()).collect();
                on_cpu(runtime, stream, nodes.len(), |cpu| {
                    // SAFETY: as above.
                    unsafe { cpu.compute(&nodes) }
                })
            }
        };
        if status != status::SUCCESS {
            return status;
        }
    }
    status::SUCCESS
}

/// Returns the runs of nodes on the same side: the kept ones if the graph is the same as the last.
fn runs(
    runtime: &Runtime,
    stream: &Stream,
    evidence: &WrittenBytes,
    nodes: &[TensorRef<'_>],
) -> Vec<Run> {
    let mut kept = stream.split();
    let state = || SplitState {
        evidence: evidence.changes(),
        rests: runtime.fallback.changes(),
        withdrawn: runtime.budget.withdrawn(),
    };
    if let Some(runs) = kept.of(read_tensors(nodes), state()) {
        return runs.to_vec();
    }
    for node in nodes {
        note_computed(runtime, evidence, *node);
    }
    let state = state();
    let runs = split::runs(nodes.iter().map(|node| side(runtime, *node)));
    kept.keep(read_tensors(nodes), state, runs.clone());
    runs
}

/// The tensors that decisions about `nodes` read: nodes, operands, and the owners of their data.
fn read_tensors<'a>(nodes: &[TensorRef<'a>]) -> impl Iterator<Item = &'a Tensor> {
    nodes.iter().flat_map(|node| {
        let operands = node.operands().flatten();
        let read = operands.flat_map(|operand| [Some(operand), operand.viewed()]);
        [Some(*node), node.viewed()]
            .into_iter()
            .chain(read)
            .flatten()
            .map(TensorRef::fields)
    })
}

/// Records what `node` writes: bytes that a graph writes are not weights.
fn note_computed(runtime: &Runtime, evidence: &WrittenBytes, node: TensorRef<'_>) {
    if !node.is_wanted() {
        return;
    }
    let Some((buffer, range)) = classify::written(node) else {
        return;
    };
    if !evidence.computed(buffer, &range) {
        return;
    }
    // Not if the client has written only inputs there.
    if runtime.weight_buffers.leave_written(buffer, &range) == WrittenRange::Withdrawn {
        let name = node.name();
        let line = format!("weights that {name} overwrites stay on the CPU from now on");
        runtime.log(LogLevel::Info, &line);
    }
}

fn side(runtime: &Runtime, node: TensorRef<'_>) -> Side {
    if !node.is_computed() || !node.is_wanted() {
        Side::Any
    } else if runtime.cpu.is_taken(runtime.device, node) {
        Side::Npu
    } else {
        Side::Cpu
    }
}

/// Computes `nodes` nodes on a CPU backend of `stream`.
fn on_cpu(
    runtime: &Runtime,
    stream: &Stream,
    nodes: usize,
    compute: impl FnOnce(&mut CpuStream) -> c_int,
) -> c_int {
    let status = runtime.on_cpu(stream, nodes, compute);
    status.unwrap_or_else(|| {
        runtime.log(LogLevel::Error, NO_CPU_BACKEND);
        status::ALLOC_FAILED
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compute::classify::tests::{host_tensor, tensor};
    use crate::ggml::abi::type_id;
    use crate::ggml::split::KeptSplit;

    #[test]
    fn a_split_is_kept_while_no_tensor_and_no_evidence_changes() {
        // Weights, the tensor that they are a view of, activations, a node.
        let mut graph: [_; 4] = std::array::from_fn(|_| tensor(type_id::F32, [64, 64, 1, 1]));
        let mut kept = KeptSplit::default();
        let [weights, owner, activations, node] = &mut graph;
        weights.view_src = owner;
        node.src[0] = weights;
        node.src[1] = activations;
        let is_kept = |kept: &KeptSplit, graph: &[Tensor; 4], state| {
            let node = host_tensor(&graph[3]);
            kept.of(read_tensors(&[node]), state).is_some()
        };
        let state = SplitState {
            evidence: 7,
            ..SplitState::default()
        };
        assert!(!is_kept(&kept, &graph, SplitState::default()));
        let node = host_tensor(&graph[3]);
        kept.keep(read_tensors(&[node]), state, vec![(Side::Npu, 0..1)]);
        assert!(is_kept(&kept, &graph, state));
        let SplitState {
            evidence,
            rests,
            withdrawn,
        } = state;
        let others = [
            [evidence + 1, rests, withdrawn],
            [evidence, rests + 1, withdrawn],
            [evidence, rests, withdrawn + 1],
        ];
        for [evidence, rests, withdrawn] in others {
            let other = SplitState {
                evidence,
                rests,
                withdrawn,
            };
            assert!(!is_kept(&kept, &graph, other));
        }
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
                assert!(!is_kept(&kept, &graph, state), "{index}");
                graph[index] = before;
                assert!(is_kept(&kept, &graph, state));
            }
        }
        // A graph with fewer or more nodes is another one.
        let node = host_tensor(&graph[3]);
        for nodes in [&[][..], &[node, node]] {
            assert!(kept.of(read_tensors(nodes), state).is_none());
        }
    }
}
