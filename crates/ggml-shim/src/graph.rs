// SPDX-License-Identifier: MIT OR Apache-2.0
//! Computes what ggml hands over of a graph: from its nodes to their results.
//!
//! ```text
//! for each node                                   (compute_nodes)
//!     what is it, can it be computed              (classify, computable)
//!     run the list, if the node needs its results (depends_on)
//!     put the node on the list                    (product)
//! run the list: all of it at once                 (run)
//! ```
//!
//! llama.cpp hands over several products together: key and value of a layer, gate and up of its
//! feed-forward network. They read the same activations, which are then prepared once, and the
//! CPU waits once for all of them.

use std::ffi::c_int;
use std::sync::Arc;
use std::time::Instant;

use serde_json::json;

use crate::abi::{self, Tensor, status};
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
        Err(GraphFailure::Node { status, line }) => {
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
    },
}

impl From<String> for GraphFailure {
    fn from(line: String) -> Self {
        let status = status::FAILED;
        Self::Node { status, line }
    }
}

/// Products that do not depend on each other, in the order of their nodes.
#[derive(Default)]
struct ProductList<'a> {
    names: Vec<String>,
    footprints: Vec<Footprint>,
    products: Vec<MulMat<'a>>,
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
    let mut list = ProductList::default();
    for node in nodes {
        if stream.is_aborted() {
            return Err(GraphFailure::Aborted);
        }
        // SAFETY: live, by the caller's promise.
        let Some((name, query)) = (unsafe { product_query(runtime, *node) })? else {
            continue;
        };
        // SAFETY: live, by the caller's promise.
        let footprint = unsafe { tensor::footprint(&runtime.context(), *node) }
            .ok_or_else(|| format!("cannot compute {name}: an operand has no data"))?;
        if list
            .footprints
            .iter()
            .any(|earlier| footprint.depends_on(earlier))
        {
            run(runtime, stream, std::mem::take(&mut list))?;
        }
        // SAFETY: allocated, and accessed by nobody else but to read operands, by the caller's
        // promise; products of the list neither write what it reads or writes nor read what it
        // writes.
        let product = unsafe { product(runtime, *node, &name, &query) }?;
        list.names.push(name);
        list.footprints.push(footprint);
        list.products.push(product);
    }
    run(runtime, stream, list)
}

/// Name and sizes of the product `node`; `None` if there is nothing to compute.
///
/// # Safety
/// `node` and its operands are live.
unsafe fn product_query(
    runtime: &Runtime,
    node: *const Tensor,
) -> Result<Option<(String, MulMatQuery)>, GraphFailure> {
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
        GraphNode::MulMat(query) => Ok(Some((name, query))),
        GraphNode::Other => {
            let line = format!("asked to compute {name}, an operation that supports_op declines");
            Err(line.into())
        }
    }
}

/// The product `node` with its data.
///
/// # Safety
/// As [`tensor::product_data`]; `query` is what [`tensor::classify`] made of `node`.
unsafe fn product<'a>(
    runtime: &Runtime,
    node: *const Tensor,
    name: &str,
    query: &MulMatQuery,
) -> Result<MulMat<'a>, GraphFailure> {
    let offload = supports::computable(query, &runtime.rules)
        .map_err(|reason| format!("cannot compute {name}: {}", reason.words()))?;
    // SAFETY: the caller's promise is the callee's.
    let product = unsafe { tensor::product_data(&runtime.context(), node, offload) };
    let mut product =
        product.ok_or_else(|| format!("cannot compute {name}: its output overlaps an operand"))?;
    // SAFETY: live, by the caller's promise.
    product.kept = unsafe { kept_weights(runtime, node, query) };
    product.errors = runtime.verify.next_product();
    Ok(product)
}

/// Computes a list.
fn run(runtime: &Runtime, stream: &Stream, list: ProductList<'_>) -> Result<(), GraphFailure> {
    let ProductList {
        names,
        mut products,
        ..
    } = list;
    let Some(first) = names.first() else {
        return Ok(());
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
        let error = failure::explain(error, runtime.model.as_deref());
        let (name, what) = (&names[product], describe(products[product].offload));
        GraphFailure::Node {
            status: match failure::is_out_of_memory(&error) {
                true => status::ALLOC_FAILED,
                false => status::FAILED,
            },
            line: format!("computing {name} ({what}) failed: {error}"),
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
    Ok(())
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
