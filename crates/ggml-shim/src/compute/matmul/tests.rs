// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of strides, broadcasts, lists and bad numbers, on the software model.

mod by_expert;
mod formats;
mod shared_rows;

use std::ops::Range;
use std::sync::{Arc, LazyLock};

use half::{bf16, f16};
use npu_matmul::memory::MemoryShares;
use npu_offload::{ComputeType, NumberFormat};
use proptest::prelude::*;
use rocket_uapi::Selector;
use zerocopy::IntoBytes;

use super::*;
use crate::decide::offload::MatmulOffload;
use crate::entry::engine::{self, OpenedEngine};
use crate::ggml::abi::type_id;
use crate::ggml::tensor_data::{NodeOutput, TensorData};
use crate::ggml::tensor_shape::TensorShape;
use crate::ggml::types::tests::{BF16, Q8_0, format};
use crate::weights::budget::tests::accepted;
use crate::weights::node_error::NodeFailure;
use crate::weights::packed_tensor::PackedTensor;
use crate::weights::verify::OutputErrors;

pub(crate) static OPENED: LazyLock<OpenedEngine> = LazyLock::new(|| open(None));
pub(crate) static SCRATCH: LazyLock<RowScratch> = LazyLock::new(|| RowScratch::new(&OPENED.engine));

fn open(cpu_jobs: Option<bool>) -> OpenedEngine {
    let shares = MemoryShares::of(u64::MAX);
    engine::open(&Selector::Model, false, None, cpu_jobs, shares).unwrap()
}

fn run(matmuls: &mut [MatmulNode<'_>]) -> Result<(), FailedNode> {
    compute(&OPENED.engine, &SCRATCH, matmuls, MOST, &|| false)
}

fn run_one(matmul: MatmulNode<'_>) -> Result<Option<OutputErrors>, NodeFailure> {
    let mut matmuls = [matmul];
    run(&mut matmuls).map_err(|FailedNode { error, .. }| error)?;
    Ok(matmuls[0].errors)
}

/// A place for one packed matrix.
fn kept() -> Arc<PackedTensor> {
    PackedTensor::new(0..usize::MAX, accepted(1))
}

/// The definition, element by element: ggml's picture in `decide/offload.rs`.
fn reference(
    shape: MatmulSize,
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

/// A tensor in memory.
pub(crate) struct TestTensor {
    tensor: TensorShape,
    /// Its bytes, aligned like ggml's, and perhaps a few more.
    words: Vec<u64>,
}

impl TestTensor {
    pub(crate) fn rows(&self) -> TensorData<'_> {
        TensorData {
            tensor: self.tensor,
            bytes: self.words.as_bytes(),
        }
    }
}

/// Lays out a tensor of type `id` whose dimensions 1 to 3 are stored in `order`, with `gap` unused
/// blocks behind each row. All bits of unused blocks are 1, which is NaN in each float format.
pub(crate) fn lay_out(
    id: u32,
    ne: [usize; 4],
    order: [usize; 3],
    gap: usize,
    value: impl Fn([usize; 4]) -> f32,
) -> TestTensor {
    let format = format(id);
    let NumberFormat {
        block_elements,
        block_bytes,
        ..
    } = format.number;
    let blocks = ne[0] / block_elements;
    let mut nb = [block_bytes; 4];
    let mut next = (blocks + gap) * block_bytes;
    for dimension in order {
        nb[dimension] = next;
        next *= ne[dimension];
    }
    let mut words = vec![u64::MAX; next.div_ceil(8)];
    for i3 in 0..ne[3] {
        for i2 in 0..ne[2] {
            for i1 in 0..ne[1] {
                for i0 in 0..blocks {
                    let at = i0 * nb[0] + i1 * nb[1] + i2 * nb[2] + i3 * nb[3];
                    let element = |index| value([i0 * block_elements + index, i1, i2, i3]);
                    encode(id, element, &mut words.as_mut_bytes()[at..][..block_bytes]);
                }
            }
        }
    }
    let ne = ne.map(|size| i64::try_from(size).unwrap());
    let tensor = TensorShape { format, ne, nb };
    TestTensor { tensor, words }
}

/// Lays out a tensor without gaps, in the order of its dimensions.
pub(crate) fn dense(id: u32, ne: [usize; 4], value: impl Fn([usize; 4]) -> f32) -> TestTensor {
    lay_out(id, ne, ORDERS[0], 0, value)
}

/// Writes one block.
fn encode(id: u32, element: impl Fn(usize) -> f32, to: &mut [u8]) {
    match id {
        type_id::F32 => to.copy_from_slice(&element(0).to_le_bytes()),
        type_id::F16 => to.copy_from_slice(&f16::from_f32(element(0)).to_le_bytes()),
        BF16 => to.copy_from_slice(&bf16::from_f32(element(0)).to_le_bytes()),
        type_id::I32 => to.copy_from_slice(&(element(0) as i32).to_le_bytes()),
        Q8_0 => {
            let scale = 1.0 / 64.0;
            let (head, elements) = to.split_at_mut(2);
            head.copy_from_slice(&f16::from_f32(scale).to_le_bytes());
            for (index, to) in elements.iter_mut().enumerate() {
                *to = ((element(index) / scale) as i8).cast_unsigned();
            }
        }
        other => panic!("type {other}"),
    }
}

/// The matmul of two tensors. It is not verified, and keeps no weights.
fn matmul<'a>(
    precision: ComputeType,
    weights: &'a TestTensor,
    activations: &'a TestTensor,
    out: &'a mut [f32],
) -> MatmulNode<'a> {
    let sizes = |data: &TestTensor| data.tensor.dimensions().unwrap();
    let ([k, n, b2, b3], [_, m, a2, a3]) = (sizes(weights), sizes(activations));
    MatmulNode {
        offload: MatmulOffload {
            precision,
            shape: MatmulSize {
                m,
                n,
                k,
                matrices: [b2, b3],
                repeats: [a2 / b2, a3 / b3],
            },
            experts: None,
        },
        weights: weights.rows(),
        ids: None,
        activations: activations.rows(),
        out: NodeOutput::InPlace(out),
        kept: None,
        errors: None,
    }
}

pub(crate) const ORDERS: [[usize; 3]; 4] = [[1, 2, 3], [2, 1, 3], [1, 3, 2], [3, 2, 1]];

proptest! {
    #![proptest_config(test_support::cases(64))]

    #[test]
    fn any_stride_and_broadcast_equals_the_definition(
        m in 1..5_usize, n in 1..5_usize, k in 1..9_usize,
        b2 in 1..4_usize, b3 in 1..3_usize, r2 in 1..4_usize, r3 in 1..3_usize,
        order in 0..ORDERS.len(), gap in 0..3_usize,
    ) {
        let shape = MatmulSize { m, n, k, matrices: [b2, b3], repeats: [r2, r3] };
        let weights = lay_out(type_id::F16, [k, n, b2, b3], ORDERS[order], gap, weight);
        let rows = [k, m, b2 * r2, b3 * r3];
        let activations = lay_out(type_id::F32, rows, ORDERS[order], gap, activation);
        let expected = reference(shape, weight, activation);
        let mut out = vec![f32::NAN; expected.len()];
        let mut matmul = matmul(ComputeType::Fp16, &weights, &activations, &mut out);
        matmul.errors = Some(OutputErrors::default());
        let errors = run_one(matmul).unwrap().unwrap();
        // All numbers here are small integers: nothing is rounded.
        let energy: f64 = out.iter().map(|x| f64::from(x * x)).sum();
        prop_assert_eq!((errors.differences, errors.outputs), (0.0, energy));
        prop_assert_eq!(out, expected);
    }
}

const SQUARE: MatmulSize = MatmulSize {
    m: 2,
    n: 3,
    k: 32,
    matrices: [1, 1],
    repeats: [1, 1],
};

const INT8: ComputeType = ComputeType::Int8Hadamard;

/// A quarter of [`weight`], which Q8_0 represents exactly.
fn small_weight(index: [usize; 4]) -> f32 {
    weight(index) / 4.0
}

fn q8_0_weights() -> TestTensor {
    dense(Q8_0, [SQUARE.k, SQUARE.n, 1, 1], small_weight)
}

fn activations(value: impl Fn([usize; 4]) -> f32) -> TestTensor {
    let ne = [SQUARE.k, SQUARE.m, 1, 1];
    dense(type_id::F32, ne, value)
}

/// Largest error of an output of these tensors in INT8: a step of the quantised weights and
/// activations, times the depth and the largest activation or weight.
const Q8_0_BOUND: f32 = 32.0 * (3.0 / 127.0 * 3.0 + 3.0 / 127.0 * 3.0);

fn assert_close(out: &[f32], expected: &[f32]) {
    assert_eq!(out.len(), expected.len());
    for (out, expected) in out.iter().zip(expected) {
        assert!((out - expected).abs() <= Q8_0_BOUND, "{out} {expected}");
    }
}

/// The backend does not notice what a program writes by itself: weights are packed once, and
/// verifying reads them again.
#[test]
fn weights_are_packed_once_and_changes_are_seen_by_the_check() {
    let kept = kept();
    let mut weights = q8_0_weights();
    let activations = activations(activation);
    let compute = |weights: &TestTensor| {
        let mut out = vec![0.0; 6];
        let mut matmul = matmul(INT8, weights, &activations, &mut out);
        matmul.errors = Some(OutputErrors::default());
        matmul.kept = Some(Arc::clone(&kept));
        let errors = run_one(matmul).unwrap();
        (out, errors.unwrap().nmse())
    };
    let (packed, error) = compute(&weights);
    assert_close(&packed, &reference(SQUARE, small_weight, activation));
    assert!(error < 1e-2, "{error}");
    // The scale and the elements of a block.
    weights.words.as_mut_bytes()[..34].fill(100);
    let (out, error) = compute(&weights);
    assert_eq!(out, packed);
    assert!(error > 0.1, "{error}");
    kept.forget();
    let (out, error) = compute(&weights);
    assert_ne!(out, packed);
    assert!(error < 1e-2, "{error}");
}

/// Like weights that the CPU has rearranged.
#[test]
fn packed_weights_need_no_bytes_and_without_either_there_is_an_error() {
    let kept = kept();
    let weights = q8_0_weights();
    let activations = activations(|_| 1.0);
    let compute = |has_bytes: bool| {
        let mut out = [0.0; 6];
        let mut matmul = matmul(INT8, &weights, &activations, &mut out);
        matmul.kept = Some(Arc::clone(&kept));
        if !has_bytes {
            matmul.weights.bytes = &[];
        }
        run_one(matmul).map(|_| out)
    };
    assert_eq!(compute(true).unwrap(), compute(false).unwrap());
    kept.forget();
    let error = compute(false).unwrap_err();
    assert!(matches!(error, NodeFailure::NotPacked), "{error}");
}

/// Several weights multiply the same activations: these are packed once, and each result is the
/// same as alone.
#[test]
fn matmuls_of_a_list_share_their_activations() {
    const K: usize = 2048;
    const M: usize = 64;
    let numbers = |rows: usize, seed: usize| {
        dense(type_id::F32, [K, rows, 1, 1], |[k, row, ..]| {
            let number = (row * K + k + 7 * seed) % 1000 * 37 % 61;
            f32::from(i16::try_from(number).unwrap()) / 30.5 - 1.0
        })
    };
    let activations = numbers(M, 0);
    let weights = [1, 2, 3].map(|seed| numbers(32, seed));
    for precision in [ComputeType::Fp16, INT8] {
        let tables = [1, 2, 3].map(|_| kept());
        let multiply = |at: Range<usize>, outs: &mut [Vec<f32>]| {
            let before = OPENED.engine.counters();
            let mut matmuls = Vec::new();
            for (at, out) in at.zip(outs) {
                let mut matmul = matmul(precision, &weights[at], &activations, out);
                matmul.kept = Some(Arc::clone(&tables[at]));
                matmuls.push(matmul);
            }
            run(&mut matmuls).unwrap();
            let after = OPENED.engine.counters();
            after.bytes_to_device - before.bytes_to_device
        };
        let mut alone = vec![vec![0.0; M * 32]; 3];
        let mut together = vec![vec![f32::NAN; M * 32]; 3];
        // The first calls pack the weights and make the programs. Other tests use the engine, too:
        // the least counts.
        let bytes = [(); 8].map(|()| {
            let one_by_one = (0..3).map(|at| multiply(at..at + 1, &mut alone[at..=at]));
            [one_by_one.sum::<u64>(), multiply(0..3, &mut together)]
        });
        let least = |at: usize| bytes.iter().map(|bytes| bytes[at]).min().unwrap();
        let [bytes_alone, bytes_together] = [0, 1].map(least);
        assert_eq!(together, alone, "{precision:?}");
        assert!(bytes_together > 0, "{precision:?}");
        assert!(
            2 * bytes_together <= bytes_alone,
            "{precision:?}: {bytes_together} of {bytes_alone} bytes"
        );
    }
}

/// The rules have the engine's option. Outputs are the same whoever computes the jobs: whether the CPU
/// gets one depends on the time, and the engine's tests hold jobs for it.
#[test]
fn the_option_of_cpu_jobs_changes_no_output() {
    let [m, k, n] = [192, 256, 1024];
    let weights = dense(type_id::F16, [k, n, 1, 1], weight);
    let activations = dense(type_id::F32, [k, m, 1, 1], activation);
    let [default, off, on] = [None, Some(false), Some(true)].map(|cpu_jobs| {
        let opened = open(cpu_jobs);
        assert_eq!(opened.target.options().cpu_jobs, cpu_jobs);
        let scratch = RowScratch::new(&opened.engine);
        // Far more jobs than are submitted before the CPU looks for one.
        let mut outs = vec![vec![f32::NAN; m * n]; 8];
        let matmuls = outs.iter_mut();
        let matmuls = matmuls.map(|out| matmul(INT8, &weights, &activations, out));
        let mut matmuls: Vec<_> = matmuls.collect();
        compute(&opened.engine, &scratch, &mut matmuls, MOST, &|| false).unwrap();
        // On the software model the CPU computes jobs only if it is told to.
        assert!(cpu_jobs == Some(true) || opened.engine.counters().jobs_on_cpu == 0);
        outs
    });
    assert!(default == off && on == off);
}

#[test]
fn a_bad_activation_row_gives_nan_and_leaves_the_others() {
    let weights = q8_0_weights();
    for bad in [f32::INFINITY, f32::NAN] {
        let activations = activations(|at| match at {
            [8, 1, ..] => bad,
            _ => activation(at),
        });
        for precision in [ComputeType::Fp16, INT8] {
            let mut out = [0.0; 6];
            run_one(matmul(precision, &weights, &activations, &mut out)).unwrap();
            let expected = reference(SQUARE, small_weight, activation);
            assert_close(&out[..3], &expected[..3]);
            assert!(out[3..].iter().all(|value| value.is_nan()), "{precision:?}");
        }
    }
}

#[test]
fn damaged_weights_are_an_error_that_names_their_matmul() {
    let (good, mut bad) = (q8_0_weights(), q8_0_weights());
    bad.words.as_mut_bytes()[34..36].copy_from_slice(&f16::NAN.to_le_bytes());
    let activations = activations(|_| 1.0);
    let mut outs = [[0.0; 6]; 2];
    let [first, second] = &mut outs;
    let error = run(&mut [
        matmul(INT8, &good, &activations, first),
        matmul(INT8, &bad, &activations, second),
    ]);
    let error = error.unwrap_err();
    assert_eq!(error.call, 1);
    let line = error.error.to_string();
    assert!(line.contains("row 1"), "{line}");
}

#[test]
fn a_short_tensor_is_an_error_not_a_read_behind_it() {
    let weights = q8_0_weights();
    let activations = activations(|_| 1.0);
    for (weight_bytes, activation_bytes) in [(101, 256), (102, 252)] {
        let mut out = [0.0; 6];
        let mut matmul = matmul(INT8, &weights, &activations, &mut out);
        matmul.weights.bytes = &matmul.weights.bytes[..weight_bytes];
        matmul.activations.bytes = &matmul.activations.bytes[..activation_bytes];
        let error = run_one(matmul).unwrap_err();
        assert!(matches!(error, NodeFailure::Data(_)), "{error}");
    }
    let mut short = [0.0; 5];
    assert!(run_one(matmul(INT8, &weights, &activations, &mut short)).is_err());
}

#[test]
fn a_batch_is_bounded() {
    let fits = |weights, rows, count| {
        let one = GroupLimits { weights, rows };
        let held = (1..count).fold(GroupLimits::default(), |held, _| held.with(one));
        held.fits(one, MOST)
    };
    // Experts of large models, and ones larger than the bounds.
    assert!(fits(2880 * 2880, 0, 32) && !fits(2880 * 2880, 0, 33));
    assert!(fits(4096 * 14336, 0, 4) && !fits(4096 * 14336, 0, 5));
    assert!(fits(0, (2048 + 768) * 100, 59) && !fits(0, (2048 + 768) * 100, 60));
    assert!(!fits(usize::MAX, usize::MAX, 1));
    assert!(fits(0, 0, 1000));
}
