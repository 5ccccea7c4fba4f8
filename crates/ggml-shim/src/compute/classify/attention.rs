// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads attention nodes and their data.

use crate::compute::attention::AttentionNode;
use crate::decide::offload::{AttentionOffload, AttentionParams, AttentionQuery};
use crate::ggml::abi::{flash_attn, prec};
use crate::ggml::tensor_data::{NodeOutput, TensorData};
use crate::ggml::tensor_ref::TensorRef;

/// Returns the query for the attention `node`; `None` if queries, keys or values are missing.
pub(super) fn query(node: TensorRef<'_>) -> Option<AttentionQuery> {
    let operands: Vec<_> = node.operands().collect();
    let [queries, keys, values, mask, sinks] =
        *operands.first_chunk::<{ flash_attn::OPERANDS }>()?;
    let param = |index: usize| f32::from_bits(node.fields().op_params[index].cast_unsigned());
    Some(AttentionQuery {
        queries: queries?.descriptor(),
        keys: keys?.descriptor(),
        values: values?.descriptor(),
        mask: mask.map(TensorRef::descriptor),
        sinks: sinks.map(TensorRef::descriptor),
        output: node.descriptor(),
        params: AttentionParams {
            scale: param(flash_attn::SCALE),
            max_bias: param(flash_attn::MAX_BIAS),
            softcap: param(flash_attn::SOFTCAP),
        },
        is_readable: operands
            .iter()
            .flatten()
            .all(|operand| operand.is_readable()),
        has_more: operands[flash_attn::OPERANDS..].iter().any(Option::is_some)
            || !are_known(&node.fields().op_params),
    })
}

/// Whether the parameters that do not shape the result are known, and all others are zero.
fn are_known(params: &[i32]) -> bool {
    let mut others = params.iter().enumerate().skip(flash_attn::SUMS);
    others.all(|(word, param)| match word {
        flash_attn::SUMS => [prec::UNDEFINED, prec::F32].contains(param),
        flash_attn::MOST_KEYS => true,
        _ => *param == 0,
    })
}

/// Returns the data of the attention `node`, which writes `out`; `None` if an operand is missing.
///
/// # Safety
/// [`super::classify`] returned the attention that `shape` was computed from, and
/// [`Footprint::output`](crate::ggml::footprint::Footprint::output) this place for its outputs. The operands are
/// allocated, and nobody writes to them during `'a`.
pub(crate) unsafe fn attention_data<'a>(
    node: TensorRef<'a>,
    shape: AttentionOffload,
    out: NodeOutput<'a>,
) -> Option<AttentionNode<'a>> {
    // SAFETY: an operand, allocated and not written to meanwhile, by the caller's promise.
    let rows = |operand: TensorRef<'a>| -> Option<TensorData<'a>> { unsafe { operand.rows() } };
    let required = |index: usize| rows(node.operand(index)?);
    let optional = |index: usize| match node.operand(index) {
        None => Some(None),
        Some(operand) => rows(operand).map(Some),
    };
    Some(AttentionNode {
        shape,
        queries: required(0)?,
        keys: required(1)?,
        values: required(2)?,
        mask: optional(3)?,
        sinks: optional(4)?,
        out,
        errors: None,
    })
}
