// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which matmuls run on the NPU: a pure function of shapes, types and places. Attention is in
//! `offload/attention.rs`.
//!
//! ggml asks `supports_op` about each node of each graph, again and again, with tensors that may
//! have no data yet. So the answer depends only on a [`MatmulQuery`], which is a copy of the few
//! numbers that matter.
//!
//! ggml's `MUL_MAT` with ggml's dimensions (`ne`, fastest first):
//!
//! ```text
//! weights      [K, N, b2, b3]
//! activations  [K, M, b2*r2, b3*r3]
//! output       [N, M, b2*r2, b3*r3]     output[j, i] = sum over k of weights[k, j] * activations[k, i]
//! ```
//!
//! The picture of `MUL_MAT_ID`, with experts, is in `compute/matmul/by_expert.rs`. Its M is the
//! number of tokens.

mod attention;

use npu_matmul::quantise::INT8_K_MAX;
use npu_offload::{AttentionChoice, ComputeType, FEWEST_ROWS, FormatClass, OffloadRules};

pub(crate) use self::attention::{
    AttentionOffload, AttentionParams, AttentionQuery, attention_shape, decide_attention,
};
use crate::ggml::abi::{self, MAX_DIMS, OP_PARAM_WORDS, prec, type_id};
use crate::ggml::reason::DeclineReason;
use crate::ggml::tensor_shape::{TensorShape, check_sizes};

/// Fewest outputs of a matmul in INT8. Its error is a few 2^-8 of each output, and averages out
/// only over many: with a single output one unlucky cancellation is the whole result. ggml's own
/// test, NMSE below 5e-4, fails about one time in eight on a 1 x 1 matmul, and was never seen to
/// fail on 16 outputs.
const MIN_INT8_OUTPUTS: usize = 16;

/// Longest rows of weights, which sums of INT8 have exactly. No known model has rows half as long.
/// The plan of a longer matmul takes too much time for a question of ggml.
const LONGEST_ROW: usize = INT8_K_MAX;

/// Most elements of a matrix of weights: those of a vocabulary of 262,144 with rows of 8192. The
/// plan of a larger matmul takes too much time, too.
const LARGEST_MATRIX: usize = 1 << 31;

/// Where the weights of a matmul come from: the result of an operation, an input, or a stored
/// tensor, which lies somewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WeightOrigin {
    /// The result of another operation.
    Computed,
    /// An input of the graph, which the program sets before it is computed: the rotations of a
    /// quantised KV cache. llama.cpp asks about them before they are allocated.
    Input,
    /// A view of a tensor in plain memory that holds no weights: a KV cache, whose numbers change
    /// from graph to graph. Without flash attention llama.cpp multiplies by two such views.
    Cache,
    /// Nowhere yet: ggml asks before it allocates.
    Unallocated,
    /// Nowhere yet: a program asks whether to put them into our device's buffer type, which is
    /// plain memory.
    Asked,
    /// In a buffer of weights that can be read in place.
    Plain,
    /// In a buffer of weights that cannot be read in place.
    Rearranged,
    /// In any other buffer.
    Elsewhere,
}

impl WeightOrigin {
    /// Declines weights that the NPU cannot or should not take from there.
    pub(crate) const fn check(self) -> Result<(), DeclineReason> {
        match self {
            Self::Cache | Self::Unallocated | Self::Plain | Self::Rearranged => Ok(()),
            Self::Computed => Err(DeclineReason::Computed),
            Self::Input => Err(DeclineReason::Input),
            // The CPU's own places are better: its kernels want some weights in another order.
            Self::Asked => Err(DeclineReason::Asked),
            Self::Elsewhere => Err(DeclineReason::Elsewhere),
        }
    }
}

/// The data that the decision depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MatmulQuery {
    /// ggml's src0.
    pub(crate) weights: TensorShape,
    pub(crate) origin: WeightOrigin,
    /// ggml's src1.
    pub(crate) activations: TensorShape,
    /// Number of rows of the result that ggml's src1 is a view of; `None` unless they are longer
    /// than the rows of src1. Each is one token: its heads do not count as tokens.
    pub(crate) viewed_rows: Option<usize>,
    /// ggml's src2, for a matmul whose rows choose their weights.
    pub(crate) ids: Option<TensorShape>,
    /// ggml's dst.
    pub(crate) output: TensorShape,
    /// Its `op_params`.
    pub(crate) params: [i32; OP_PARAM_WORDS],
}

/// Dimensions of a matmul, see the module's picture. None is zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MatmulSize {
    /// Activation rows of one matrix.
    pub(crate) m: usize,
    /// Output channels.
    pub(crate) n: usize,
    /// Length of the dot products.
    pub(crate) k: usize,
    /// Number of weight matrices: `[b2, b3]`.
    pub(crate) matrices: [usize; 2],
    /// How many activation matrices use the same weights: `[r2, r3]`.
    pub(crate) repeats: [usize; 2],
}

/// A matmul that can be computed here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MatmulOffload {
    pub(crate) precision: ComputeType,
    pub(crate) shape: MatmulSize,
    pub(crate) experts: Option<ExpertChoice>,
}

/// How rows choose their weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ExpertChoice {
    /// Experts that each token chooses.
    pub(crate) used: usize,
    /// Number of activation rows of each token: `used`, or a divisor of it.
    pub(crate) given: usize,
}

impl MatmulOffload {
    /// Activation rows that may be multiplied by the same weights.
    pub(crate) fn rows(&self) -> usize {
        let MatmulSize { m, repeats, .. } = self.shape;
        m * repeats[0] * repeats[1]
    }

    /// Activation rows that are multiplied by the same weights; with experts, their number if all
    /// experts are chosen equally often.
    fn rows_together(&self) -> usize {
        match self.experts {
            Some(experts) => {
                self.rows().saturating_mul(experts.used) / self.shape.matrices[0].max(1)
            }
            None => self.rows(),
        }
    }

    pub(crate) fn outputs(&self) -> usize {
        let MatmulSize { n, matrices, .. } = self.shape;
        match self.experts {
            Some(experts) => self.rows() * experts.used * n,
            None => self.rows() * n * matrices[0] * matrices[1],
        }
    }
}

/// Decides about a matmul that ggml asks about.
pub(crate) fn decide(
    matmul: &MatmulQuery,
    rules: &OffloadRules,
) -> Result<MatmulOffload, DeclineReason> {
    matmul.origin.check()?;
    if matmul.origin == WeightOrigin::Cache {
        return decide_cached(matmul, rules);
    }
    let offload = computable(matmul, rules)?;
    let MatmulSize { n, k, .. } = offload.shape;
    let tokens = offload.rows().min(matmul.viewed_rows.unwrap_or(usize::MAX));
    let format = matmul.weights.format.number;
    if !rules.is_worth(format, [n, k], tokens, offload.rows_together()) {
        return Err(match rules.decide(format, [n, k]).fewest_rows {
            Some(_) => DeclineReason::SmallBatch,
            None => DeclineReason::Slower,
        });
    }
    if offload.precision.quantisation().is_some() && offload.outputs() < MIN_INT8_OUTPUTS {
        return Err(DeclineReason::FewOutputs);
    }
    Ok(offload)
}

/// Decides about a matmul of attention without flash attention: keys times queries, or values times
/// probabilities. The current data of the cache is packed for this matmul alone.
fn decide_cached(
    matmul: &MatmulQuery,
    rules: &OffloadRules,
) -> Result<MatmulOffload, DeclineReason> {
    if matmul.weights.format.number.id != type_id::F16 {
        return Err(DeclineReason::AttentionType);
    }
    let offload = computable(matmul, rules)?;
    let MatmulSize { m, n, k, .. } = offload.shape;
    if rules.attention == AttentionChoice::Never {
        return Err(DeclineReason::AttentionOff);
    }
    if m < FEWEST_ROWS {
        return Err(DeclineReason::AttentionRows);
    }
    if rules.is_worth_packing(matmul.weights.format.number, [n, k], m, offload.rows()) {
        return Ok(offload);
    }
    Err(DeclineReason::AttentionMatmuls)
}

/// Whether a matmul can be computed at all, whatever its gain. `graph_compute` relies on it.
pub(crate) fn computable(
    matmul: &MatmulQuery,
    rules: &OffloadRules,
) -> Result<MatmulOffload, DeclineReason> {
    let dimensions = readable(&matmul.weights)?;
    if matmul.activations.format.number.id != type_id::F32 {
        return Err(DeclineReason::ActivationType);
    }
    let (shape, experts) = match &matmul.ids {
        None => (shape(matmul)?, None),
        Some(ids) => shape_by_expert(matmul, ids)?,
    };
    if !matmul.activations.has_rows(shape.k) || !matmul.output.is_packed() {
        return Err(DeclineReason::NotContiguous);
    }
    let precision = match matmul.origin {
        // Attention is computed in FP16, whatever precision the user chose for weights.
        WeightOrigin::Cache => ComputeType::Fp16,
        _ => precision(&matmul.weights, dimensions, rules),
    };
    check_params(&matmul.params, precision)?;
    Ok(MatmulOffload {
        precision,
        shape,
        experts,
    })
}

/// Declines a matmul that requires more than a computation in `precision`, or with a parameter that
/// is not known here. Sums are binary32 or exact, which is enough for any of them.
fn check_params(
    params: &[i32; OP_PARAM_WORDS],
    precision: ComputeType,
) -> Result<(), DeclineReason> {
    let are_known = params.iter().enumerate().all(|(word, param)| match word {
        abi::mul_mat::SUMS => [prec::UNDEFINED, prec::F32, prec::BF16, prec::F16].contains(param),
        abi::mul_mat::HINT => abi::mul_mat::HINTS.contains(param),
        // Checked below.
        abi::mul_mat::ACTIVATIONS => true,
        _ => *param == 0,
    });
    let may_round = match params[abi::mul_mat::ACTIVATIONS] {
        prec::UNDEFINED | prec::Q8 | prec::Q4 => true,
        prec::F16 => precision.quantisation().is_none(),
        _ => false,
    };
    if are_known && may_round {
        return Ok(());
    }
    Err(DeclineReason::Parameters)
}

/// Whether matmuls with these weights can be computed, and some gain. Returns their precision and
/// the dimensions of the weights.
pub(crate) fn storable(
    weights: &TensorShape,
    rules: &OffloadRules,
) -> Result<(ComputeType, [usize; MAX_DIMS]), DeclineReason> {
    let dimensions = readable(weights)?;
    let [k, n, ..] = dimensions;
    let precision = precision(weights, dimensions, rules);
    match rules.decide(weights.format.number, [n, k]).fewest_rows {
        Some(_) => Ok((precision, dimensions)),
        None => Err(DeclineReason::Slower),
    }
}

/// Returns the dimensions of weights that can be decoded row by row.
fn readable(weights: &TensorShape) -> Result<[usize; MAX_DIMS], DeclineReason> {
    if weights.format.number.class == FormatClass::Other {
        return Err(DeclineReason::WeightType);
    }
    let dimensions = weights.dimensions()?;
    if !weights.has_rows(dimensions[0]) {
        return Err(DeclineReason::NotContiguous);
    }
    if dimensions[0] > LONGEST_ROW {
        return Err(DeclineReason::TooDeep);
    }
    let elements = dimensions[0].checked_mul(dimensions[1]);
    if elements.is_none_or(|elements| elements > LARGEST_MATRIX) {
        return Err(DeclineReason::NoPlan);
    }
    Ok(dimensions)
}

/// Returns the precision for such weights. The first question about a size may cost milliseconds,
/// so it comes last.
fn precision(
    weights: &TensorShape,
    [k, n, ..]: [usize; MAX_DIMS],
    rules: &OffloadRules,
) -> ComputeType {
    rules.compute_type(weights.format.number, [n, k])
}

fn shape(matmul: &MatmulQuery) -> Result<MatmulSize, DeclineReason> {
    let [k, n, b2, b3] = matmul.weights.dimensions()?;
    let [k1, m, a2, a3] = matmul.activations.dimensions()?;
    let output = matmul.output.dimensions()?;
    if k != k1 || output != [n, m, a2, a3] || a2 % b2 != 0 || a3 % b3 != 0 {
        return Err(DeclineReason::Dimensions);
    }
    check_sizes([[n, k, b2, b3], [m, k, a2, a3], [m, n, a2, a3]])?;
    Ok(MatmulSize {
        m,
        n,
        k,
        matrices: [b2, b3],
        repeats: [a2 / b2, a3 / b3],
    })
}

/// Returns the shape of a matmul whose rows choose their weights by `ids`.
fn shape_by_expert(
    matmul: &MatmulQuery,
    ids: &TensorShape,
) -> Result<(MatmulSize, Option<ExpertChoice>), DeclineReason> {
    let [k, n, count, b3] = matmul.weights.dimensions()?;
    let [k1, given, m, a3] = matmul.activations.dimensions()?;
    let [used, tokens, i2, i3] = ids.dimensions()?;
    let output = matmul.output.dimensions()?;
    let fits = k == k1 && m == tokens && output == [n, used, m, 1];
    if !fits || [b3, a3, i2, i3] != [1; 4] || used % given != 0 {
        return Err(DeclineReason::Dimensions);
    }
    check_sizes([[n, k, count, 1], [m, k, used, 1], [m, n, used, 1]])?;
    if ids.format.number.id != type_id::I32 || !ids.has_rows(used) {
        return Err(DeclineReason::NotContiguous);
    }
    let shape = MatmulSize {
        m,
        n,
        k,
        matrices: [count, 1],
        repeats: [1, 1],
    };
    Ok((shape, Some(ExpertChoice { used, given })))
}

#[cfg(test)]
pub(crate) mod tests;
