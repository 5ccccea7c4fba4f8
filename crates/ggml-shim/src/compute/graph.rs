// SPDX-License-Identifier: MIT OR Apache-2.0
//! Computes the nodes of a graph that ggml hands over.
//!
//! ```text
//! for each node                                   (compute_nodes)
//!     classify it, check that it is computable    (work_of)
//!     run the list, if a call needs its results   (needs)
//!     put the node on the list
//! run the list                                    (run)
//!     compute all matmuls at once, then attention (calls::compute)
//!     compute the operations of the CPU           (compute_on_cpu)
//!     or all on the CPU, if the NPU failed      (hand_over)
//! ```
//!
//! llama.cpp hands over several matmuls together: query, key and value of a layer, gate and up of
//! its feed-forward network. They read the same activations, which are then prepared once, and the
//! CPU waits once for all of them.

mod calls;
mod hand_over;

use std::ffi::c_int;
use std::fmt::Display;
use std::sync::Arc;
use std::time::Instant;

use npu_offload::ComputeType;
use serde_json::json;

use self::calls::{GraphFailure, NodeCalls};
use self::hand_over::{can_fall_back, hand_over};
use crate::compute::attention::AttentionNode;
use crate::compute::classify::attention::attention_data;
use crate::compute::classify::{self, NodeQuery};
use crate::compute::matmul::MatmulNode;
use crate::compute::rest;
use crate::compute::runtime::{NO_CPU_BACKEND, Runtime};
use crate::decide::config::SERVE;
use crate::decide::offload::{self, AttentionOffload, MatmulOffload, MatmulQuery, WeightOrigin};
use crate::ggml::abi::{self, status};
use crate::ggml::cpu_ops::CpuStream;
use crate::ggml::footprint::Footprint;
use crate::ggml::log::LogLevel;
use crate::ggml::reason::LeftOnCpu;
use crate::ggml::stream::Stream;
use crate::ggml::tensor_ref::TensorRef;
use crate::weights::node_error::{Consequence, NodeFailure};
use crate::weights::packed_tensor::PackedTensor;

/// Computes nodes; returns a value of [`status`].
///
/// # Safety
/// All nodes and their operands are allocated, and until this returns nobody else accesses their
/// data, except to read operands.
pub(crate) unsafe fn compute(runtime: &Runtime, stream: &Stream, nodes: &[TensorRef<'_>]) -> c_int {
    runtime.weight_context().report();
    let began = Instant::now();
    // SAFETY: the caller's promise is the callee's.
    let computed = unsafe { compute_nodes(runtime, stream, nodes) };
    let status = match computed {
        Ok(()) => status::SUCCESS,
        Err(GraphFailure::Aborted) => status::ABORTED,
        Err(GraphFailure::Node { status, line, .. }) => {
            runtime.stats().failed += 1;
            runtime.log(LogLevel::Error, &line);
            status
        }
    };
    if let Some(trace) = runtime.trace() {
        let args = json!({ "nodes": nodes.len(), "status": status });
        trace.slice("graph", "graph", (began, Instant::now()), args);
        trace.flush();
    }
    status
}

/// Most nodes of a list: each new node is compared with all others. Splits of models have a
/// handful.
const LISTED: usize = 64;

/// Nodes to compute: first matmuls and attention that do not depend on each other, then the other
/// steps in their order, which may depend on any of them.
#[derive(Default)]
struct NodeList<'a> {
    nodes: Vec<TensorRef<'a>>,
    footprints: Vec<Footprint>,
    /// Calls of the engine with the names of their nodes.
    matmuls: Vec<(String, MatmulNode<'a>)>,
    attention: Vec<(String, AttentionNode<'a>)>,
    steps: Vec<AfterCalls<'a>>,
}

/// A step after the calls of a list are computed.
enum AfterCalls<'a> {
    /// The CPU's own backend computes this node.
    Cpu(TensorRef<'a>),
    /// Copies the next outputs of a matmul that were set aside to the data of this node.
    Matmul(TensorRef<'a>),
    /// The same with attention.
    Attention(TensorRef<'a>),
}

/// The work that a node asks for.
enum Offload {
    Matmul(MatmulOffload, Option<Arc<PackedTensor>>),
    Attention(AttentionOffload),
    /// An operation of the CPU.
    OnCpu,
}

/// Computes nodes. Those that do not depend on each other run together.
///
/// # Safety
/// As [`compute`].
unsafe fn compute_nodes(
    runtime: &Runtime,
    stream: &Stream,
    nodes: &[TensorRef<'_>],
) -> Result<(), GraphFailure> {
    let mut list = NodeList::default();
    for &node in nodes {
        if stream.is_aborted() {
            return Err(GraphFailure::Aborted);
        }
        let Some((name, work)) = work_of(runtime, node)? else {
            continue;
        };
        let footprint = Footprint::of(node);
        let footprint = footprint.ok_or_else(|| cannot(&name, NO_DATA))?;
        let needs = |earlier: &Footprint| footprint.needs(earlier);
        let must_follow = !matches!(work, Offload::OnCpu) && list.footprints.iter().any(needs);
        if must_follow || list.footprints.len() >= LISTED {
            // SAFETY: the nodes of the list are allocated, by the caller's promise.
            unsafe { run(runtime, stream, std::mem::take(&mut list)) }?;
        }
        // ggml gives the memory of a result to another node after the last reader is computed.
        let overwrites = |earlier: &Footprint| footprint.overwrites(earlier);
        let is_aside = list.footprints.iter().any(overwrites);
        let place = |outputs| {
            let aside = is_aside.then(|| runtime.row_scratch.floats.take(outputs));
            let aside = aside.transpose().map_err(|error| {
                GraphFailure::of(&name, NodeFailure::from(error), runtime.model.as_ref())
            })?;
            // SAFETY: the footprint is the node's, which is allocated, and nobody else accesses its
            // data except to read operands, by the caller's promise; before the results are there,
            // no node of the list reads or writes what calls of the list write at once.
            let out = unsafe { footprint.output(node, aside) };
            out.ok_or_else(|| cannot(&name, "its output overlaps an operand"))
        };
        let placed = match &work {
            Offload::OnCpu => None,
            Offload::Matmul(offload, _) => Some(place(offload.outputs())),
            Offload::Attention(shape) => Some(place(shape.outputs())),
        };
        let out = placed.transpose().or_else(|failure| {
            hand_over(runtime, stream, failure, &[node])?;
            Ok::<_, GraphFailure>(None)
        })?;
        let step = match (work, out) {
            (Offload::OnCpu, _) | (_, None) => Some(AfterCalls::Cpu(node)),
            (Offload::Matmul(offload, kept), Some(out)) => {
                // SAFETY: `offload` follows from what `classify` returned, and `out` from the
                // footprint. Operands are allocated, and no call of the list writes them, as above.
                let matmul = unsafe { classify::matmul_data(node, offload, out) };
                let mut matmul = matmul.ok_or_else(|| cannot(&name, NO_DATA))?;
                matmul.kept = kept;
                matmul.errors = runtime.verify.next_node();
                list.matmuls.push((name, matmul));
                is_aside.then_some(AfterCalls::Matmul(node))
            }
            (Offload::Attention(shape), Some(out)) => {
                // SAFETY: `shape` follows from what `classify` returned; the rest as above.
                let attention = unsafe { attention_data(node, shape, out) };
                let mut attention = attention.ok_or_else(|| cannot(&name, NO_DATA))?;
                attention.errors = runtime.verify.next_node();
                list.attention.push((name, attention));
                is_aside.then_some(AfterCalls::Attention(node))
            }
        };
        list.steps.extend(step);
        list.nodes.push(node);
        list.footprints.push(footprint);
    }
    // SAFETY: as above.
    unsafe { run(runtime, stream, list) }
}

/// Returns the name of a node and its work; `None` if there is nothing to compute.
fn work_of(
    runtime: &Runtime,
    node: TensorRef<'_>,
) -> Result<Option<(String, Offload)>, GraphFailure> {
    if !node.is_wanted() {
        return Ok(None);
    }
    let name = node.name();
    let is_left = |precision| is_left_to_cpu(runtime, node, precision);
    let work = match classify::classify(node) {
        NodeQuery::NoWork => return Ok(None),
        NodeQuery::MatmulNode(query) => {
            let offload = offload::computable(&query, &runtime.rules);
            let offload = offload.map_err(|reason| cannot(&name, reason))?;
            let kept = kept_weights(runtime, node, &query);
            let refusal = kept.as_ref().and_then(|kept| kept.decision.refusal());
            let has_failed = refusal == Some(LeftOnCpu::Failed) && can_fall_back(runtime, node);
            if has_failed || is_left(offload.precision) {
                Offload::OnCpu
            } else {
                Offload::Matmul(offload, kept.filter(|_| refusal.is_none()))
            }
        }
        NodeQuery::Attention(query) => {
            if is_left(ComputeType::Fp16) {
                Offload::OnCpu
            } else {
                let shape = offload::attention_shape(&query);
                let shape = shape.map_err(|reason| cannot(&name, reason))?;
                Offload::Attention(shape)
            }
        }
        NodeQuery::RowOp { .. } => Offload::OnCpu,
        NodeQuery::Other => {
            let why = format!(
                "this backend declined its operation (supports_op). A server of whole graphs \
                 (ggml-rpc-server) needs {SERVE}=1"
            );
            return Err(cannot(&name, why));
        }
    };
    Ok(Some((name, work)))
}

const NO_DATA: &str = "an operand has no data";

/// A node that cannot be computed.
fn cannot(name: &str, why: impl Display) -> GraphFailure {
    format!("cannot compute {name}: {why}").into()
}

/// Whether the CPU computes `node`, because the NPU rests or computed its precision wrong. ggml asks
/// `supports_op` for each new graph, but a program may compute an existing graph again.
fn is_left_to_cpu(runtime: &Runtime, node: TensorRef<'_>, precision: ComputeType) -> bool {
    let is_left = rest::is_resting(runtime) || !runtime.trusts(precision);
    let is_left = is_left && can_fall_back(runtime, node);
    if is_left {
        runtime.stats().left_to_cpu += 1;
    }
    is_left
}

/// Computes a list.
///
/// # Safety
/// Its nodes and their operands are allocated, and nobody else accesses their data, except to read
/// operands.
unsafe fn run(runtime: &Runtime, stream: &Stream, list: NodeList<'_>) -> Result<(), GraphFailure> {
    let (nodes, steps) = (list.nodes, list.steps);
    let attentions = list.attention.len() as u64;
    let has_calls = !list.matmuls.is_empty() || !list.attention.is_empty();
    let (names, calls): (Vec<_>, _) = list.matmuls.into_iter().unzip();
    let matmuls = calls::compute(&names, NodeCalls::Matmul(calls), runtime, stream);
    let computed = matmuls.and_then(|matmuls| {
        let (names, calls): (Vec<_>, _) = list.attention.into_iter().unzip();
        let attention = calls::compute(&names, NodeCalls::Attention(calls), runtime, stream)?;
        Ok((matmuls.into_iter(), attention.into_iter()))
    });
    if has_calls {
        let consequence = computed.as_ref().err().map(GraphFailure::consequence);
        rest::count_jobs(runtime, consequence);
    }
    let (mut matmuls, mut attention) = match computed {
        Ok(computed) => computed,
        Err(failure) => {
            if failure.consequence() == Consequence::CpuOutOfRange {
                runtime.stats().attention_out_of_range += attentions;
            }
            hand_over(runtime, stream, failure, &nodes)?;
            // The CPU overwrites the NPU's results, which nothing of the list has read.
            return compute_on_cpu(runtime, stream, &nodes);
        }
    };
    // No slice of the nodes' data is left from here on.
    let mut cpu_ops = Vec::new();
    for step in steps {
        let (node, values) = match step {
            AfterCalls::Cpu(node) => {
                cpu_ops.push(node);
                continue;
            }
            AfterCalls::Matmul(node) => (node, matmuls.next()),
            AfterCalls::Attention(node) => (node, attention.next()),
        };
        compute_on_cpu(runtime, stream, &std::mem::take(&mut cpu_ops))?;
        // SAFETY: an allocated node of the list, by the caller's promise; the slice ends here, and
        // no other is left.
        let out = unsafe { node.output() };
        let (Some(values), Some(out)) = (values, out) else {
            return Err("the output of a node is lost".to_owned().into());
        };
        out.copy_from_slice(&values);
        runtime.row_scratch.floats.put(values);
    }
    compute_on_cpu(runtime, stream, &cpu_ops)
}

/// Computes operations on the CPU's own backend, in their order.
fn compute_on_cpu(
    runtime: &Runtime,
    stream: &Stream,
    nodes: &[TensorRef<'_>],
) -> Result<(), GraphFailure> {
    if nodes.is_empty() {
        return Ok(());
    }
    let nodes: Vec<_> = nodes.iter().map(|node| node.as_ptr()).collect();
    // SAFETY: `classify` found operations of allocated tensors, which the CPU computes:
    // `supports_op` asked it about operations, our callers about matmuls. No slice of their data is
    // left, and others keep away by the promise of `compute`'s caller.
    let compute = |cpu: &mut CpuStream| unsafe { cpu.compute(&nodes) };
    match runtime.on_cpu(stream, nodes.len(), compute) {
        Some(status::SUCCESS) => Ok(()),
        Some(status::ABORTED) => Err(GraphFailure::Aborted),
        Some(status) => {
            let line = format!("ggml's CPU backend failed with {status}");
            Err(GraphFailure::node(status, line))
        }
        None => Err(NO_CPU_BACKEND.to_owned().into()),
    }
}

/// Returns where the packed weights of the matmul `node` may be kept, unless the decision about them
/// was negative or was withdrawn. Only buffers that hold weights
/// for good qualify, without weights that are trained or that a graph writes. All other weights are
/// packed for one matmul, with their current data.
fn kept_weights(
    runtime: &Runtime,
    node: TensorRef<'_>,
    matmul: &MatmulQuery,
) -> Option<Arc<PackedTensor>> {
    let weights = node.operand(0)?;
    let is_placed = matches!(
        matmul.origin,
        WeightOrigin::Plain | WeightOrigin::Rearranged
    );
    if weights.has_flag(abi::FLAG_PARAM) || !is_placed {
        return None;
    }
    let buffers = &runtime.weight_buffers;
    let context = runtime.weight_context();
    let decided = buffers.decide_when_used(&context, weights.buffer(), weights);
    decided.ok()
}
