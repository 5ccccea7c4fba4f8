// SPDX-License-Identifier: MIT OR Apache-2.0
//! What happens when the caller is wrong: a typed error that says what and
//! where.
#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests: a failed unwrap is a failed test"
)]

mod common;

use common::{random_f16, random_i4};
use npu_matmul::plan::{PlanOptions, candidates};
use npu_matmul::{Dtype, Error, PlanError, Weights};

#[test]
fn operands_that_do_not_fit_are_refused() {
    let engine = common::engine();
    let zero = |result: Result<Weights, Error>, name| {
        let error = result.unwrap_err();
        assert!(
            matches!(&error, Error::Plan(PlanError::EmptyDimension { dimension }) if *dimension == name),
            "{error:?}"
        );
    };
    zero(engine.load_i8(0, 5, &[]), "N");
    zero(engine.load_i4(5, 0, &[]), "K");
    zero(engine.load_i8_quantised(0, 0, &[]), "N");
    assert!(matches!(
        engine.load_i8(2, 3, &[0; 5]),
        Err(Error::OperandLength {
            operand: "B",
            rows: 2,
            columns: 3,
            actual: 5
        })
    ));
    assert!(matches!(
        engine.load_f16(2, 3, &random_f16(1, 7)),
        Err(Error::OperandLength { operand: "B", .. })
    ));
    assert!(matches!(
        engine.load_i4(2, 2, &[0, -8, 8, 0]),
        Err(Error::Int4Range {
            operand: "B",
            index: 2,
            value: 8
        })
    ));
    assert!(matches!(
        engine.load_i8(usize::MAX, usize::MAX, &[]),
        Err(Error::Plan(_))
    ));
    assert!(matches!(
        engine.load_i4(1, usize::MAX, &[]),
        Err(Error::Plan(_))
    ));
    assert!(matches!(
        candidates(Dtype::Int4, 1, usize::MAX, 1, &PlanOptions::default()),
        Err(PlanError::GroupTooLarge { .. })
    ));
    assert!(matches!(
        engine.load_i8_quantised(1, 133_153, &[]),
        Err(Error::TooDeep { .. } | Error::OperandLength { .. })
    ));

    let bytes = engine.load_i8(2, 3, &[1; 6]).unwrap();
    let mut c = [0; 4];
    let error = engine.multiply_i32(&bytes, 0, &[], &mut []).unwrap_err();
    assert!(matches!(
        error,
        Error::Plan(PlanError::EmptyDimension { dimension: "M" })
    ));
    assert!(matches!(
        engine.multiply_i32(&bytes, 2, &[0; 5], &mut c),
        Err(Error::OperandLength { operand: "A", .. })
    ));
    assert!(matches!(
        engine.multiply_i32(&bytes, 2, &[0; 6], &mut c[..3]),
        Err(Error::OperandLength { operand: "C", .. })
    ));
    assert!(matches!(
        engine.multiply_i32(&bytes, usize::MAX, &[0; 6], &mut c),
        Err(Error::Plan(PlanError::TooManyRows { .. }))
    ));
}

#[test]
fn weights_of_another_kind_or_engine_are_refused() {
    let engine = common::engine();
    let bytes = engine.load_i8(2, 3, &[1; 6]).unwrap();
    let nibbles = engine.load_i4(2, 3, &random_i4(1, 6)).unwrap();
    let halves = engine.load_f16(2, 3, &random_f16(1, 6)).unwrap();
    let (mut ints, mut floats) = ([0; 2], [0.0; 2]);
    let wrong = |result: Result<(), Error>| {
        let error = result.unwrap_err();
        assert!(matches!(error, Error::WrongWeights { .. }), "{error:?}");
    };
    wrong(engine.multiply_i32(&halves, 1, &[0; 3], &mut ints));
    wrong(engine.multiply_f32(&bytes, 1, &random_f16(1, 3), &mut floats));
    wrong(engine.multiply_f32(&nibbles, 1, &random_f16(1, 3), &mut floats));
    wrong(engine.multiply_quantised(&bytes, 1, &[0.0; 3], &mut floats));
    assert!(matches!(
        engine.multiply_i32(&nibbles, 1, &[0, 0, -9], &mut ints),
        Err(Error::Int4Range {
            operand: "A",
            index: 2,
            value: -9
        })
    ));
    wrong(engine.multiply_w4a8_i32(&bytes, 1, &[0; 3], &mut ints));
    let error = engine.multiply_w4a8_i32(&nibbles, 1, &[119, -128, 120], &mut ints);
    let error = error.unwrap_err();
    assert!(matches!(
        error,
        Error::SplitRange {
            index: 2,
            value: 120
        }
    ));
    assert!(error.to_string().starts_with("A[2] is 120"));
    let other = common::engine();
    assert!(matches!(
        other.multiply_i32(&bytes, 1, &[0; 3], &mut ints),
        Err(Error::ForeignWeights)
    ));
}
