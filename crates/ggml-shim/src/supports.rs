// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which products run on the NPU: a pure function of shapes, types and places.
//!
//! ggml asks `supports_op` for each node of each graph, again and again, with
//! tensors that may have no data yet. Hence the answer is computed from a
//! [`Product`], which is a copy of the few numbers that matter, and from
//! nothing else.
//!
//! ggml's `MUL_MAT` in its own terms (`ne`, fastest dimension first):
//!
//! ```text
//! weights      [K, N, b2, b3]
//! activations  [K, M, b2*r2, b3*r3]
//! output       [N, M, b2*r2, b3*r3]     output[j, i] = sum over k of weights[k, j] * activations[k, i]
//! ```

use crate::abi::{MAX_DIMS, type_id};
use crate::quants;

/// Fewest outputs of a product in INT8. Its error is a few 2^-8 of each
/// output, and averages out only over many: with a single output one unlucky
/// cancellation is the whole result (ggml's own test, NMSE below 5e-4, fails
/// about one time in eight on a 1 x 1 product, and never was seen to on 16).
const MIN_INT8_OUTPUTS: usize = 16;

/// Longest dot product in INT8: up to here the sum of products of magnitude
/// 127 * 127 surely fits into 32 bits (127 * 127 * 2^17 < 2^31).
const MAX_INT8_K: usize = 1 << 17;

/// How a product is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Precision {
    /// Both operands FP16, sums in FP32.
    Fp16,
    /// Both operands INT8, sums in INT32; one scale per activation row and one
    /// per output channel.
    Int8,
}

impl Precision {
    /// All of them, in the order of the statistics.
    pub(crate) const ALL: [Self; 2] = [Self::Fp16, Self::Int8];

    /// Short name, as in the statistics.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Fp16 => "fp16",
            Self::Int8 => "int8",
        }
    }
}

/// Why an operation stays with the CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reason {
    /// Another operation.
    NotAProduct,
    /// The weights are the result of another operation: attention.
    Computed,
    /// The weights lie in a buffer that is not ours, or not one of weights.
    Elsewhere,
    /// Weights of a type that is not offloaded.
    WeightType,
    /// Activations that are not F32.
    ActivationType,
    /// A layout in memory that cannot be read row by row.
    Layout,
    /// Dimensions that do not make a product.
    Shape,
    /// Fewer rows than GGML_ROCKET_MIN_M.
    SmallBatch,
    /// Too few outputs for INT8.
    FewOutputs,
    /// Dot products too long for INT8.
    TooDeep,
}

impl Reason {
    /// All of them, in the order of the statistics.
    pub(crate) const ALL: [Self; 10] = [
        Self::NotAProduct,
        Self::Computed,
        Self::Elsewhere,
        Self::WeightType,
        Self::ActivationType,
        Self::Layout,
        Self::Shape,
        Self::SmallBatch,
        Self::FewOutputs,
        Self::TooDeep,
    ];

    /// A few words for the statistics.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::NotAProduct => "not a matrix product",
            Self::Computed => "no stored weights (attention)",
            Self::Elsewhere => "weights in another backend's buffer",
            Self::WeightType => "weights neither F16 nor Q8_0",
            Self::ActivationType => "activations not F32",
            Self::Layout => "rows not contiguous in memory",
            Self::Shape => "dimensions make no product",
            Self::SmallBatch => "fewer rows than GGML_ROCKET_MIN_M",
            Self::FewOutputs => "too few outputs for INT8",
            Self::TooDeep => "dot products too long for INT8",
        }
    }
}

/// Type, dimensions and strides of one tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Operand {
    /// See [`type_id`].
    pub(crate) type_id: u32,
    /// Elements per dimension, fastest first.
    pub(crate) ne: [i64; MAX_DIMS],
    /// Bytes from one element to the next, per dimension.
    pub(crate) nb: [usize; MAX_DIMS],
}

/// Where the weights of a product come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A tensor that no operation computes, or a view of one.
    Stored,
    /// The result of another operation.
    Computed,
}

/// Where the weights of a product lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// Nowhere yet: ggml asks before it allocates.
    Unallocated,
    /// In a buffer of ours for weights (or in the empty one with which
    /// llama.cpp asks where to put them).
    OurWeights,
    /// In any other buffer: that of another backend, a KV cache, scratch.
    Elsewhere,
}

/// All that the decision depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Product {
    /// ggml's src0.
    pub(crate) weights: Operand,
    /// Where they come from.
    pub(crate) origin: Origin,
    /// Where they lie.
    pub(crate) place: Place,
    /// ggml's src1.
    pub(crate) activations: Operand,
    /// ggml's dst.
    pub(crate) output: Operand,
}

/// Dimensions of a product, see the module's picture. None is zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
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

impl Shape {
    /// Activation rows that meet the same weights.
    pub(crate) fn rows_per_matrix(&self) -> usize {
        self.m * self.repeats[0] * self.repeats[1]
    }

    /// Elements of the output.
    pub(crate) fn outputs(&self) -> usize {
        self.rows_per_matrix() * self.n * self.matrices[0] * self.matrices[1]
    }
}

/// A product that can be computed here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Offload {
    /// How.
    pub(crate) precision: Precision,
    /// How large.
    pub(crate) shape: Shape,
}

/// Decides about a product that ggml asks for.
///
/// # Errors
/// The reason for which it stays with the CPU.
pub(crate) fn decide(product: &Product, min_m: usize) -> Result<Offload, Reason> {
    if product.origin == Origin::Computed {
        return Err(Reason::Computed);
    }
    if product.place == Place::Elsewhere {
        return Err(Reason::Elsewhere);
    }
    let offload = computable(product)?;
    if offload.shape.rows_per_matrix() < min_m {
        return Err(Reason::SmallBatch);
    }
    if offload.precision == Precision::Int8 && offload.shape.outputs() < MIN_INT8_OUTPUTS {
        return Err(Reason::FewOutputs);
    }
    Ok(offload)
}

/// Whether a product can be computed at all, whatever it is worth: what
/// `graph_compute` relies on.
///
/// # Errors
/// The reason for which it cannot.
pub(crate) fn computable(product: &Product) -> Result<Offload, Reason> {
    let precision = match product.weights.type_id {
        type_id::F16 => Precision::Fp16,
        type_id::Q8_0 => Precision::Int8,
        _ => return Err(Reason::WeightType),
    };
    if product.activations.type_id != type_id::F32 {
        return Err(Reason::ActivationType);
    }
    let shape = shape(product)?;
    let rows_fit = match precision {
        Precision::Fp16 => product.weights.rows_of(size_of::<half::f16>()),
        Precision::Int8 => {
            shape.k.is_multiple_of(quants::Q8_0_ELEMENTS)
                && product.weights.nb[0] == quants::Q8_0_BYTES
        }
    };
    if precision == Precision::Int8 && shape.k > MAX_INT8_K {
        return Err(Reason::TooDeep);
    }
    if !rows_fit || !product.activations.rows_of(size_of::<f32>()) || !product.output.is_packed() {
        return Err(Reason::Layout);
    }
    Ok(Offload { precision, shape })
}

fn shape(product: &Product) -> Result<Shape, Reason> {
    let [k, n, b2, b3] = product.weights.dimensions()?;
    let [k1, m, a2, a3] = product.activations.dimensions()?;
    let output = product.output.dimensions()?;
    if k != k1 || output != [n, m, a2, a3] || a2 % b2 != 0 || a3 % b3 != 0 {
        return Err(Reason::Shape);
    }
    // Each product of dimensions that the code forms must not overflow, in
    // bytes of the widest element.
    for [rows, columns, x, y] in [[n, k, b2, b3], [m, k, a2, a3], [m, n, a2, a3]] {
        let elements = rows
            .checked_mul(columns)
            .and_then(|count| count.checked_mul(x))
            .and_then(|count| count.checked_mul(y));
        let bytes = elements.and_then(|count| count.checked_mul(size_of::<f32>()));
        if bytes.is_none_or(|bytes| isize::try_from(bytes).is_err()) {
            return Err(Reason::Shape);
        }
    }
    Ok(Shape {
        m,
        n,
        k,
        matrices: [b2, b3],
        repeats: [a2 / b2, a3 / b3],
    })
}

impl Operand {
    /// The dimensions, each at least one.
    fn dimensions(&self) -> Result<[usize; MAX_DIMS], Reason> {
        let mut dimensions = [0; MAX_DIMS];
        for (to, from) in dimensions.iter_mut().zip(self.ne) {
            *to = usize::try_from(from)
                .ok()
                .filter(|size| *size > 0)
                .ok_or(Reason::Shape)?;
        }
        Ok(dimensions)
    }

    /// Whether each row is an aligned run of elements of `size` bytes.
    fn rows_of(&self, size: usize) -> bool {
        self.nb[0] == size && self.nb.iter().all(|stride| stride.is_multiple_of(size))
    }

    /// Whether the tensor is F32 without gaps, in the order of its dimensions.
    fn is_packed(&self) -> bool {
        let mut expected = size_of::<f32>();
        for (size, stride) in self.ne.iter().zip(self.nb) {
            if stride != expected {
                return false;
            }
            let size = usize::try_from(*size).unwrap_or(usize::MAX);
            expected = expected.saturating_mul(size);
        }
        self.type_id == type_id::F32
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A tensor without gaps.
    pub(crate) fn packed(type_id: u32, ne: [i64; 4]) -> Operand {
        let (element, block) = match type_id {
            type_id::F16 => (2, 1),
            type_id::Q8_0 => (34, 32),
            _ => (4, 1),
        };
        let size = |dimension: usize| usize::try_from(ne[dimension]).unwrap_or(0);
        let row = element * size(0) / block;
        Operand {
            type_id,
            ne,
            nb: [element, row, row * size(1), row * size(1) * size(2)],
        }
    }

    /// A product that is offloaded, `m` x `k` times `k` x `n`.
    pub(crate) fn product(weights: u32, m: i64, n: i64, k: i64) -> Product {
        Product {
            weights: packed(weights, [k, n, 1, 1]),
            origin: Origin::Stored,
            place: Place::OurWeights,
            activations: packed(type_id::F32, [k, m, 1, 1]),
            output: packed(type_id::F32, [n, m, 1, 1]),
        }
    }

    const MIN_M: usize = 32;

    #[test]
    fn both_weight_types_are_offloaded_in_their_precision() {
        for (weights, precision) in [
            (type_id::F16, Precision::Fp16),
            (type_id::Q8_0, Precision::Int8),
        ] {
            let offload = decide(&product(weights, 64, 96, 128), MIN_M).unwrap();
            assert_eq!(offload.precision, precision);
            assert_eq!(
                offload.shape,
                Shape {
                    m: 64,
                    n: 96,
                    k: 128,
                    matrices: [1, 1],
                    repeats: [1, 1]
                }
            );
        }
    }

    #[test]
    fn the_question_before_allocation_gets_the_same_answer() {
        let mut asked = product(type_id::F16, 512, 64, 64);
        asked.place = Place::Unallocated;
        assert!(decide(&asked, MIN_M).is_ok());
    }

    #[test]
    fn broadcast_matrices_share_their_weights() {
        let mut asked = product(type_id::F16, 8, 96, 128);
        asked.weights = packed(type_id::F16, [128, 96, 3, 2]);
        asked.activations = packed(type_id::F32, [128, 8, 6, 4]);
        asked.output = packed(type_id::F32, [96, 8, 6, 4]);
        let shape = decide(&asked, MIN_M).unwrap().shape;
        assert_eq!((shape.matrices, shape.repeats), ([3, 2], [2, 2]));
        assert_eq!(shape.rows_per_matrix(), 32);
        assert_eq!(shape.outputs(), 96 * 8 * 24);
    }

    #[test]
    fn strided_rows_are_read_where_they_lie() {
        let mut asked = product(type_id::F16, 64, 96, 128);
        asked.weights.nb[1] += 64;
        asked.activations.nb[1] += 8;
        assert!(decide(&asked, MIN_M).is_ok());
    }

    /// Each line: what is changed in a good product, and why it is declined.
    #[test]
    fn each_reason_to_decline() {
        type Change = fn(&mut Product);
        let table: &[(Change, Reason)] = &[
            (|p| p.origin = Origin::Computed, Reason::Computed),
            (|p| p.place = Place::Elsewhere, Reason::Elsewhere),
            (|p| p.weights.type_id = type_id::F32, Reason::WeightType),
            (|p| p.weights.type_id = 2, Reason::WeightType),
            (|p| p.weights.type_id = u32::MAX, Reason::WeightType),
            (
                |p| p.activations.type_id = type_id::F16,
                Reason::ActivationType,
            ),
            (|p| p.output.type_id = type_id::F16, Reason::Layout),
            // Transposed: the fastest dimension is not contiguous.
            (|p| p.weights.nb.swap(0, 1), Reason::Layout),
            (|p| p.activations.nb.swap(0, 1), Reason::Layout),
            (|p| p.activations.nb[1] += 2, Reason::Layout),
            (|p| p.weights.nb[1] += 1, Reason::Layout),
            (|p| p.output.nb[1] += 4, Reason::Layout),
            (|p| p.weights.ne[0] = 64, Reason::Shape),
            (|p| p.weights.ne[2] = 2, Reason::Shape),
            (|p| p.activations.ne[1] = 65, Reason::Shape),
            (|p| p.output.ne[3] = 2, Reason::Shape),
            (|p| p.weights.ne[1] = 0, Reason::Shape),
            (|p| p.weights.ne[1] = -1, Reason::Shape),
            (
                |p| {
                    p.weights.ne[1] = i64::MAX;
                    p.output.ne[0] = i64::MAX;
                },
                Reason::Shape,
            ),
            (
                |p| *p = product(type_id::F16, 31, 96, 128),
                Reason::SmallBatch,
            ),
        ];
        for (index, (change, reason)) in table.iter().enumerate() {
            let mut asked = product(type_id::F16, 64, 96, 128);
            assert!(decide(&asked, MIN_M).is_ok());
            change(&mut asked);
            assert_eq!(decide(&asked, MIN_M), Err(*reason), "line {index}");
        }
    }

    #[test]
    fn int8_wants_some_outputs_and_whole_blocks() {
        assert_eq!(
            decide(&product(type_id::Q8_0, 1, 1, 256), 1),
            Err(Reason::FewOutputs)
        );
        assert!(decide(&product(type_id::Q8_0, 1, 16, 256), 1).is_ok());
        assert!(decide(&product(type_id::F16, 1, 1, 256), 1).is_ok());
        assert_eq!(
            decide(&product(type_id::Q8_0, 64, 64, 48), 1),
            Err(Reason::Layout)
        );
        assert!(decide(&product(type_id::Q8_0, 64, 64, 1 << 17), 1).is_ok());
        assert_eq!(
            decide(&product(type_id::Q8_0, 64, 64, (1 << 17) + 32), 1),
            Err(Reason::TooDeep)
        );
    }

    #[test]
    fn what_is_worth_nothing_is_still_computable() {
        assert!(computable(&product(type_id::Q8_0, 1, 1, 32)).is_ok());
    }

    #[test]
    fn every_reason_has_a_place_in_the_statistics() {
        for (index, reason) in Reason::ALL.iter().enumerate() {
            assert_eq!(*reason as usize, index);
        }
        for (index, precision) in Precision::ALL.iter().enumerate() {
            assert_eq!(*precision as usize, index);
        }
    }
}
