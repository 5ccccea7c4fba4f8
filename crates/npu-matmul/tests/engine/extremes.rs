// SPDX-License-Identifier: MIT OR Apache-2.0
//! The widest and the deepest matmuls of language models, complete: a vocabulary of 262144 tokens
//! (Gemma 3's) and a dot product of 32768, on a strict model.

use npu_matmul::{Dtype, PlanOptions, Weights};

use crate::common::{DEVICES, Shape, check, check_product, random_i4, random_i8, strict_engine};

const VOCABULARY: Shape = Shape::new(3, 262_144, 2304);
const DEEP: Shape = Shape::new(37, 64, 32_768);

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
        let Shape { m, n, k } = shape;
        let (a, b) = (random_i8(1, m * k), random_i8(2, n * k));
        let weights = engine.load(Weights::i8(n, k, &b)).unwrap();
        check_product(&engine, &weights, &a, &b);
        let (a, b) = (random_i4(1, m * k), random_i4(2, n * k));
        let weights = engine.load(Weights::i4(n, k, &b)).unwrap();
        check_product(&engine, &weights, &a, &b);
    }
    assert_eq!(model.events(), []);
}

#[test]
fn a_deep_sum_of_floats_is_within_its_bound() {
    let (engine, model) = strict_engine(PlanOptions::default(), DEVICES);
    check(&engine, Dtype::Fp16, DEEP, 1);
    assert_eq!(model.events(), []);
}
