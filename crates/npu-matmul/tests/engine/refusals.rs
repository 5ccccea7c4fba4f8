// SPDX-License-Identifier: MIT OR Apache-2.0
//! Wrong arguments: a typed error says what is wrong and where.

use npu_matmul::attention::{AttentionBatch, AttentionCall, HeadRows};
use npu_matmul::plan::{PlanOptions, WeightPlan};
use npu_matmul::{Dtype, Error, Output, PackedWeights, PlanError, Weights};

use crate::common::{multiply, random_f16, random_i4};

#[test]
fn operands_that_do_not_fit_are_refused() {
    let engine = crate::common::engine();
    let zero = |result: Result<PackedWeights, Error>, name| {
        let error = result.unwrap_err();
        assert!(
            matches!(error, Error::Plan(PlanError::EmptyDimension { dimension }) if dimension == name),
            "{error:?}"
        );
    };
    zero(engine.load(Weights::i8(0, 5, &[])), "N");
    zero(engine.load(Weights::i4(5, 0, &[])), "K");
    zero(engine.load(Weights::w8a8(0, 0, &[])), "N");
    assert!(matches!(
        engine.load(Weights::i8(2, 3, &[0; 5])),
        Err(Error::OperandLength {
            operand: "B",
            rows: 2,
            columns: 3,
            actual: 5
        })
    ));
    assert!(matches!(
        engine.load(Weights::f16(2, 3, &random_f16(1, 7))),
        Err(Error::OperandLength { operand: "B", .. })
    ));
    assert!(matches!(
        engine.load(Weights::i4(2, 2, &[0, -8, 8, 0])),
        Err(Error::Int4Range {
            operand: "B",
            index: 2,
            value: 8
        })
    ));
    assert!(matches!(
        engine.load(Weights::i8(usize::MAX, usize::MAX, &[])),
        Err(Error::Plan(_))
    ));
    assert!(matches!(
        engine.load(Weights::i4(1, usize::MAX, &[])),
        Err(Error::Plan(_))
    ));
    assert!(matches!(
        WeightPlan::new(Dtype::Int4, 1, usize::MAX, 1, &PlanOptions::default()),
        Err(PlanError::GroupTooLarge { .. })
    ));
    assert!(matches!(
        engine.load(Weights::w8a8(1, 133_145, &[])),
        Err(Error::TooDeep { .. } | Error::OperandLength { .. })
    ));

    let bytes = engine.load(Weights::i8(2, 3, &[1; 6])).unwrap();
    let mut c = [0; 4];
    let error = multiply(&engine, &bytes, 0, &[0_i8; 0], &mut [0_i32; 0]).unwrap_err();
    assert!(matches!(
        error,
        Error::Plan(PlanError::EmptyDimension { dimension: "M" })
    ));
    assert!(matches!(
        multiply(&engine, &bytes, 2, &[0_i8; 5], &mut c),
        Err(Error::OperandLength { operand: "A", .. })
    ));
    assert!(matches!(
        multiply(&engine, &bytes, 2, &[0_i8; 6], &mut c[..3]),
        Err(Error::OperandLength { operand: "C", .. })
    ));
    assert!(matches!(
        multiply(&engine, &bytes, usize::MAX, &[0_i8; 6], &mut c),
        Err(Error::Plan(PlanError::TooManyRows { .. }))
    ));
}

#[test]
fn weights_of_another_kind_or_engine_are_refused() {
    let engine = crate::common::engine();
    let bytes = engine.load(Weights::i8(2, 3, &[1; 6])).unwrap();
    let nibbles = engine.load(Weights::i4(2, 3, &random_i4(1, 6))).unwrap();
    let halves = engine.load(Weights::f16(2, 3, &random_f16(1, 6))).unwrap();
    let scaled = engine.load(Weights::w8a8(2, 3, &[1.0; 6])).unwrap();
    let (mut ints, mut floats) = ([0_i32; 2], [0.0_f32; 2]);
    let a = random_f16(1, 3);
    let wrong = |result: Result<(), Error>| {
        let error = result.unwrap_err();
        assert!(matches!(error, Error::WrongWeights { .. }), "{error:?}");
    };
    wrong(multiply(&engine, &halves, 1, &[0_i8; 3], &mut floats));
    wrong(multiply(&engine, &bytes, 1, &a, &mut ints));
    wrong(multiply(&engine, &nibbles, 1, &[0.0_f32; 3], &mut ints));
    wrong(multiply(&engine, &scaled, 1, &[0_i8; 3], &mut floats));
    let wrong = |result: Result<(), Error>| {
        let error = result.unwrap_err();
        assert!(matches!(error, Error::WrongOutput { .. }), "{error:?}");
    };
    wrong(multiply(&engine, &halves, 1, &a, &mut ints));
    wrong(multiply(&engine, &bytes, 1, &[0_i8; 3], &mut floats));
    wrong(multiply(&engine, &scaled, 1, &[0.0_f32; 3], &mut ints));
    let prepared = engine.prepare(&bytes, 1, Output::I32).unwrap();
    wrong(prepared.run(&[0_i8; 3], &mut floats));
    assert!(matches!(
        multiply(&engine, &nibbles, 1, &[0_i8, 0, -9], &mut ints),
        Err(Error::Int4Range {
            operand: "A",
            index: 2,
            value: -9
        })
    ));
    let other = crate::common::engine();
    assert!(matches!(
        multiply(&other, &bytes, 1, &[0_i8; 3], &mut ints),
        Err(Error::ForeignWeights)
    ));
}

#[test]
fn attention_without_a_plan_is_known_before_there_are_operands() {
    let (keys, dim) = (4096, 64);
    let mut options = PlanOptions::default();
    let batch = AttentionBatch {
        heads: 4,
        kv_heads: 1,
        rows: 8,
        keys,
        head_dim: dim,
        value_dim: dim,
        window: None,
    };
    assert!(
        crate::common::engine_with(options.clone(), 1)
            .can_attend(&batch)
            .is_ok()
    );
    // Fewer bytes than the keys need.
    options.limits.buffer_bytes = keys * dim;
    let engine = crate::common::engine_with(options, 1);
    let refused = engine.can_attend(&batch);
    assert!(
        matches!(refused, Err(Error::Plan(PlanError::TooManyKeys { .. }))),
        "{refused:?}"
    );
    let fewer = AttentionBatch { keys: 64, ..batch };
    assert!(engine.can_attend(&fewer).is_ok());
    let q = vec![0.5; 4 * 8 * dim];
    let kv = random_f16(3, keys * dim);
    let mut out = vec![0.0; 4 * 8 * dim];
    let rows = HeadRows::contiguous(&kv, 1, keys, dim).unwrap();
    let computed = engine.attend([AttentionCall {
        q: HeadRows::contiguous(&q, 4, 8, dim).unwrap(),
        k: rows,
        v: rows,
        mask: None,
        sinks: None,
        slopes: None,
        scale: 0.125,
        softcap: 0.0,
        out: &mut out,
    }]);
    let error = computed.unwrap_err();
    assert_eq!(error.source.to_string(), refused.unwrap_err().to_string());
}
