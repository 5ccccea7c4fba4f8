// SPDX-License-Identifier: MIT OR Apache-2.0
//! Strides, broadcasts and bad numbers, with a multiplier of three loops.

mod by_expert;
mod formats;

use std::sync::atomic::{AtomicUsize, Ordering};

use half::f16;
use npu_matmul::quantise::Quantisation;
use proptest::prelude::*;
use zerocopy::IntoBytes;

use super::*;
use crate::abi::type_id;
use crate::types::tests::{Q8_0, decoder, format};
use crate::verify::OutputErrors;
use npu_offload::ComputeType;

/// Multiplies in f32 without any device; counts the matrices it packed, and the
/// batches.
#[derive(Default)]
struct Plain {
    loads: AtomicUsize,
    batches: AtomicUsize,
    broken: bool,
}

#[derive(Debug, thiserror::Error)]
#[error("job killed")]
struct Killed;

impl Plain {
    fn load(&self, weights: Vec<f32>) -> Result<Vec<f32>, Killed> {
        self.loads.fetch_add(1, Ordering::Relaxed);
        Ok(weights)
    }

    fn one(
        &self,
        weights: &[f32],
        m: usize,
        activations: &[f32],
        out: &mut [f32],
    ) -> Result<(), Killed> {
        if self.broken {
            return Err(Killed);
        }
        assert!(activations.iter().all(|value| value.is_finite()));
        let k = activations.len() / m;
        for (row, out) in activations.chunks(k).zip(out.chunks_mut(weights.len() / k)) {
            for (column, out) in weights.chunks(k).zip(out) {
                *out = row.iter().zip(column).map(|(a, b)| a * b).sum();
            }
        }
        Ok(())
    }
}

impl MatrixMultiplier for Plain {
    type Weights = Vec<f32>;
    type Error = Killed;

    fn load_f16(&self, n: usize, k: usize, weights: &[f16]) -> Result<Vec<f32>, Killed> {
        assert_eq!(weights.len(), n * k);
        self.load(weights.iter().map(|weight| weight.to_f32()).collect())
    }

    fn load_quantised(
        &self,
        n: usize,
        k: usize,
        _: Quantisation,
        fill: impl Fn(usize, &mut [f32]) + Sync,
    ) -> Result<Vec<f32>, Killed> {
        let mut weights = vec![f32::NAN; n * k];
        for (index, row) in weights.chunks_exact_mut(k).enumerate() {
            fill(index, row);
        }
        self.load(weights)
    }

    fn multiply(&self, parts: Vec<MatrixProduct<'_, Vec<f32>>>) -> Result<(), Killed> {
        self.batches.fetch_add(1, Ordering::Relaxed);
        for part in parts {
            let floats = match part.activations {
                ActivationRows::Floats(floats) => floats.to_vec(),
                ActivationRows::Halves(halves) => halves.iter().map(|x| x.to_f32()).collect(),
            };
            self.one(part.weights, part.rows, &floats, part.out)?;
        }
        Ok(())
    }
}

fn stored(id: u32, ne: [usize; 4], nb: [usize; 4], bytes: &[u8]) -> StoredWeights {
    StoredWeights {
        operand: TensorDescriptor {
            format: format(id),
            ne: ne.map(|size| i64::try_from(size).unwrap()),
            nb,
        },
        address: bytes.as_ptr().addr(),
    }
}

/// The definition: ggml's picture in `supports.rs`, element by element.
fn reference(
    shape: Shape,
    weights: impl Fn([usize; 4]) -> f32,
    activations: impl Fn([usize; 4]) -> f32,
) -> Vec<f32> {
    let mut out = Vec::new();
    for i3 in 0..shape.matrices[1] * shape.repeats[1] {
        for i2 in 0..shape.matrices[0] * shape.repeats[0] {
            let (b2, b3) = (i2 / shape.repeats[0], i3 / shape.repeats[1]);
            for row in 0..shape.m {
                for column in 0..shape.n {
                    let terms = (0..shape.k)
                        .map(|k| weights([k, column, b2, b3]) * activations([k, row, i2, i3]));
                    out.push(terms.sum());
                }
            }
        }
    }
    out
}

/// Small whole numbers, so that sums are exact in any order.
fn weight([k, n, b2, b3]: [usize; 4]) -> f32 {
    f32::from(i16::try_from((k * 3 + n * 5 + b2 * 7 + b3 * 11) % 13).unwrap()) - 6.0
}

fn activation([k, m, i2, i3]: [usize; 4]) -> f32 {
    f32::from(i16::try_from((k * 2 + m * 3 + i2 * 5 + i3) % 7).unwrap()) - 3.0
}

/// Lays out a tensor in memory whose dimensions 1 to 3 are stored in `order`,
/// with `gap` unused elements behind each row.
fn lay_out<T: Copy + IntoBytes + zerocopy::Immutable>(
    ne: [usize; 4],
    order: [usize; 3],
    gap: usize,
    filler: T,
    value: impl Fn([usize; 4]) -> T,
) -> (Vec<T>, [usize; 4]) {
    let mut stride = [1, 0, 0, 0];
    let mut next = ne[0] + gap;
    for dimension in order {
        stride[dimension] = next;
        next *= ne[dimension];
    }
    let mut data = vec![filler; next];
    for i3 in 0..ne[3] {
        for i2 in 0..ne[2] {
            for i1 in 0..ne[1] {
                for i0 in 0..ne[0] {
                    let at = i0 + i1 * stride[1] + i2 * stride[2] + i3 * stride[3];
                    data[at] = value([i0, i1, i2, i3]);
                }
            }
        }
    }
    (data, stride.map(|stride| stride * size_of::<T>()))
}

const ORDERS: [[usize; 3]; 4] = [[1, 2, 3], [2, 1, 3], [1, 3, 2], [3, 2, 1]];

fn run_f16(multiplier: &Plain, shape: Shape, order: [usize; 3], gap: usize) -> Vec<f32> {
    let Shape {
        m,
        n,
        k,
        matrices: [b2, b3],
        repeats: [r2, r3],
    } = shape;
    let (weights, weights_nb) = lay_out([k, n, b2, b3], order, gap, f16::NAN, |index| {
        f16::from_f32(weight(index))
    });
    let (activations, activations_nb) =
        lay_out([k, m, b2 * r2, b3 * r3], order, gap, f32::NAN, activation);
    let mut out = vec![f32::NAN; m * n * b2 * b3 * r2 * r3];
    let mut product = MulMat {
        offload: Offload {
            precision: ComputeType::Fp16,
            shape,
            experts: None,
        },
        decoder: decoder(type_id::F16),
        weights: TensorBytes {
            bytes: weights.as_bytes(),
            row_bytes: 2 * k,
            nb: weights_nb,
        },
        stored: stored(type_id::F16, [k, n, b2, b3], weights_nb, weights.as_bytes()),
        ids: None,
        activations: TensorBytes {
            bytes: activations.as_bytes(),
            row_bytes: 4 * k,
            nb: activations_nb,
        },
        out: &mut out,
        errors: Some(OutputErrors::default()),
        decision: None,
    };
    compute(multiplier, None, &mut product).unwrap();
    // All numbers here are small integers: nothing is rounded.
    let errors = product.errors.unwrap();
    let energy: f64 = out.iter().map(|x| f64::from(x * x)).sum();
    assert_eq!((errors.differences, errors.outputs), (0.0, energy));
    out
}

proptest! {
    #![proptest_config(test_support::cases(64))]

    #[test]
    fn any_stride_and_broadcast_equals_the_definition(
        m in 1..5_usize, n in 1..5_usize, k in 1..9_usize,
        b2 in 1..4_usize, b3 in 1..3_usize, r2 in 1..4_usize, r3 in 1..3_usize,
        order in 0..ORDERS.len(), gap in 0..3_usize,
    ) {
        let shape = Shape { m, n, k, matrices: [b2, b3], repeats: [r2, r3] };
        let multiplier = Plain::default();
        let out = run_f16(&multiplier, shape, ORDERS[order], gap);
        prop_assert_eq!(out, reference(shape, weight, activation));
        prop_assert_eq!(multiplier.loads.load(Ordering::Relaxed), b2 * b3);
    }
}

const SQUARE: Shape = Shape {
    m: 2,
    n: 3,
    k: 32,
    matrices: [1, 1],
    repeats: [1, 1],
};

/// Q8_0 blocks of `weight`, with scale one half.
fn q8_0_weights() -> Vec<u8> {
    let mut bytes = Vec::new();
    for n in 0..SQUARE.n {
        bytes.extend(f16::from_f32(0.5).to_le_bytes());
        #[allow(clippy::cast_possible_truncation)]
        bytes.extend((0..SQUARE.k).flat_map(|k| (weight([k, n, 0, 0]) as i8).to_le_bytes()));
    }
    bytes
}

fn q8_0<'a>(weights: &'a [u8], activations: &'a [f32], out: &'a mut [f32]) -> MulMat<'a> {
    MulMat {
        offload: Offload {
            precision: ComputeType::Int8Hadamard,
            shape: SQUARE,
            experts: None,
        },
        decoder: decoder(Q8_0),
        weights: TensorBytes {
            bytes: weights,
            row_bytes: 34,
            nb: [34, 34, 102, 102],
        },
        stored: stored(Q8_0, [32, 3, 1, 1], [34, 34, 102, 102], weights),
        ids: None,
        activations: TensorBytes {
            bytes: activations.as_bytes(),
            row_bytes: 128,
            nb: [4, 128, 256, 256],
        },
        out,
        errors: None,
        decision: None,
    }
}

/// Nobody tells the backend of what a program writes by hand.
#[test]
fn weights_that_changed_since_they_were_packed_are_seen_by_the_check() {
    let (multiplier, residents) = (Plain::default(), ResidentMatrices::default());
    let mut weights = q8_0_weights();
    let (activations, _) = lay_out([32, 2, 1, 1], [1, 2, 3], 0, 0.0, activation);
    let address = weights.as_ptr().addr();
    let check = |weights: &[u8]| {
        let mut out = vec![0.0; 6];
        let mut product = q8_0(weights, &activations, &mut out);
        assert_eq!(product.stored.address, address);
        product.errors = Some(OutputErrors::default());
        compute(&multiplier, Some(&residents), &mut product).unwrap();
        product.errors.unwrap().nmse()
    };
    assert_eq!(check(&weights), 0.0);
    weights[2..34].fill(100);
    assert!(check(&weights) > 0.1);
    assert_eq!(multiplier.loads.load(Ordering::Relaxed), 1);
}

#[test]
fn q8_0_weights_are_decoded_and_packed_once() {
    let multiplier = Plain::default();
    let residents = ResidentMatrices::default();
    let weights = q8_0_weights();
    let (activations, _) = lay_out([32, 2, 1, 1], [1, 2, 3], 0, 0.0, activation);
    let expected: Vec<f32> = reference(SQUARE, |index| weight(index) / 2.0, activation);
    for _ in 0..2 {
        let mut out = [0.0; 6];
        let mut product = q8_0(&weights, &activations, &mut out);
        compute(&multiplier, Some(&residents), &mut product).unwrap();
        assert_eq!(out[..], expected);
    }
    assert_eq!(multiplier.loads.load(Ordering::Relaxed), 1);
    residents.forget(weights.as_ptr_range().start.addr()..weights.as_ptr_range().end.addr());
    let mut out = [0.0; 6];
    compute(
        &multiplier,
        Some(&residents),
        &mut q8_0(&weights, &activations, &mut out),
    )
    .unwrap();
    assert_eq!(multiplier.loads.load(Ordering::Relaxed), 2);
}

/// As for weights that the CPU has rearranged.
#[test]
fn packed_weights_need_no_bytes_and_without_either_there_is_an_error() {
    let multiplier = Plain::default();
    let residents = ResidentMatrices::default();
    let weights = q8_0_weights();
    let activations = [1.0; 64];
    let mut outs = [[0.0; 6]; 2];
    for (out, has_bytes) in outs.iter_mut().zip([true, false]) {
        let mut product = q8_0(&weights, &activations, out);
        if !has_bytes {
            product.weights.bytes = &[];
        }
        compute(&multiplier, Some(&residents), &mut product).unwrap();
    }
    assert_eq!(outs[0], outs[1]);
    assert_eq!(multiplier.loads.load(Ordering::Relaxed), 1);
    residents.forget(0..usize::MAX);
    let mut product = q8_0(&weights, &activations, &mut outs[0]);
    product.weights.bytes = &[];
    let error = compute(&multiplier, Some(&residents), &mut product).unwrap_err();
    assert!(matches!(error, MulMatError::NotPacked), "{error}");
}

#[test]
fn a_bad_activation_row_gives_nan_and_leaves_the_others() {
    let weights = q8_0_weights();
    let (mut activations, _) = lay_out([32, 2, 1, 1], [1, 2, 3], 0, 0.0, activation);
    activations[40] = f32::INFINITY;
    let mut out = [0.0; 6];
    let mut product = q8_0(&weights, &activations, &mut out);
    compute(&Plain::default(), None, &mut product).unwrap();
    assert!(out[..3].iter().all(|value| value.is_finite()));
    assert!(out[3..].iter().all(|value| value.is_nan()));
}

#[test]
fn damaged_weights_are_an_error() {
    let mut weights = q8_0_weights();
    weights[34..36].copy_from_slice(&f16::NAN.to_le_bytes());
    let activations = [1.0; 64];
    let mut out = [0.0; 6];
    let mut product = q8_0(&weights, &activations, &mut out);
    let error = compute(&Plain::default(), None, &mut product).unwrap_err();
    assert!(error.to_string().contains("row 1"), "{error}");
}

#[test]
fn a_short_tensor_is_an_error_not_a_read_behind_it() {
    let weights = q8_0_weights();
    let activations = [1.0; 64];
    for (weights, activations) in [
        (&weights[..101], &activations[..]),
        (&weights[..], &activations[..63]),
    ] {
        let mut out = [0.0; 6];
        let mut product = q8_0(weights, activations, &mut out);
        let error = compute(&Plain::default(), None, &mut product).unwrap_err();
        assert!(matches!(error, MulMatError::Data(_)), "{error}");
    }
    let mut short = [0.0; 5];
    let mut product = q8_0(&weights, &activations, &mut short);
    assert!(compute(&Plain::default(), None, &mut product).is_err());
}

#[test]
fn a_killed_job_is_an_error() {
    let weights = q8_0_weights();
    let activations = [1.0; 64];
    let mut out = [0.0; 6];
    let multiplier = Plain {
        broken: true,
        ..Plain::default()
    };
    let mut product = q8_0(&weights, &activations, &mut out);
    let error = compute(&multiplier, None, &mut product).unwrap_err();
    assert_eq!(error.to_string(), "job killed");
}
