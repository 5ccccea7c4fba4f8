// SPDX-License-Identifier: MIT OR Apache-2.0
//! Computes what ggml hands over of a graph: from its nodes to their results.
//!
//! ```text
//! for each node                                   (compute_nodes)
//!     what is it, can it be computed              (work_of, product)
//!     run the list, if a product needs its results  (needs)
//!     put the node on the list
//! run the list                                    (run)
//!     all of its products at once                 (multiply)
//!     then its operations of the CPU              (compute_on_cpu)
//!     or all of it on the CPU, if the NPU computed a precision wrong
//! ```
//!
//! llama.cpp hands over several products together: query, key and value of a layer, gate and up of
//! its feed-forward network. They read the same activations, which are then prepared once, and the
//! CPU waits once for all of them.

use std::ffi::c_int;
use std::sync::Arc;
use std::time::Instant;

use serde_json::json;

use crate::abi::{self, Tensor, status};
use crate::cpu_ops::CpuStream;
use crate::failure;
use crate::log::LogLevel;
use crate::mul_mat::{self, KeptWeights, MulMat, ProductError};
use crate::runtime::Runtime;
use crate::stream::Stream;
use crate::supports::{self, MulMatQuery, Offload, Shape};
use crate::tensor::{self, Footprint, GraphNode};
use crate::trace::{Trace, TracedList};

/// Computes nodes; what it returns is of [`status`].
///
/// # Safety
/// The nodes are those of a live graph, with their operands and buffers; all are allocated, and
/// nobody else accesses their data until this returns but to read operands.
pub(crate) unsafe fn compute(runtime: &Runtime, stream: &Stream, nodes: &[*const Tensor]) -> c_int {
    runtime.report_weights();
    let began = Instant::now();
    // SAFETY: the caller's promise is the callee's.
    let computed = unsafe { compute_nodes(runtime, stream, nodes) };
    let status = match computed {
        Ok(()) => status::SUCCESS,
        Err(GraphFailure::Aborted) => status::ABORTED,
        Err(GraphFailure::Node { status, line, .. }) => {
            runtime.stats.failed();
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

/// Why a graph has no results.
#[derive(Debug)]
enum GraphFailure {
    /// The program asked to stop.
    Aborted,
    /// A node failed.
    Node {
        /// Of [`status`], for ggml.
        status: c_int,
        /// A sentence that names the node, for people.
        line: String,
        /// Whether the NPU is not trusted with the node's precision any more.
        distrusted: bool,
    },
}

impl GraphFailure {
    const fn node(status: c_int, line: String) -> Self {
        let distrusted = false;
        Self::Node {
            status,
            line,
            distrusted,
        }
    }
}

impl From<String> for GraphFailure {
    fn from(line: String) -> Self {
        Self::node(status::FAILED, line)
    }
}

/// Most nodes of a list: each is compared with all that are on it. Splits of models have a handful.
const LISTED: usize = 64;

/// Nodes to compute: first products that do not depend on each other, then the other steps in their
/// order, which may depend on any of them.
#[derive(Default)]
struct NodeList<'a> {
    /// All of them, in their order.
    nodes: Vec<*mut Tensor>,
    footprints: Vec<Footprint>,
    names: Vec<String>,
    products: Vec<MulMat<'a>>,
    steps: Vec<Step>,
}

/// What is done when the products of a list are there.
enum Step {
    /// The CPU's own backend computes this node.
    Cpu(*mut Tensor),
    /// The outputs of this product, which are set aside, go where they belong: to the data of this
    /// node.
    Place(usize, *const Tensor),
}

/// Computes nodes, as many at once as do not depend on each other.
///
/// # Safety
/// As [`compute`].
unsafe fn compute_nodes(
    runtime: &Runtime,
    stream: &Stream,
    nodes: &[*const Tensor],
) -> Result<(), GraphFailure> {
    let mut list = NodeList::default();
    for node in nodes {
        if stream.is_aborted() {
            return Err(GraphFailure::Aborted);
        }
        // SAFETY: live, by the caller's promise.
        let Some((name, query)) = (unsafe { work_of(runtime, *node) })? else {
            continue;
        };
        // SAFETY: live, by the caller's promise.
        let footprint = unsafe { tensor::footprint(&runtime.context(), *node) }
            .ok_or_else(|| format!("cannot compute {name}: an operand has no data"))?;
        if list.footprints.len() >= LISTED {
            // SAFETY: the nodes of the list are live and allocated, by the caller's promise.
            unsafe { run(runtime, stream, std::mem::take(&mut list)) }?;
        }
        let Some(query) = query else {
            list.nodes.push(node.cast_mut());
            list.steps.push(Step::Cpu(node.cast_mut()));
            list.footprints.push(footprint);
            continue;
        };
        if list
            .footprints
            .iter()
            .any(|earlier| footprint.needs(earlier))
        {
            // SAFETY: as above.
            unsafe { run(runtime, stream, std::mem::take(&mut list)) }?;
        }
        // ggml gives the memory of a result to another node when the last reader was computed.
        let overwrites = |earlier: &Footprint| footprint.overwrites(earlier);
        let is_aside = list.footprints.iter().any(overwrites);
        // SAFETY: allocated, and accessed by nobody else but to read operands, by the caller's
        // promise; what products of the list write at once no node of the list reads or writes
        // before they are there.
        let product = unsafe { product(runtime, *node, &name, &query, &footprint, is_aside) }?;
        if is_aside {
            list.steps.push(Step::Place(list.products.len(), *node));
        }
        list.nodes.push(node.cast_mut());
        list.names.push(name);
        list.footprints.push(footprint);
        list.products.push(product);
    }
    // SAFETY: as above.
    unsafe { run(runtime, stream, list) }
}

/// Name of a node, and its sizes if it is a product for the NPU, not an operation of the CPU; `None`
/// if there is nothing to compute.
///
/// # Safety
/// As [`tensor::classify`].
unsafe fn work_of(
    runtime: &Runtime,
    node: *const Tensor,
) -> Result<Option<(String, Option<MulMatQuery>)>, GraphFailure> {
    // SAFETY: null or live, by the caller's promise.
    let tensor = unsafe { node.as_ref() };
    let flags = tensor.map_or(0, |tensor| tensor.flags);
    if runtime.host.marks_computed_nodes() && flags & abi::FLAG_COMPUTE == 0 {
        return Ok(None);
    }
    let name = tensor.map_or_else(String::new, Tensor::name);
    // SAFETY: live, by the caller's promise.
    match unsafe { tensor::classify(&runtime.context(), node) } {
        GraphNode::NoWork => Ok(None),
        GraphNode::MulMat(query) => {
            // SAFETY: as above.
            let left = unsafe { is_left_to_cpu(runtime, node, &query) };
            Ok(Some((name, (!left).then_some(query))))
        }
        GraphNode::RowOp { .. } => Ok(Some((name, None))),
        GraphNode::Other => {
            let line = format!("asked to compute {name}, an operation that supports_op declines");
            Err(line.into())
        }
    }
}

/// Whether the CPU computes the product `node`, since the NPU computed its precision wrong. ggml asks
/// `supports_op` for each new graph, but a program may compute the graph that it has again.
///
/// # Safety
/// `node` is a live tensor with live operands, of which [`tensor::classify`] made `query`.
unsafe fn is_left_to_cpu(runtime: &Runtime, node: *const Tensor, query: &MulMatQuery) -> bool {
    let offload = supports::computable(query, &runtime.rules);
    let distrusted = offload.is_ok_and(|offload| !runtime.trusts(offload.precision));
    // SAFETY: the caller's promise is the callee's.
    let left = distrusted && unsafe { runtime.cpu.computes(node) };
    if left {
        runtime.stats.left_to_cpu(1);
    }
    left
}

/// The product `node` with its data; with memory of its own for the outputs if these are set aside.
///
/// # Safety
/// As [`tensor::product_data`]; `query` is what [`tensor::classify`] made of `node`.
unsafe fn product<'a>(
    runtime: &Runtime,
    node: *const Tensor,
    name: &str,
    query: &MulMatQuery,
    footprint: &Footprint,
    is_aside: bool,
) -> Result<MulMat<'a>, GraphFailure> {
    let offload = supports::computable(query, &runtime.rules)
        .map_err(|reason| format!("cannot compute {name}: {}", reason.words()))?;
    let aside = match is_aside {
        false => None,
        true => Some(
            runtime
                .row_scratch
                .aside(offload.outputs())
                .map_err(|error| {
                    let line = format!("computing {name} failed: {error}");
                    GraphFailure::node(status::ALLOC_FAILED, line)
                })?,
        ),
    };
    // SAFETY: the caller's promise is the callee's.
    let product =
        unsafe { tensor::product_data(&runtime.context(), node, offload, footprint, aside) };
    let mut product =
        product.ok_or_else(|| format!("cannot compute {name}: its output overlaps an operand"))?;
    // SAFETY: live, by the caller's promise.
    product.kept = unsafe { kept_weights(runtime, node, query) };
    product.errors = runtime.verify.next_product();
    Ok(product)
}

/// Computes a list.
///
/// # Safety
/// Its nodes are live and allocated, and nobody else accesses their data but to read operands.
unsafe fn run(runtime: &Runtime, stream: &Stream, list: NodeList<'_>) -> Result<(), GraphFailure> {
    // SAFETY: live, by the caller's promise.
    let is_for_cpu = |node: &*mut Tensor| unsafe { runtime.cpu.computes(*node) };
    let products = match multiply(runtime, stream, &list.names, list.products) {
        Err(GraphFailure::Node {
            line,
            distrusted: true,
            ..
        }) if list.nodes.iter().all(is_for_cpu) => {
            runtime.log(LogLevel::Error, &format!("{line}. The CPU computes it"));
            runtime.stats.left_to_cpu(list.names.len() as u64);
            // What the NPU has written is written again: nothing of the list has read it.
            return compute_on_cpu(runtime, stream, &list.nodes);
        }
        products => products?,
    };
    // No slice of the nodes' data is left, but of what is set aside.
    let mut aside: Vec<_> = products
        .into_iter()
        .map(|product| product.out.aside())
        .collect();
    let mut cpu_ops = Vec::new();
    for step in list.steps {
        match step {
            Step::Cpu(node) => cpu_ops.push(node),
            Step::Place(product, node) => {
                compute_on_cpu(runtime, stream, &std::mem::take(&mut cpu_ops))?;
                let values = aside.get_mut(product).and_then(Option::take);
                // SAFETY: an allocated product's node, by the caller's promise; the slice ends
                // here, and no other is left.
                let out = unsafe { tensor::output(&runtime.context(), node) };
                let (Some(values), Some(out)) = (values, out) else {
                    return Err("a product's output is lost".to_owned().into());
                };
                out.copy_from_slice(&values);
                runtime.row_scratch.put_aside(values);
            }
        }
    }
    compute_on_cpu(runtime, stream, &cpu_ops)
}

/// Has the CPU's own backend compute operations, in their order.
fn compute_on_cpu(
    runtime: &Runtime,
    stream: &Stream,
    nodes: &[*mut Tensor],
) -> Result<(), GraphFailure> {
    if nodes.is_empty() {
        return Ok(());
    }
    let began = Instant::now();
    // SAFETY: `classify` found operations of live and allocated tensors, which the CPU computes:
    // `supports_op` asked it about operations, our callers about products. No slice of their data is
    // left, and others keep away by the promise of `compute`'s caller.
    let compute = |cpu: &mut CpuStream, threads| unsafe { cpu.compute(nodes, threads) };
    let status = stream.on_cpu(|| runtime.cpu.stream(), compute);
    if let Some(trace) = runtime.trace() {
        let span = (began, Instant::now());
        trace.slice("cpu", "CPU", span, json!({ "nodes": nodes.len() }));
    }
    match status {
        Some(status::SUCCESS) => Ok(()),
        Some(status) => {
            let line = format!("ggml's CPU backend failed with {status}");
            Err(GraphFailure::node(status, line))
        }
        None => Err("cannot make a CPU backend: out of memory?"
            .to_owned()
            .into()),
    }
}

/// Computes products that do not depend on each other.
fn multiply<'a>(
    runtime: &Runtime,
    stream: &Stream,
    names: &[String],
    mut products: Vec<MulMat<'a>>,
) -> Result<Vec<MulMat<'a>>, GraphFailure> {
    let Some(first) = names.first() else {
        return Ok(products);
    };
    let engine = runtime
        .engine()
        .ok_or_else(|| format!("cannot compute {first}: the process is ending"))?;
    let began = Instant::now();
    let number = runtime.trace().map_or(0, Trace::next_list);
    let computed = loop {
        let computed = stream.run(|| {
            let _computing = TracedList::new(number);
            mul_mat::compute(&engine, &runtime.row_scratch, &mut products)
        });
        match computed {
            // Each time less is left that may be wrong.
            Err(ProductError { product, error }) if failure::may_run_again(&error) => {
                let line = format!("computing {} again: {error}", names[product]);
                runtime.log(LogLevel::Warn, &line);
                for errors in products
                    .iter_mut()
                    .filter_map(|product| product.errors.as_mut())
                {
                    *errors = Default::default();
                }
            }
            computed => break computed,
        }
    };
    if let Some(trace) = runtime.trace() {
        let span = (began, Instant::now());
        let category = if computed.is_ok() {
            "product"
        } else {
            "failed product"
        };
        for (name, product) in names.iter().zip(&products) {
            let Offload {
                shape, precision, ..
            } = product.offload;
            let args = json!({
                "list": number,
                "rows": product.offload.rows(),
                "k": shape.k,
                "n": shape.n,
                "precision": precision.name(),
            });
            trace.slice(category, name, span, args);
        }
    }
    computed.map_err(|ProductError { product, error }| {
        let distrusted = failure::is_distrusted(&error);
        let error = failure::explain(error, runtime.model.as_deref());
        let (name, what) = (&names[product], describe(products[product].offload));
        GraphFailure::Node {
            status: match failure::is_out_of_memory(&error) {
                true => status::ALLOC_FAILED,
                false => status::FAILED,
            },
            line: format!("computing {name} ({what}) failed: {error}"),
            distrusted,
        }
    })?;
    runtime.stats.list();
    for (name, product) in names.iter().zip(&products) {
        let offload = product.offload;
        if let Some(errors) = product.errors {
            let what = describe(offload);
            let line = format!("verified {name} ({what}): NMSE {:.3e}", errors.nmse());
            runtime.log(LogLevel::Info, &line);
        }
        let macs = offload.outputs() as u64 * offload.shape.k as u64;
        runtime.stats.computed(offload.precision, macs);
    }
    Ok(products)
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
) -> Option<KeptWeights> {
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
    Some(KeptWeights {
        residents: Arc::clone(&buffers.get(owner)?.residents),
        decision: Some(decision),
    })
}
