// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of strides, broadcasts, lists and bad numbers, on the software model.

mod by_expert;
mod formats;

use std::ops::Range;
use std::sync::{Arc, LazyLock};

use half::f16;
use npu_offload::ComputeType;
use proptest::prelude::*;
use rocket_uapi::Selector;
use zerocopy::IntoBytes;

use super::*;
use crate::abi::type_id;
use crate::descriptor::TensorDescriptor;
use crate::engine::{self, OpenedEngine};
use crate::mul_mat_error::MulMatError;
use crate::node_output::NodeOutput;
use crate::supports::Offload;
use crate::tensor_bytes::TensorBytes;
use crate::types::tests::{Q8_0, decoder, format};
use crate::verify::OutputErrors;

pub(crate) static OPENED: LazyLock<OpenedEngine> =
    LazyLock::new(|| engine::open(&Selector::Model, false, None).unwrap());
pub(crate) static SCRATCH: LazyLock<RowScratch> = LazyLock::new(RowScratch::default);

fn run(matmuls: &mut [MulMat<'_>]) -> Result<(), ListError> {
    compute(&OPENED.engine, &SCRATCH, matmuls)
}

fn run_one(matmul: MulMat<'_>) -> Result<Option<OutputErrors>, MulMatError> {
    let mut matmuls = [matmul];
    run(&mut matmuls).map_err(|ListError { error, .. }| error)?;
    Ok(matmuls[0].errors)
}

/// A table of packed weights.
fn kept() -> KeptWeights {
    KeptWeights {
        residents: Arc::default(),
        decision: None,
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

/// The definition, element by element: ggml's picture in `supports.rs`.
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
pub(crate) fn lay_out<T: Copy + IntoBytes + zerocopy::Immutable>(
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

pub(crate) const ORDERS: [[usize; 3]; 4] = [[1, 2, 3], [2, 1, 3], [1, 3, 2], [3, 2, 1]];

fn run_f16(shape: Shape, order: [usize; 3], gap: usize) -> Vec<f32> {
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
    let matmul = MulMat {
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
        out: NodeOutput::InPlace(&mut out),
        kept: None,
        errors: Some(OutputErrors::default()),
    };
    let errors = run_one(matmul).unwrap().unwrap();
    // All numbers here are small integers: nothing is rounded.
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
        let out = run_f16(shape, ORDERS[order], gap);
        prop_assert_eq!(out, reference(shape, weight, activation));
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
        out: NodeOutput::InPlace(out),
        kept: None,
        errors: None,
    }
}

/// Largest error of an output of [`q8_0`]: a step of the quantised weights and activations, times
/// the depth and the largest activation or weight.
const Q8_0_BOUND: f32 = 32.0 * (6.0 / 127.0 * 3.0 + 3.0 / 127.0 * 6.0);

fn assert_close(out: &[f32], expected: &[f32]) {
    assert_eq!(out.len(), expected.len());
    for (out, expected) in out.iter().zip(expected) {
        assert!((out - expected).abs() <= Q8_0_BOUND, "{out} {expected}");
    }
}

fn halved_weight(index: [usize; 4]) -> f32 {
    weight(index) / 2.0
}

/// The backend does not notice what a program writes by itself: weights are packed once, and
/// verifying reads them again.
#[test]
fn weights_are_packed_once_and_changes_are_seen_by_the_check() {
    let kept = kept();
    let mut weights = q8_0_weights();
    let (activations, _) = lay_out([32, 2, 1, 1], [1, 2, 3], 0, 0.0, activation);
    let compute = |weights: &[u8]| {
        let mut out = vec![0.0; 6];
        let mut matmul = q8_0(weights, &activations, &mut out);
        matmul.errors = Some(OutputErrors::default());
        matmul.kept = Some(kept.clone());
        let errors = run_one(matmul).unwrap();
        (out, errors.unwrap().nmse())
    };
    let (packed, error) = compute(&weights);
    assert_close(&packed, &reference(SQUARE, halved_weight, activation));
    assert!(error < 1e-2, "{error}");
    weights[2..34].fill(100);
    let (out, error) = compute(&weights);
    assert_eq!(out, packed);
    assert!(error > 0.1, "{error}");
    let addresses = weights.as_ptr_range();
    kept.residents
        .forget(addresses.start.addr()..addresses.end.addr());
    let (out, error) = compute(&weights);
    assert_ne!(out, packed);
    assert!(error < 1e-2, "{error}");
}

/// Like weights that the CPU has rearranged.
#[test]
fn packed_weights_need_no_bytes_and_without_either_there_is_an_error() {
    let kept = kept();
    let weights = q8_0_weights();
    let activations = [1.0; 64];
    let mut outs = [[0.0; 6]; 2];
    for (out, has_bytes) in outs.iter_mut().zip([true, false]) {
        let mut matmul = q8_0(&weights, &activations, out);
        matmul.kept = Some(kept.clone());
        if !has_bytes {
            matmul.weights.bytes = &[];
        }
        run_one(matmul).unwrap();
    }
    assert_eq!(outs[0], outs[1]);
    kept.residents.forget(0..usize::MAX);
    let mut matmul = q8_0(&weights, &activations, &mut outs[0]);
    matmul.kept = Some(kept.clone());
    matmul.weights.bytes = &[];
    let error = run_one(matmul).unwrap_err();
    assert!(matches!(error, MulMatError::NotPacked), "{error}");
}

/// Several weights multiply the same activations: these are packed once, and each result is the
/// same as alone.
#[test]
fn matmuls_of_a_list_share_their_activations() {
    const K: usize = 2048;
    const M: usize = 64;
    let numbers = |count: usize, seed: usize| -> Vec<f32> {
        let number = |index: usize| f32::from(i16::try_from(index * 37 % 61).unwrap()) / 30.5 - 1.0;
        (0..count)
            .map(|index| number((index + 7 * seed) % 1000))
            .collect()
    };
    let activations = numbers(M * K, 0);
    let weights: Vec<Vec<f32>> = (1..4).map(|seed| numbers(32 * K, seed)).collect();
    for precision in [ComputeType::Fp16, ComputeType::Int8Hadamard] {
        let mut tables: Vec<_> = weights.iter().map(|_| kept()).collect();
        let mut multiply = |at: Range<usize>, outs: &mut [Vec<f32>]| {
            let before = OPENED.engine.counters();
            let matmuls = weights[at.clone()].iter().zip(&mut tables[at]).zip(outs);
            let matmuls = matmuls.map(|((weights, kept), out)| {
                let nb = [4, 4 * K, 4 * K * 32, 4 * K * 32];
                let shape = Shape {
                    m: M,
                    n: 32,
                    k: K,
                    matrices: [1, 1],
                    repeats: [1, 1],
                };
                let nb_of_rows = [4, 4 * K, 4 * K * M, 4 * K * M];
                MulMat {
                    offload: Offload {
                        precision,
                        shape,
                        experts: None,
                    },
                    decoder: decoder(type_id::F32),
                    weights: TensorBytes {
                        bytes: weights.as_bytes(),
                        row_bytes: 4 * K,
                        nb,
                    },
                    stored: stored(type_id::F32, [K, 32, 1, 1], nb, weights.as_bytes()),
                    ids: None,
                    activations: TensorBytes {
                        bytes: activations.as_bytes(),
                        row_bytes: 4 * K,
                        nb: nb_of_rows,
                    },
                    out: NodeOutput::InPlace(out),
                    kept: Some(kept.clone()),
                    errors: None,
                }
            });
            run(&mut matmuls.collect::<Vec<_>>()).unwrap();
            let after = OPENED.engine.counters();
            after.bytes_to_device - before.bytes_to_device
        };
        let mut alone = vec![vec![0.0; M * 32]; 3];
        // The first call packs the weights and makes the programs.
        let mut all = |together: bool, outs: &mut [Vec<f32>]| match together {
            true => multiply(0..3, outs),
            false => (0..3)
                .map(|at| multiply(at..at + 1, &mut outs[at..at + 1]))
                .sum(),
        };
        all(false, &mut alone);
        let bytes_alone = all(false, &mut alone);
        let mut together = vec![vec![f32::NAN; M * 32]; 3];
        all(true, &mut together);
        let bytes_together = all(true, &mut together);
        assert_eq!(together, alone, "{precision:?}");
        assert!(bytes_together > 0, "{precision:?}");
        assert!(
            2 * bytes_together <= bytes_alone,
            "{precision:?}: {bytes_together} of {bytes_alone} bytes"
        );
    }
}

#[test]
fn a_bad_activation_row_gives_nan_and_leaves_the_others() {
    let weights = q8_0_weights();
    for bad in [f32::INFINITY, f32::NAN] {
        let (mut activations, _) = lay_out([32, 2, 1, 1], [1, 2, 3], 0, 0.0, activation);
        activations[40] = bad;
        for precision in [ComputeType::Fp16, ComputeType::Int8Hadamard] {
            let mut out = [0.0; 6];
            let mut matmul = q8_0(&weights, &activations, &mut out);
            matmul.offload.precision = precision;
            run_one(matmul).unwrap();
            let expected = reference(SQUARE, halved_weight, activation);
            assert_close(&out[..3], &expected[..3]);
            assert!(out[3..].iter().all(|value| value.is_nan()), "{precision:?}");
        }
    }
}

#[test]
fn damaged_weights_are_an_error_that_names_their_matmul() {
    let (good, mut bad) = (q8_0_weights(), q8_0_weights());
    bad[34..36].copy_from_slice(&f16::NAN.to_le_bytes());
    let activations = [1.0; 64];
    let mut outs = [[0.0; 6]; 2];
    let [first, second] = &mut outs;
    let error = run(&mut [
        q8_0(&good, &activations, first),
        q8_0(&bad, &activations, second),
    ]);
    let error = error.unwrap_err();
    assert_eq!(error.call, 1);
    let line = error.error.to_string();
    assert!(line.contains("row 1"), "{line}");
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
        let error = run_one(q8_0(weights, activations, &mut out)).unwrap_err();
        assert!(matches!(error, MulMatError::Data(_)), "{error}");
    }
    let mut short = [0.0; 5];
    assert!(run_one(q8_0(&weights, &activations, &mut short)).is_err());
}
