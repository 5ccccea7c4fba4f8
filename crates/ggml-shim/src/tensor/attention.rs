// SPDX-License-Identifier: MIT OR Apache-2.0
//! Attention: what it is, and its data.

use super::memory::{Footprint, TensorContext, is_readable, output};
use crate::abi::{Tensor, flash_attn};
use crate::attention::{Attention, CachedRows};
use crate::node_output::NodeOutput;
use crate::supports::{AttentionParams, AttentionQuery, AttentionShape};
use crate::tensor_bytes::TensorBytes;

/// What the attention `tensor` is; `None` if queries, keys or values are missing.
///
/// # Safety
/// As [`super::classify`].
pub(super) unsafe fn query(context: &TensorContext<'_>, tensor: &Tensor) -> Option<AttentionQuery> {
    // SAFETY: null or live, by the caller's promise.
    let operands = tensor.src.map(|operand| unsafe { operand.as_ref() });
    // SAFETY: a tensor of the host, by the caller's promise.
    let describe = |operand: &Tensor| unsafe { operand.operand(context.types) };
    let [queries, keys, values, mask, sinks] =
        *operands.first_chunk::<{ flash_attn::OPERANDS }>()?;
    let param = |index: usize| f32::from_bits(tensor.op_params[index].cast_unsigned());
    Some(AttentionQuery {
        queries: describe(queries?),
        keys: describe(keys?),
        values: describe(values?),
        mask: mask.map(describe),
        sinks: sinks.map(describe),
        output: describe(tensor),
        params: AttentionParams {
            scale: param(flash_attn::SCALE),
            max_bias: param(flash_attn::MAX_BIAS),
            softcap: param(flash_attn::SOFTCAP),
        },
        is_readable: operands
            .iter()
            .flatten()
            // SAFETY: live, by the caller's promise.
            .all(|operand| unsafe { is_readable(context, operand) }),
        has_more: operands[flash_attn::OPERANDS..].iter().any(Option::is_some),
    })
}

/// The data of the attention `tensor`; `None` if it is missing, or the output overlaps an operand. With
/// memory `aside` for its outputs, its own is not touched.
///
/// # Safety
/// `tensor` is a live tensor for which [`super::classify`] gave the attention that `shape` was computed
/// from, and [`super::footprint`] this `footprint`; it and its operands are allocated, and during `'a`
/// nobody else writes to any of them, nor reads the output unless outputs are set aside.
pub(crate) unsafe fn attention_data<'a>(
    context: &TensorContext<'_>,
    tensor: *const Tensor,
    (shape, params): (AttentionShape, AttentionParams),
    footprint: &Footprint,
    aside: Option<Vec<f32>>,
) -> Option<Attention<'a>> {
    if footprint.is_in_place() {
        return None;
    }
    // SAFETY: live, by the caller's promise.
    let node: &'a Tensor = unsafe { tensor.as_ref() }?;
    // SAFETY: null or live, by the caller's promise.
    let operand = |index: usize| -> Option<&'a Tensor> { unsafe { node.src[index].as_ref() } };
    let rows = |operand: &'a Tensor| -> Option<TensorBytes<'a>> {
        // SAFETY: a tensor of the host, by the caller's promise.
        let format = unsafe { context.types.format(operand.type_id) };
        // SAFETY: allocated and not written to meanwhile, by the caller's promise.
        unsafe { operand.rows(&format) }
    };
    let cached = |operand: &'a Tensor| -> Option<CachedRows<'a>> {
        Some(CachedRows {
            // SAFETY: a tensor of the host, by the caller's promise.
            decoder: unsafe { context.types.decoder(operand.type_id) }?,
            rows: rows(operand)?,
        })
    };
    let optional = |index: usize| match operand(index) {
        None => Some(None),
        Some(operand) => rows(operand).map(Some),
    };
    let (queries, keys, values) = (
        rows(operand(0)?)?,
        cached(operand(1)?)?,
        cached(operand(2)?)?,
    );
    let (mask, sinks) = (optional(3)?, optional(4)?);
    let out = match aside {
        Some(values) => NodeOutput::Aside(values),
        // SAFETY: by the caller's promise, and it overlaps none of the slices above.
        None => NodeOutput::InPlace(unsafe { output(context, tensor) }?),
    };
    Some(Attention {
        shape,
        params,
        queries,
        keys,
        values,
        mask,
        sinks,
        out,
        errors: None,
    })
}
