// SPDX-License-Identifier: MIT OR Apache-2.0
//! Classifies the nodes of ggml's graph, and accesses their data.

pub(crate) mod attention;

use std::ops::Range;

use crate::compute::matmul::MatmulNode;
use crate::decide::offload::{AttentionQuery, MatmulOffload, MatmulQuery, WeightOrigin};
use crate::ggml::abi::{self, Buffer, usage};
use crate::ggml::tensor_data::{NodeOutput, TensorData};
use crate::ggml::tensor_ref::TensorRef;

/// Kind of a graph node.
#[derive(Debug)]
pub(crate) enum NodeQuery<'a> {
    /// Nothing to compute: a stored tensor, or a view.
    NoWork,
    MatmulNode(MatmulQuery),
    Attention(AttentionQuery),
    /// An operation of the CPU on the rows of the matmul `node`, which otherwise reads only stored
    /// tensors and inputs.
    RowOp {
        node: TensorRef<'a>,
        matmul: MatmulQuery,
    },
    Other,
}

/// Classifies one node.
pub(crate) fn classify(node: TensorRef<'_>) -> NodeQuery<'_> {
    let ops = node.host.ops;
    let op = node.op();
    if !node.is_computed() {
        return NodeQuery::NoWork;
    }
    if op == ops.flash_attn {
        return attention::query(node).map_or(NodeQuery::Other, NodeQuery::Attention);
    }
    if op != ops.mul_mat && op != ops.mul_mat_id {
        let matmul = matmul_of_rows(node).map(|node| (node, matmul(node)));
        return match matmul {
            Some((node, Some(matmul))) => NodeQuery::RowOp { node, matmul },
            _ => NodeQuery::Other,
        };
    }
    matmul(node).map_or(NodeQuery::Other, NodeQuery::MatmulNode)
}

/// Returns the query for the matmul `node`; `None` if an operand is missing.
fn matmul(node: TensorRef<'_>) -> Option<MatmulQuery> {
    let ids = ids(node);
    if node.op() == node.host.ops.mul_mat_id && ids.is_none() {
        return None;
    }
    let (weights, activations) = (node.operand(0)?, node.operand(1)?);
    Some(MatmulQuery {
        weights: weights.descriptor(),
        origin: origin(weights),
        activations: activations.descriptor(),
        viewed_rows: viewed_rows(activations),
        ids: ids.map(TensorRef::descriptor),
        output: node.descriptor(),
        params: node.fields().op_params,
    })
}

/// Most operations between a matmul and its last row operation: views, bias, norm, scale, position.
const ROW_OPS: usize = 8;

/// Returns the matmul whose rows the operation `node` works on: by positions or biases, or on
/// heads, which are parts of rows. Other norms do not occur between a query's matmul and a value's.
fn matmul_of_rows(node: TensorRef<'_>) -> Option<TensorRef<'_>> {
    let ops = node.host.ops;
    let mut normed = i64::MIN;
    let mut at = node;
    for _ in 0..ROW_OPS {
        let (op, row) = (at.op(), at.ne()[0]);
        if op == ops.mul_mat {
            return (normed < row).then_some(at);
        }
        if !ops.views.contains(&op) {
            if op == ops.rms_norm {
                normed = normed.max(row);
            } else if op != ops.rope && !ops.elementwise.contains(&op) {
                return None;
            }
            let mut others = at.operands().skip(1).flatten();
            if !others.all(|operand| operand.op() == ops.none) {
                return None;
            }
        }
        at = at.operand(0)?;
    }
    None
}

/// The third operand of a matmul whose rows choose their weights.
fn ids(node: TensorRef<'_>) -> Option<TensorRef<'_>> {
    let has_ids = node.op() == node.host.ops.mul_mat_id;
    has_ids.then(|| node.operand(2))?
}

/// Number of rows of the result that `activations` is a view of, if they are longer than its own.
fn viewed_rows(activations: TensorRef<'_>) -> Option<usize> {
    let root = activations.viewed()?;
    let sizes = root.ne();
    if root.op() == root.host.ops.none || sizes[0] <= activations.ne()[0] {
        return None;
    }
    let mut rows = sizes[1..].iter().map(|size| usize::try_from(*size).ok());
    rows.try_fold(1_usize, |rows, size| rows.checked_mul(size?))
}

/// Returns the weights that the operation `node` writes, if its result lies in them: their buffer,
/// the name of the tensor, and its addresses. An operation of ggml writes no other tensor than the
/// one that it is a view of.
pub(crate) fn written_weights(node: TensorRef<'_>) -> Option<(*mut Buffer, String, Range<usize>)> {
    if !node.is_computed() {
        return None;
    }
    let root = node.viewed()?;
    if root.buffer_usage()? != usage::WEIGHTS {
        return None;
    }
    Some((root.buffer(), root.name(), root.range()?))
}

/// Returns the buffer and the addresses that `node` writes; `None` if it computes nothing or has no
/// buffer.
pub(crate) fn written(node: TensorRef<'_>) -> Option<(*mut Buffer, Range<usize>)> {
    if !node.is_computed() || node.buffer().is_null() {
        return None;
    }
    Some((node.buffer(), node.range()?))
}

fn origin(weights: TensorRef<'_>) -> WeightOrigin {
    let ops = weights.host.ops;
    let root = weights.viewed();
    if root.unwrap_or(weights).has_flag(abi::FLAG_INPUT) {
        return WeightOrigin::Input;
    }
    let is_stored = |tensor: TensorRef<'_>| tensor.op() == ops.none;
    let stored = match root {
        None => is_stored(weights),
        Some(root) => is_stored(root) && (is_stored(weights) || ops.views.contains(&weights.op())),
    };
    if !stored {
        return WeightOrigin::Computed;
    }
    let (usage, is_host) = (weights.buffer_usage(), weights.is_in_host_buffer());
    let (Some(usage), Some(is_host)) = (usage, is_host) else {
        return WeightOrigin::Unallocated;
    };
    // llama.cpp asks how much memory a model will take with empty buffers in place of the real
    // ones, of any type. It asks for a place in the same way, but that buffer has no usage yet.
    if weights.buffer_size() == Some(0) {
        match (usage, is_host) {
            (usage::WEIGHTS, _) => return WeightOrigin::Unallocated,
            (_, true) => return WeightOrigin::Asked,
            _ => {}
        }
    }
    match (usage, is_host) {
        (usage::WEIGHTS, true) => WeightOrigin::Plain,
        (usage::WEIGHTS, false) => WeightOrigin::Rearranged,
        (_, true) if weights.is_evident_weight() => WeightOrigin::Plain,
        (_, true) if root.is_some() => WeightOrigin::Cache,
        _ => WeightOrigin::Elsewhere,
    }
}

/// Returns the data of the matmul `node`, which writes `out`; `None` if an operand is missing.
///
/// # Safety
/// [`classify`] returned the matmul that `offload` was computed from, and [`Footprint::output`](crate::ggml::footprint::Footprint::output)
/// this place for its outputs. The operands are allocated, and nobody writes to them during `'a`.
pub(crate) unsafe fn matmul_data<'a>(
    node: TensorRef<'a>,
    offload: MatmulOffload,
    out: NodeOutput<'a>,
) -> Option<MatmulNode<'a>> {
    // SAFETY: an operand, allocated and not written to meanwhile, by the caller's promise.
    let rows = |operand: TensorRef<'a>| unsafe { operand.rows() };
    let weights = node.operand(0)?;
    let weight_rows = if weights.is_readable() {
        rows(weights)?
    } else {
        TensorData {
            tensor: weights.descriptor(),
            bytes: &[],
        }
    };
    let ids = match ids(node) {
        None => None,
        Some(ids) => Some(rows(ids)?),
    };
    Some(MatmulNode {
        offload,
        weights: weight_rows,
        kept: None,
        activations: rows(node.operand(1)?)?,
        ids,
        out,
        errors: None,
    })
}

#[cfg(test)]
pub(crate) mod tests;
