// SPDX-License-Identifier: MIT OR Apache-2.0
//! Turns ggml's attention into calls of the engine, all of a list at once.
//!
//! ```text
//! for each attention of the list
//!     round keys and values to FP16, unless they are FP16    (once if values are part of keys)
//!     make a call for each of its streams
//! compute all calls                                         (the engine packs, tiles, does softmax)
//! scale the outputs back, if values were scaled
//! ```

use std::borrow::Cow;

use half::f16;
use npu_matmul::attention::{AttentionCall, AttentionShape, HeadRows, reference};
use npu_matmul::{AbortCheck, Engine, Section};
use rayon::prelude::*;
use zerocopy::FromBytes;

use crate::compute::matmul::RowScratch;
use crate::decide::offload::AttentionOffload;
use crate::ggml::abi::type_id;
use crate::ggml::tensor_data::{NodeOutput, TensorData};
use crate::weights::node_error::{FailedNode, NodeFailure};
use crate::weights::quants;
use crate::weights::verify::OutputErrors;

/// An attention node and its data.
#[derive(Debug)]
pub(crate) struct AttentionNode<'a> {
    pub(crate) shape: AttentionOffload,
    pub(crate) queries: TensorData<'a>,
    pub(crate) keys: TensorData<'a>,
    pub(crate) values: TensorData<'a>,
    pub(crate) mask: Option<TensorData<'a>>,
    pub(crate) sinks: Option<TensorData<'a>>,
    /// dst: `outputs()` numbers.
    pub(crate) out: NodeOutput<'a>,
    /// Errors of its outputs against the definition, if it is verified.
    pub(crate) errors: Option<OutputErrors>,
}

/// Computes attention nodes that do not depend on each other. `gives_up` is asked before a failed job
/// runs again.
///
/// # Errors
/// See [`NodeFailure`]; then all outputs are invalid.
pub(crate) fn compute(
    engine: &Engine,
    scratch: &RowScratch,
    nodes: &mut [AttentionNode<'_>],
    gives_up: AbortCheck<'_>,
) -> Result<(), FailedNode> {
    let mut prepared = Vec::with_capacity(nodes.len());
    for (index, node) in nodes.iter().enumerate() {
        let operands = Operands::of(node, engine, scratch).map_err(FailedNode::of(index))?;
        prepared.push(operands);
    }
    let mut calls = Vec::new();
    let mut node_of = Vec::new();
    for (index, (node, operands)) in nodes.iter_mut().zip(&prepared).enumerate() {
        let outputs = operands.stream_outputs();
        for (stream, out) in node.out.values_mut().chunks_exact_mut(outputs).enumerate() {
            let call = operands.call(stream, out);
            calls.push(call.map_err(FailedNode::of(index))?);
            node_of.push(index);
        }
    }
    let attended = engine.attend_abortable(calls, gives_up);
    attended.map_err(|error| FailedNode {
        call: node_of[error.call],
        error: error.source.into(),
    })?;
    for (index, (node, operands)) in nodes.iter_mut().zip(&prepared).enumerate() {
        operands.scale_outputs(node.out.values_mut());
        verify(node, operands).map_err(FailedNode::of(index))?;
    }
    for operands in prepared {
        operands.recycle(scratch);
    }
    Ok(())
}

/// Compares the outputs with the definition in binary64 of the operands that the NPU has, if the
/// node is verified.
fn verify(node: &mut AttentionNode<'_>, operands: &Operands<'_>) -> Result<(), NodeFailure> {
    let Some(mut errors) = node.errors else {
        return Ok(());
    };
    let outputs = operands.stream_outputs();
    for (stream, out) in node.out.values().chunks_exact(outputs).enumerate() {
        let call = operands.call(stream, &mut [])?;
        for (at, (exact, out)) in reference(&call).into_iter().zip(out).enumerate() {
            let factor = operands.value_factor(stream, at / node.shape.batch.value_dim);
            errors.add_output(exact * f64::from(factor), *out);
        }
    }
    node.errors = Some(errors);
    Ok(())
}

/// The operands of attention in the number formats that the engine takes.
#[derive(Debug)]
struct Operands<'a> {
    shape: AttentionOffload,
    queries: HeadVectors<'a, f32>,
    keys: HalfRows<'a>,
    /// `None` if each value is the beginning of its key.
    values: Option<HalfRows<'a>>,
    mask: Option<HeadVectors<'a, f16>>,
    sinks: Option<&'a [f32]>,
    slopes: Option<Vec<f32>>,
}

/// Vectors of all rows, heads and streams, and the distances between them in elements.
#[derive(Debug)]
struct HeadVectors<'a, T: Clone> {
    data: Cow<'a, [T]>,
    strides: [usize; 3],
}

/// Keys or values in FP16: in place in the cache, or rounded copies.
#[derive(Debug)]
struct HalfRows<'a> {
    vectors: HeadVectors<'a, f16>,
    /// Powers of two by which they are to be multiplied: for each stream of the cache one for each
    /// head. Empty if all are 1.
    factors: Vec<f32>,
}

impl<'a> Operands<'a> {
    fn of(
        node: &AttentionNode<'a>,
        engine: &Engine,
        scratch: &RowScratch,
    ) -> Result<Self, NodeFailure> {
        let (shape, batch) = (&node.shape, &node.shape.batch);
        let (d, dv) = (batch.head_dim, batch.value_dim);
        let mask = node.mask.as_ref().map(|mask| {
            let data = quants::as_f16(mask.bytes).ok_or(NodeFailure::Data("mask"))?;
            Ok::<_, NodeFailure>(HeadVectors::new(data, mask))
        });
        let mask = mask.transpose()?;
        let is_rounded = [&node.keys, &node.values].map(|rows| !is_f16(rows)) != [false; 2];
        let seen = match &mask {
            Some(mask) if is_rounded => Some(seen_cells(shape, mask)?),
            _ => None,
        };
        let cached = |rows: &TensorData<'a>, len, what| {
            let sizes = [len, batch.keys, batch.kv_heads, shape.kv_streams];
            HalfRows::of(rows, sizes, seen.as_deref(), engine, scratch, what)
        };
        let floats = |rows: &TensorData<'a>, what| {
            <[f32]>::ref_from_bytes(rows.bytes).map_err(|_| NodeFailure::Data(what))
        };
        // A cache of compressed keys has the values in their first channels, which are rounded
        // once.
        let is_part = dv <= d && are_first_channels(&node.values, &node.keys);
        let sinks = node.sinks.as_ref().map(|sinks| {
            let sinks = floats(sinks, "sinks")?;
            sinks.get(..batch.heads).ok_or(NodeFailure::Data("sinks"))
        });
        Ok(Self {
            shape: node.shape,
            queries: HeadVectors::new(floats(&node.queries, "queries")?, &node.queries),
            keys: cached(&node.keys, d, "keys")?,
            values: if is_part {
                None
            } else {
                Some(cached(&node.values, dv, "values")?)
            },
            mask,
            sinks: sinks.transpose()?,
            slopes: shape.params.slopes(batch.heads),
        })
    }

    /// The values, or the keys that they are a part of.
    fn values(&self) -> &HalfRows<'a> {
        self.values.as_ref().unwrap_or(&self.keys)
    }

    /// The factor of the engine's outputs for a query head, which may be counted on from row to row.
    fn value_factor(&self, stream: usize, head: usize) -> f32 {
        let AttentionShape {
            heads, kv_heads, ..
        } = self.shape.batch;
        let factors = self
            .values()
            .stream_factors(self.shape.kv_stream(stream), kv_heads);
        factors.map_or(1.0, |factors| factors[head % heads * kv_heads / heads])
    }

    /// Multiplies the engine's outputs by the factors of the values.
    fn scale_outputs(&self, outputs: &mut [f32]) {
        if self.values().factors.is_empty() {
            return;
        }
        let streams = outputs.chunks_exact_mut(self.stream_outputs());
        for (stream, outputs) in streams.enumerate() {
            let vectors = outputs.chunks_exact_mut(self.shape.batch.value_dim);
            for (head, outputs) in vectors.enumerate() {
                quants::scale_outputs(self.value_factor(stream, head), &[], outputs);
            }
        }
    }

    /// Number of outputs of one stream.
    fn stream_outputs(&self) -> usize {
        self.shape.outputs() / self.shape.streams
    }

    /// Returns the call for one stream, which writes `out`.
    fn call<'c>(
        &'c self,
        stream: usize,
        out: &'c mut [f32],
    ) -> Result<AttentionCall<'c>, NodeFailure> {
        let (shape, batch) = (&self.shape, &self.shape.batch);
        let [mask_heads, mask_streams] = shape.mask;
        let kv_stream = shape.kv_stream(stream);
        let mask = self.mask.as_ref().map(|mask| {
            let sizes = [mask_heads, batch.rows, batch.keys];
            let stream_mask = mask.stream(stream % mask_streams, sizes);
            stream_mask.ok_or(NodeFailure::Data("mask"))
        });
        let missing = |what| move || NodeFailure::Data(what);
        let kv_sizes = |len| [batch.kv_heads, batch.keys, len];
        let sizes = [batch.heads, batch.rows, batch.head_dim];
        let queries = self.queries.stream(stream, sizes);
        let key_vectors = (self.keys.vectors).stream(kv_stream, kv_sizes(batch.head_dim));
        let value_vectors = (self.values().vectors).stream(kv_stream, kv_sizes(batch.value_dim));
        Ok(AttentionCall {
            q: queries.ok_or_else(missing("queries"))?,
            k: key_vectors.ok_or_else(missing("keys"))?,
            v: value_vectors.ok_or_else(missing("values"))?,
            mask: mask.transpose()?,
            sinks: self.sinks,
            slopes: self.slopes.as_deref(),
            scale: shape.params.scale,
            key_scales: self.keys.stream_factors(kv_stream, batch.kv_heads),
            softcap: shape.params.softcap,
            out,
        })
    }

    /// Keeps the memory of rounded copies for later calls.
    fn recycle(self, scratch: &RowScratch) {
        for rows in [Some(self.keys), self.values].into_iter().flatten() {
            if let Cow::Owned(data) = rows.vectors.data {
                scratch.halves.put(data);
            }
        }
    }
}

impl<'a, T: Clone> HeadVectors<'a, T> {
    /// Views `data`, the numbers of `rows`, whose strides are whole elements.
    fn new(data: &'a [T], rows: &TensorData<'_>) -> Self {
        let [_, row, head, stream] = rows.tensor.nb.map(|bytes| bytes / size_of::<T>());
        Self {
            data: Cow::Borrowed(data),
            strides: [row, head, stream],
        }
    }

    /// Returns the vectors of one stream; `sizes` are heads, rows and elements. `None` if the data
    /// is too short.
    fn stream(&self, stream: usize, sizes: [usize; 3]) -> Option<HeadRows<'_, T>> {
        let [row, head, stream_stride] = self.strides;
        let start = stream.checked_mul(stream_stride)?;
        HeadRows::new(self.data.get(start..)?, sizes, [head, row])
    }
}

/// Whether the engine takes these rows as they are.
fn is_f16(rows: &TensorData<'_>) -> bool {
    rows.tensor.format.number.id == type_id::F16
}

/// For each stream of the cache and each of its cells, whether some row sees it. The others may hold
/// anything.
fn seen_cells(
    shape: &AttentionOffload,
    mask: &HeadVectors<'_, f16>,
) -> Result<Vec<bool>, NodeFailure> {
    /// Cells that a thread processes at a time.
    const CELLS: usize = 512;
    let (batch, [heads, mask_streams]) = (&shape.batch, shape.mask);
    let keys = batch.keys;
    let mut seen = Vec::new();
    seen.try_reserve_exact(keys * shape.kv_streams)?;
    seen.resize(keys * shape.kv_streams, false);
    for stream in 0..shape.streams {
        let mask = mask.stream(stream % mask_streams, [heads, batch.rows, keys]);
        let mask = mask.ok_or(NodeFailure::Data("mask"))?;
        let cells = &mut seen[shape.kv_stream(stream) * keys..][..keys];
        let cells = cells.par_chunks_mut(CELLS).enumerate();
        cells.for_each(|(chunk, cells)| {
            for at in 0..heads * batch.rows {
                let mask = mask.vector(at / batch.rows, at % batch.rows);
                for (seen, mask) in cells.iter_mut().zip(&mask[chunk * CELLS..]) {
                    *seen |= mask.to_bits() != f16::NEG_INFINITY.to_bits();
                }
            }
        });
    }
    Ok(seen)
}

/// Whether each row of `values` begins where a row of `keys` does, in the same format.
fn are_first_channels(values: &TensorData<'_>, keys: &TensorData<'_>) -> bool {
    values.bytes.as_ptr() == keys.bytes.as_ptr()
        && values.tensor.nb == keys.tensor.nb
        && values.tensor.format == keys.tensor.format
}

impl<'a> HalfRows<'a> {
    /// Takes rows with these numbers of elements, rows, heads and streams; rounds them unless they
    /// are FP16. Rows that are not `seen` become zeros: see [`seen_cells`].
    fn of(
        from: &TensorData<'a>,
        [len, rows, heads, streams]: [usize; 4],
        seen: Option<&[bool]>,
        engine: &Engine,
        scratch: &RowScratch,
        what: &'static str,
    ) -> Result<Self, NodeFailure> {
        let format = from.tensor.format;
        if is_f16(from) {
            let data = quants::as_f16(from.bytes).ok_or(NodeFailure::Data(what))?;
            return Ok(Self {
                vectors: HeadVectors::new(data, from),
                factors: Vec::new(),
            });
        }
        let mut data = scratch.halves.take(len * rows * heads * streams)?;
        let mut factors = Vec::new();
        factors.try_reserve_exact(heads * streams)?;
        factors.resize(heads * streams, 1.0);
        // Rounds a head of a stream, times a power of two. Returns the largest decoded magnitude of
        // vectors that are finite.
        let round = |head: usize, factor: f32, to: &mut [f16]| {
            let convert_row = |(decoded, _): &mut (Vec<f32>, _), (row, to): (usize, &mut [f16])| {
                if seen.is_some_and(|seen| !seen[head / heads * rows + row]) {
                    to.fill(f16::ZERO);
                    return Some(0.0);
                }
                let bytes = from.row([row, head % heads, head / heads])?;
                if !format.is_aligned(bytes) {
                    return None;
                }
                format.decode(bytes, decoded);
                quants::round_scaled(decoded, factor, to);
                Some(quants::magnitude(decoded).unwrap_or(0.0))
            };
            to.par_chunks_exact_mut(len)
                .enumerate()
                .map_init(
                    || (vec![0.0; len], engine.stopwatch(Section::Pack)),
                    convert_row,
                )
                .try_reduce(|| 0.0, |a, b| Some(f32::max(a, b)))
                .ok_or(NodeFailure::Data(what))
        };
        data.par_chunks_exact_mut((len * rows).max(1))
            .zip(&mut factors)
            .enumerate()
            .try_for_each(|(head, (to, back))| {
                let factor = quants::factor_to_f16(round(head, 1.0, to)?);
                if factor != 1.0 {
                    round(head, factor, to)?;
                    *back = 1.0 / factor;
                }
                Ok::<_, NodeFailure>(())
            })?;
        if factors.iter().all(|factor| *factor == 1.0) {
            factors.clear();
        }
        Ok(Self {
            vectors: HeadVectors {
                data: Cow::Owned(data),
                strides: [len, len * rows, len * rows * heads],
            },
            factors,
        })
    }

    /// The factors of one stream of the cache, which has so many heads; `None` if all are 1.
    fn stream_factors(&self, stream: usize, heads: usize) -> Option<&[f32]> {
        self.factors.get(stream * heads..)?.get(..heads)
    }
}

#[cfg(test)]
mod tests;
