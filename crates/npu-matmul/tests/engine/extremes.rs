// SPDX-License-Identifier: MIT OR Apache-2.0
//! The widest and the deepest matmuls of language models, complete: a vocabulary of 262144 tokens
//! (Gemma 3's) and a dot product of 32768, on a strict model.

use npu_matmul::{Dtype, Engine, PlanOptions, Weights, reference};

use crate::common::{DEVICES, Random, Shape, check, multiply, strict_engine};

/// Columns that are compared; the reference would take minutes for all.
const COLUMNS: usize = 64;

const VOCABULARY: Shape = Shape::new(3, 262_144, 2304);
const DEEP: Shape = Shape::new(37, 64, 32_768);

/// 8-bit numbers, eight from each random number, since there are many.
fn bytes(seed: u64, len: usize) -> Vec<i8> {
    let mut random = Random::new(seed);
    let mut all = vec![0_i8; len];
    for chunk in all.chunks_mut(8) {
        for (to, from) in chunk.iter_mut().zip(random.next().to_le_bytes()) {
            *to = from.cast_signed();
        }
    }
    all
}

/// Columns spread over the matrix, including the first and the last.
fn columns(n: usize) -> impl Iterator<Item = usize> {
    let count = COLUMNS.min(n);
    (0..count).map(move |index| index * (n - 1) / (count - 1).max(1))
}

fn check_columns(engine: &Engine, shape: Shape, bits: u32) {
    let Shape { m, n, k } = shape;
    // An arithmetic shift keeps the sign.
    let narrow = |mut all: Vec<i8>| {
        all.iter_mut().for_each(|x| *x >>= 8 - bits);
        all
    };
    let (a, b) = (narrow(bytes(1, m * k)), narrow(bytes(2, n * k)));
    let weights = match bits {
        4 => engine.load(Weights::i4(n, k, &b)).unwrap(),
        _ => engine.load(Weights::i8(n, k, &b)).unwrap(),
    };
    let mut c = vec![i32::MIN; m * n];
    multiply(engine, &weights, m, &a, &mut c).unwrap();
    for column in columns(n) {
        let b = &b[column * k..][..k];
        let want = reference::multiply_i32(m, 1, k, &a, b);
        let got: Vec<i32> = (0..m).map(|row| c[row * n + column]).collect();
        assert_eq!(got, want, "column {column} of {shape:?}, {bits} bits");
    }
}

#[test]
fn a_vocabulary_and_a_deep_sum_are_exact() {
    let (engine, model) = strict_engine(PlanOptions::default(), DEVICES);
    for shape in [VOCABULARY, DEEP] {
        if shape.n > shape.k && test_support::emulated() {
            println!(
                "SKIP a_vocabulary_and_a_deep_sum_are_exact: {shape:?} would take an emulator \
                 minutes"
            );
            continue;
        }
        for bits in [8, 4] {
            check_columns(&engine, shape, bits);
        }
    }
    assert_eq!(model.events(), []);
}

#[test]
fn a_deep_sum_of_floats_is_within_its_bound() {
    let (engine, model) = strict_engine(PlanOptions::default(), DEVICES);
    check(&engine, Dtype::Fp16, DEEP, 1);
    assert_eq!(model.events(), []);
}
