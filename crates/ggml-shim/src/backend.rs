// SPDX-License-Identifier: MIT OR Apache-2.0
//! The backend object (ggml's word for a stream): computes graphs.
//!
//! ggml makes one per context and may compute on several at once; all share
//! the engine of [`crate::runtime`].

use std::ffi::{c_char, c_int};
use std::sync::Arc;
use std::time::Instant;

use serde_json::{Value, json};

use crate::abi::{self, Backend, Graph, Tensor, status};
use crate::budget::WeightDecision;
use crate::device;
use crate::failure;
use crate::log::LogLevel;
use crate::mul_mat;
use crate::runtime::{Runtime, guard};
use crate::stream::Stream;
use crate::supports::{self, MulMatQuery, Offload, Shape};
use crate::tensor::{self, GraphNode};
use crate::trace::{Trace, TracedProduct};
use crate::weight_buffers::WeightBuffer;

/// Tells our backends from others; a random number, like everybody's.
pub(crate) static GUID: [u8; 16] = [
    0x1d, 0x8e, 0x52, 0x07, 0xa3, 0x4c, 0x4b, 0x9f, 0x86, 0x30, 0xe7, 0x75, 0x0c, 0xd2, 0x61, 0xfa,
];

pub(crate) unsafe extern "C" fn name(_backend: *mut Backend) -> *const c_char {
    device::own_name()
}

pub(crate) unsafe extern "C" fn free(backend: *mut Backend) {
    guard("free", (), |runtime| {
        if !backend.is_null() {
            // SAFETY: ggml frees a backend that `init_backend` made, once.
            unsafe { runtime.host.layout().free_backend(backend) };
        }
    });
}

/// What the program set on `backend`; `None` for null.
///
/// # Safety
/// `backend` is null or a backend of ours, and not freed during `'a`.
pub(crate) unsafe fn stream<'a>(runtime: &Runtime, backend: *mut Backend) -> Option<&'a Stream> {
    if backend.is_null() {
        return None;
    }
    // SAFETY: not null, hence made by `init_backend` with the same layout.
    Some(unsafe { runtime.host.layout().stream(backend) })
}

pub(crate) unsafe extern "C" fn graph_compute(backend: *mut Backend, graph: *mut Graph) -> c_int {
    guard("graph_compute", status::FAILED, |runtime| {
        runtime.report_weights();
        // SAFETY: ggml passes a live backend of ours, and waits.
        let Some(stream) = (unsafe { stream(runtime, backend) }) else {
            return status::FAILED;
        };
        // SAFETY: ggml passes a live graph and waits for the result.
        let nodes = unsafe { runtime.host.nodes(graph) };
        let began = Instant::now();
        // SAFETY: as above.
        let status = unsafe { compute_nodes(runtime, stream, &nodes) };
        if let Some(trace) = runtime.trace() {
            let args = json!({ "nodes": nodes.len(), "status": status });
            trace.slice("graph", "graph", (began, Instant::now()), args);
            trace.flush();
        }
        status
    })
}

/// Computes nodes one after the other; what it says is of [`status`].
///
/// # Safety
/// The nodes are those of a live graph.
unsafe fn compute_nodes(runtime: &Runtime, stream: &Stream, nodes: &[*const Tensor]) -> c_int {
    for node in nodes {
        if stream.is_aborted() {
            return status::ABORTED;
        }
        // SAFETY: the nodes of a live graph, with their operands and buffers,
        // are live and allocated when the graph is computed; ggml orders the
        // accesses to their data.
        if let Err(failure) = unsafe { compute(runtime, stream, *node) } {
            runtime.stats.failed();
            runtime.log(LogLevel::Error, &failure.line);
            return failure.status;
        }
    }
    status::SUCCESS
}

/// Why a node has no result.
#[derive(Debug)]
struct NodeFailure {
    /// Of [`status`], for ggml.
    status: c_int,
    /// A sentence, for people.
    line: String,
}

impl From<String> for NodeFailure {
    fn from(line: String) -> Self {
        let status = status::FAILED;
        Self { status, line }
    }
}

/// Computes one node.
///
/// # Safety
/// `node` is a live tensor of the host, it and its operands are allocated, and
/// nobody else accesses their data meanwhile but to read the operands.
unsafe fn compute(
    runtime: &Runtime,
    stream: &Stream,
    node: *const Tensor,
) -> Result<(), NodeFailure> {
    // SAFETY: null or live, by the caller's promise.
    let flags = unsafe { node.as_ref() }.map_or(0, |node| node.flags);
    if runtime.host.marks_computed_nodes() && flags & abi::FLAG_COMPUTE == 0 {
        return Ok(());
    }
    // SAFETY: live, by the caller's promise.
    match unsafe { tensor::classify(&runtime.context(), node) } {
        GraphNode::NoWork => Ok(()),
        // SAFETY: as above; `classify` found a product.
        GraphNode::MulMat(product) => unsafe { compute_product(runtime, stream, node, &product) },
        GraphNode::Other => {
            let line = "asked to compute an operation that supports_op declines";
            Err(line.to_owned().into())
        }
    }
}

/// Computes the product `node`.
///
/// # Safety
/// As [`compute`], and `product` is what [`tensor::classify`] made of `node`.
unsafe fn compute_product(
    runtime: &Runtime,
    stream: &Stream,
    node: *const Tensor,
    product: &MulMatQuery,
) -> Result<(), NodeFailure> {
    // SAFETY: live, by the caller's promise.
    let name = unsafe { node.as_ref() }.map_or_else(String::new, Tensor::name);
    let offload = supports::computable(product, &runtime.rules)
        .map_err(|reason| format!("cannot compute {name}: {}", reason.words()))?;
    let engine = runtime
        .engine()
        .ok_or_else(|| format!("cannot compute {name}: the process is ending"))?;
    // SAFETY: live, by the caller's promise, and so are its operands.
    let kept = unsafe { kept_weights(runtime, node, product) };
    let began = Instant::now();
    let number = runtime.trace().map_or(0, Trace::next_product);
    // SAFETY: allocated, and accessed by nobody else but to read the operands,
    // by the caller's promise; `offload` comes from the product of `node`.
    let computed = unsafe {
        tensor::with_data(&runtime.context(), node, offload, |mul_mat| {
            mul_mat.errors = runtime.verify.next_product();
            let (entry, decision) = kept.unzip();
            mul_mat.decision = decision;
            let residents = entry.as_deref().map(|entry| &entry.residents);
            let errors = mul_mat.errors;
            loop {
                let computed = stream.run(|| {
                    let _computing = TracedProduct::product(number);
                    mul_mat::compute(&*engine, residents, mul_mat)
                });
                match computed {
                    // Each time less is left that may be wrong.
                    Err(error) if failure::may_run_again(&error) => {
                        let line = format!("computing {name} again: {error}");
                        runtime.log(LogLevel::Warn, &line);
                        mul_mat.errors = errors;
                    }
                    computed => break computed.map(|()| mul_mat.errors),
                }
            }
        })
    };
    if let Some(trace) = runtime.trace() {
        let span = (began, Instant::now());
        let category = match computed {
            Some(Ok(_)) => "product",
            _ => "failed product",
        };
        trace.slice(category, &name, span, arguments(number, offload));
    }
    match computed {
        Some(Ok(errors)) => {
            if let Some(errors) = errors {
                let what = describe(offload);
                let line = format!("verified {name} ({what}): NMSE {:.3e}", errors.nmse());
                runtime.log(LogLevel::Info, &line);
            }
            let macs = offload.outputs() as u64 * offload.shape.k as u64;
            runtime.stats.computed(offload.precision, macs);
            Ok(())
        }
        Some(Err(error)) => {
            let error = failure::explain(error, runtime.model.as_deref());
            let what = describe(offload);
            Err(NodeFailure {
                status: match failure::is_out_of_memory(&error) {
                    true => status::ALLOC_FAILED,
                    false => status::FAILED,
                },
                line: format!("computing {name} ({what}) failed: {error}"),
            })
        }
        None => Err(format!(
            "cannot compute {name}: an operand has no data, or overlaps the output"
        )
        .into()),
    }
}

/// Sizes and precision, for the trace.
fn arguments(number: u64, offload: Offload) -> Value {
    json!({
        "product": number,
        "rows": offload.rows(),
        "k": offload.shape.k,
        "n": offload.shape.n,
        "precision": offload.precision.name(),
    })
}

/// Sizes and precision, for people.
fn describe(offload: Offload) -> String {
    let Shape { n, k, .. } = offload.shape;
    let rows = offload.rows();
    let precision = offload.precision.name();
    format!("{rows} x {k} times {k} x {n}, {precision}")
}

/// Where the packed weights of the product `node` may be kept, and the yes to that: only for
/// buffers that hold weights for good, and neither while they are trained nor where a graph writes
/// them. Others are packed for one product, as they are now.
///
/// # Safety
/// `node` is a live tensor, and so are its operands and their buffers; `product` is what
/// [`tensor::classify`] made of it.
unsafe fn kept_weights(
    runtime: &Runtime,
    node: *const Tensor,
    product: &MulMatQuery,
) -> Option<(Arc<WeightBuffer>, Arc<WeightDecision>)> {
    // SAFETY: live, by the caller's promise.
    let node = unsafe { node.as_ref() }?;
    // SAFETY: an operand of a live tensor, by the caller's promise.
    let weights = unsafe { node.src[0].as_ref() }?;
    // SAFETY: live, by the caller's promise.
    let owner = unsafe { tensor::buffer_of(weights) };
    if owner.is_null() || weights.flags & abi::FLAG_PARAM != 0 {
        return None;
    }
    // SAFETY: not null, hence live, by the caller's promise.
    if unsafe { runtime.host.buffer_usage(owner) } != abi::usage::WEIGHTS {
        return None;
    }
    let buffers = &runtime.weight_buffers;
    let decision = buffers.decide_when_used(runtime, owner, weights, &product.weights);
    let decision = decision.ok().filter(|decision| decision.is_yes())?;
    Some((buffers.get(owner)?, decision))
}
