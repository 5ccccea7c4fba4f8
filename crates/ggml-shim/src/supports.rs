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
use crate::precision::{Choice, Precision};
use crate::reason::Reason;
use crate::resident::Key;
use crate::types::Format;

/// Fewest outputs of a product in INT8. Its error is a few 2^-8 of each
/// output, and averages out only over many: with a single output one unlucky
/// cancellation is the whole result (ggml's own test, NMSE below 5e-4, fails
/// about one time in eight on a 1 x 1 product, and never was seen to on 16).
const MIN_INT8_OUTPUTS: usize = 16;

/// Longest dot product in INT8: up to here the sum of products of magnitude
/// 127 * 127 surely fits into 32 bits (127 * 127 * 2^17 < 2^31).
const MAX_INT8_K: usize = 1 << 17;

/// Type, dimensions and strides of one tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Operand {
    /// How its numbers are written.
    pub(crate) format: Format,
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
    /// In the empty buffer of our type with which llama.cpp asks where to put
    /// them.
    Question,
    /// In a buffer of weights that can be read in place.
    Plain,
    /// In a buffer of weights that cannot.
    Rearranged,
    /// In any other buffer: a KV cache, scratch.
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

/// What the user set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Policy {
    /// Fewest activation rows of a product that is offloaded.
    pub(crate) min_m: usize,
    /// In what to compute.
    pub(crate) precision: Choice,
}

/// Decides about a product that ggml asks for.
///
/// # Errors
/// The reason for which it stays with the CPU.
pub(crate) fn decide(product: &Product, policy: Policy) -> Result<Offload, Reason> {
    if product.origin == Origin::Computed {
        return Err(Reason::Computed);
    }
    if product.place == Place::Elsewhere {
        return Err(Reason::Elsewhere);
    }
    let offload = computable(product, policy.precision)?;
    // The question where to put weights comes with a number of rows of its own.
    let counts = product.place != Place::Question;
    if counts && offload.shape.rows_per_matrix() < policy.min_m {
        return Err(Reason::SmallBatch);
    }
    if offload.precision.is_quantised() && offload.shape.outputs() < MIN_INT8_OUTPUTS {
        return Err(Reason::FewOutputs);
    }
    Ok(offload)
}

/// Whether a product can be computed at all, whatever it is worth: what
/// `graph_compute` relies on.
///
/// # Errors
/// The reason for which it cannot.
pub(crate) fn computable(product: &Product, choice: Choice) -> Result<Offload, Reason> {
    let (precision, _) = storable(&product.weights, choice)?;
    if product.activations.format.id != type_id::F32 {
        return Err(Reason::ActivationType);
    }
    let shape = shape(product)?;
    if !product.activations.has_rows(shape.k) || !product.output.is_packed() {
        return Err(Reason::Layout);
    }
    Ok(Offload { precision, shape })
}

/// Whether products with these weights can be computed: in what precision, and
/// their dimensions.
///
/// # Errors
/// The reason for which they cannot.
pub(crate) fn storable(
    weights: &Operand,
    choice: Choice,
) -> Result<(Precision, [usize; MAX_DIMS]), Reason> {
    let precision = choice.of(weights.format.class).ok_or(Reason::WeightType)?;
    let dimensions = weights.dimensions()?;
    let k = dimensions[0];
    if precision.is_quantised() && k > MAX_INT8_K {
        return Err(Reason::TooDeep);
    }
    if !weights.has_rows(k) {
        return Err(Reason::Layout);
    }
    Ok((precision, dimensions))
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

    /// What tells matrix `index` of these weights, which begin at `address`,
    /// from all others; `None` if the strides make no sense.
    pub(crate) fn key(&self, address: usize, [b2, b3]: [usize; 2]) -> Option<Key> {
        let k = usize::try_from(self.ne[0]).ok()?;
        let n = usize::try_from(self.ne[1]).ok()?;
        let below = n.checked_sub(1)?.checked_mul(self.nb[1])?;
        let offset = b2
            .checked_mul(self.nb[2])?
            .checked_add(b3.checked_mul(self.nb[3])?)?;
        Some(Key {
            address: address.checked_add(offset)?,
            len: below.checked_add(self.format.row_bytes(k)?)?,
            type_id: self.format.id,
            n,
            k,
            stride: self.nb[1],
        })
    }

    /// The keys of all matrices; `None` as above.
    pub(crate) fn keys(&self, address: usize) -> Option<Vec<Key>> {
        let [_, _, b2, b3] = self.dimensions().ok()?;
        let indices = (0..b3).flat_map(|i3| (0..b2).map(move |i2| [i2, i3]));
        indices.map(|index| self.key(address, index)).collect()
    }

    /// Whether each row of `elements` is an aligned run of whole blocks.
    fn has_rows(&self, elements: usize) -> bool {
        let block = self.format.block_bytes;
        self.format.row_bytes(elements).is_some()
            && self.nb[0] == block
            && self.nb.iter().all(|stride| stride.is_multiple_of(block))
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
        self.format.id == type_id::F32
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::types::tests::{BF16, I32, Q8_0, format};

    /// A tensor without gaps.
    pub(crate) fn packed(type_id: u32, ne: [i64; 4]) -> Operand {
        let format = format(type_id);
        let size = |dimension: usize| usize::try_from(ne[dimension]).unwrap_or(0);
        let row = format.block_bytes * size(0) / format.block_elements;
        Operand {
            format,
            ne,
            nb: [
                format.block_bytes,
                row,
                row * size(1),
                row * size(1) * size(2),
            ],
        }
    }

    /// A product that is offloaded, `m` x `k` times `k` x `n`.
    pub(crate) fn product(weights: u32, m: i64, n: i64, k: i64) -> Product {
        Product {
            weights: packed(weights, [k, n, 1, 1]),
            origin: Origin::Stored,
            place: Place::Plain,
            activations: packed(type_id::F32, [k, m, 1, 1]),
            output: packed(type_id::F32, [n, m, 1, 1]),
        }
    }

    /// The defaults, but for the rows.
    pub(crate) fn policy(min_m: usize) -> Policy {
        Policy {
            min_m,
            precision: Choice::Auto,
        }
    }

    const MIN_M: usize = 32;

    #[test]
    fn each_kind_of_weights_is_offloaded_in_its_precision() {
        for (weights, precision) in [
            (type_id::F32, Precision::Fp16),
            (type_id::F16, Precision::Fp16),
            (BF16, Precision::Fp16),
            (Q8_0, Precision::Int8),
        ] {
            let offload = decide(&product(weights, 64, 96, 128), policy(MIN_M)).unwrap();
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
        assert!(decide(&asked, policy(MIN_M)).is_ok());
    }

    #[test]
    fn broadcast_matrices_share_their_weights() {
        let mut asked = product(type_id::F16, 8, 96, 128);
        asked.weights = packed(type_id::F16, [128, 96, 3, 2]);
        asked.activations = packed(type_id::F32, [128, 8, 6, 4]);
        asked.output = packed(type_id::F32, [96, 8, 6, 4]);
        let shape = decide(&asked, policy(MIN_M)).unwrap().shape;
        assert_eq!((shape.matrices, shape.repeats), ([3, 2], [2, 2]));
        assert_eq!(shape.rows_per_matrix(), 32);
        assert_eq!(shape.outputs(), 96 * 8 * 24);
    }

    #[test]
    fn strided_rows_are_read_where_they_lie() {
        let mut asked = product(type_id::F16, 64, 96, 128);
        asked.weights.nb[1] += 64;
        asked.activations.nb[1] += 8;
        assert!(decide(&asked, policy(MIN_M)).is_ok());
    }

    /// Each line: what is changed in a good product, and why it is declined.
    #[test]
    fn each_reason_to_decline() {
        type Change = fn(&mut Product);
        let table: &[(Change, Reason)] = &[
            (|p| p.origin = Origin::Computed, Reason::Computed),
            (|p| p.place = Place::Elsewhere, Reason::Elsewhere),
            (|p| p.weights.format = format(I32), Reason::WeightType),
            (|p| p.weights.format = format(u32::MAX), Reason::WeightType),
            (
                |p| p.activations.format = format(type_id::F16),
                Reason::ActivationType,
            ),
            (|p| p.output.format = format(type_id::F16), Reason::Layout),
            // The strides are those of another format.
            (|p| p.weights.format = format(type_id::F32), Reason::Layout),
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
            assert!(decide(&asked, policy(MIN_M)).is_ok());
            change(&mut asked);
            assert_eq!(decide(&asked, policy(MIN_M)), Err(*reason), "line {index}");
        }
    }

    #[test]
    fn int8_wants_some_outputs_and_whole_blocks() {
        assert_eq!(
            decide(&product(Q8_0, 1, 1, 256), policy(1)),
            Err(Reason::FewOutputs)
        );
        assert!(decide(&product(Q8_0, 1, 16, 256), policy(1)).is_ok());
        assert!(decide(&product(type_id::F16, 1, 1, 256), policy(1)).is_ok());
        assert_eq!(
            decide(&product(Q8_0, 64, 64, 48), policy(1)),
            Err(Reason::Layout)
        );
        assert!(decide(&product(Q8_0, 64, 64, 1 << 17), policy(1)).is_ok());
        assert_eq!(
            decide(&product(Q8_0, 64, 64, (1 << 17) + 32), policy(1)),
            Err(Reason::TooDeep)
        );
    }

    #[test]
    fn what_is_worth_nothing_is_still_computable() {
        assert!(computable(&product(Q8_0, 1, 1, 32), Choice::Auto).is_ok());
    }
}
