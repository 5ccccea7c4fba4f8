// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which attention runs on the NPU: like for matmuls, a pure function of shapes, types and places.
//!
//! ggml's `FLASH_ATTN_EXT` with ggml's dimensions (`ne`, fastest first):
//!
//! ```text
//! queries  [D,  rows, heads,    streams]   F32
//! keys     [D,  keys, kv_heads, kv_streams]
//! values   [DV, keys, kv_heads, kv_streams]
//! mask     [keys, >= rows, divisor of heads, divisor of streams]   F16, optional
//! sinks    [heads]   F32, optional
//! output   [DV, heads, rows, streams]      F32 without gaps
//!
//! s[n]   = slope(head) * mask[n] + cap * tanh(scale / cap * (q . k[n]))    without cap: scale * (q . k[n])
//! output = sum over n of exp(s[n]) * v[n] / (sum over n of exp(s[n]) + exp(sink(head)))
//! ```
//!
//! A row whose keys are all masked gives zeros.

use npu_matmul::attention::AttentionShape;
use npu_offload::{AttentionChoice, FormatClass, OffloadRules};

use crate::ggml::abi::{MAX_DIMS, type_id};
use crate::ggml::reason::DeclineReason;
use crate::ggml::tensor_shape::{TensorShape, check_sizes};

/// Longest head: DeepSeek's, 512 compressed channels and 64 with positions.
const LONGEST_HEAD: usize = 576;

/// The data that the decision depends on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct AttentionQuery {
    /// ggml's src0.
    pub(crate) queries: TensorShape,
    /// ggml's src1.
    pub(crate) keys: TensorShape,
    /// ggml's src2.
    pub(crate) values: TensorShape,
    /// ggml's src3.
    pub(crate) mask: Option<TensorShape>,
    /// ggml's src4.
    pub(crate) sinks: Option<TensorShape>,
    /// ggml's dst.
    pub(crate) output: TensorShape,
    pub(crate) params: AttentionParams,
    /// Whether all operands lie in plain memory, or nowhere yet.
    pub(crate) is_readable: bool,
    /// Whether it has any other operand, or a parameter that is not known.
    pub(crate) has_more: bool,
}

/// Parameters of attention.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct AttentionParams {
    /// Factor of the dot products of queries and keys.
    pub(crate) scale: f32,
    /// Largest slope exponent of ALiBi, which determines each head's slope; 0 for slopes of 1.
    pub(crate) max_bias: f32,
    /// Bound of the scores; 0 for none.
    pub(crate) softcap: f32,
}

/// Dimensions of attention, see the module's picture, and its parameters. No dimension is zero.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct AttentionOffload {
    /// Sizes of one sequence.
    pub(crate) batch: AttentionShape,
    /// Sequences.
    pub(crate) streams: usize,
    /// Sequences of keys and values, each shared by equally many of the queries.
    pub(crate) kv_streams: usize,
    /// Heads and streams of the mask; 1 without one.
    pub(crate) mask: [usize; 2],
    pub(crate) params: AttentionParams,
}

impl AttentionOffload {
    pub(crate) fn outputs(&self) -> usize {
        let batch = &self.batch;
        batch.rows * batch.heads * self.streams * batch.value_dim
    }

    /// The sequence of keys and values that queries of `stream` use.
    pub(crate) fn kv_stream(&self, stream: usize) -> usize {
        stream / (self.streams / self.kv_streams)
    }
}

/// Decides about attention that ggml asks about.
pub(crate) fn decide_attention(
    query: &AttentionQuery,
    rules: &OffloadRules,
) -> Result<AttentionOffload, DeclineReason> {
    let shape = attention_shape(query)?;
    match rules.fewest_attention_rows(shape.batch) {
        Some(fewest) if shape.batch.rows >= fewest => Ok(shape),
        Some(_) => Err(DeclineReason::AttentionRows),
        None if rules.attention == AttentionChoice::Never => Err(DeclineReason::AttentionOff),
        None => Err(DeclineReason::AttentionSlower),
    }
}

/// Whether attention can be computed at all, whatever its gain. `graph_compute` relies on it.
pub(crate) fn attention_shape(query: &AttentionQuery) -> Result<AttentionOffload, DeclineReason> {
    if query.has_more || !query.params.are_finite() {
        return Err(DeclineReason::AttentionKind);
    }
    // Keys and values of any type that is decoded.
    let operands = [
        (Some(query.queries), Some(type_id::F32)),
        (Some(query.keys), None),
        (Some(query.values), None),
        (query.mask, Some(type_id::F16)),
        (query.sinks, Some(type_id::F32)),
    ];
    let has_type = |(operand, id): &(Option<TensorShape>, Option<u32>)| {
        operand.is_none_or(|operand| match id {
            Some(id) => operand.format.number.id == *id,
            None => operand.format.number.class != FormatClass::Other,
        })
    };
    if !operands.iter().all(has_type) {
        return Err(DeclineReason::AttentionType);
    }
    let shape = shape(query)?;
    let batch = &shape.batch;
    let (d, dv) = (batch.head_dim, batch.value_dim);
    // Of queries, keys, values, mask and sinks.
    let mut rows = operands.iter().zip([d, d, dv, batch.keys, batch.heads]);
    let has_rows = rows.all(|((operand, _), len)| operand.is_none_or(|it| it.has_rows(len)));
    if !has_rows || !query.output.is_packed() {
        return Err(DeclineReason::NotContiguous);
    }
    if !query.is_readable {
        return Err(DeclineReason::AttentionPlace);
    }
    Ok(shape)
}

fn shape(query: &AttentionQuery) -> Result<AttentionOffload, DeclineReason> {
    let [d, rows, heads, streams] = query.queries.dimensions()?;
    let [d_of_keys, keys, kv_heads, kv_streams] = query.keys.dimensions()?;
    let values = query.values.dimensions()?;
    let dv = values[0];
    let fits = d == d_of_keys
        && values[1..] == [keys, kv_heads, kv_streams]
        && heads.is_multiple_of(kv_heads)
        && streams.is_multiple_of(kv_streams)
        && query.output.dimensions()? == [dv, heads, rows, streams];
    // A mask may have more rows: older versions of llama.cpp pad it.
    let masks = |[n, m, x, y]: [usize; MAX_DIMS]| {
        n == keys && m >= rows && heads.is_multiple_of(x) && streams.is_multiple_of(y)
    };
    let mask = query.mask.map(|mask| mask.dimensions()).transpose()?;
    let fits_sinks = query.sinks.map_or(Ok(true), |sinks| {
        sinks.dimensions().map(|sizes| sizes == [heads, 1, 1, 1])
    })?;
    if !fits || !mask.is_none_or(masks) || !fits_sinks {
        return Err(DeclineReason::Dimensions);
    }
    if d > LONGEST_HEAD || dv > LONGEST_HEAD {
        return Err(DeclineReason::AttentionHead);
    }
    check_sizes([
        [rows, d.max(dv), heads, streams],
        [keys, d.max(dv), kv_heads, kv_streams],
        [rows, keys, heads, streams],
    ])?;
    Ok(AttentionOffload {
        batch: AttentionShape {
            heads,
            kv_heads,
            rows,
            keys,
            head_dim: d,
            value_dim: dv,
            window: None,
        },
        streams,
        kv_streams,
        mask: mask.map_or([1, 1], |[_, _, heads, streams]| [heads, streams]),
        params: query.params,
    })
}

impl AttentionParams {
    fn are_finite(self) -> bool {
        [self.scale, self.max_bias, self.softcap]
            .iter()
            .all(|number| number.is_finite())
    }

    /// The slope of each head, by which its mask is multiplied; `None` if all are 1. ALiBi's slopes
    /// are a geometric sequence over the heads up to a power of two; the heads above take the terms
    /// between.
    pub(crate) fn slopes(self, heads: usize) -> Option<Vec<f32>> {
        if self.max_bias <= 0.0 {
            return None;
        }
        let below = 1_usize << heads.ilog2();
        let base = |bias: f32| (-f64::from(bias) / below as f64).exp2();
        let (even, odd) = (base(self.max_bias), base(self.max_bias / 2.0));
        let slope = |head: usize| {
            let exponent = |steps: usize| i32::try_from(steps).unwrap_or(i32::MAX);
            let slope = if head < below {
                even.powi(exponent(head + 1))
            } else {
                odd.powi(exponent(2 * (head - below) + 1))
            };
            slope as f32
        };
        Some((0..heads).map(slope).collect())
    }
}
