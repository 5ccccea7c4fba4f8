// SPDX-License-Identifier: MIT OR Apache-2.0
//! Wrong arguments: an error says what is wrong and where.

use npu_matmul::attention::AttentionShape;
use npu_matmul::plan::PlanOptions;
use npu_matmul::{Error, PlanError, Weights};

use crate::common::attention::{CASE, Case, Operands};
use crate::common::{multiply, random_f16, random_i4};

/// Checks that an error says this.
fn refused<T>(result: Result<T, Error>, why: &str) {
    let error = result.err().unwrap().to_string();
    assert!(error.contains(why), "{error}");
}

#[test]
fn operands_that_do_not_fit_are_refused() {
    let engine = crate::common::engine();
    let halves = random_f16(1, 7);
    for (weights, why) in [
        (Weights::i8(0, 5, &[]), "N is 0"),
        (Weights::i4(5, 0, &[]), "K is 0"),
        (Weights::w8a8(0, 0, &[]), "N is 0"),
        (
            Weights::i8(2, 3, &[0; 5]),
            "B has 5 elements; its given size is 2 x 3",
        ),
        (Weights::f16(2, 3, &halves), "B has 7 elements"),
        (Weights::i4(2, 2, &[0, -8, 8, 0]), "B[2] is 8"),
        (
            Weights::i8(usize::MAX, usize::MAX, &[]),
            "could overflow 32 bits",
        ),
        (
            Weights::i4(1, usize::MAX, &[]),
            "at most 33554431 are allowed",
        ),
        (Weights::w8a8(1, 133_145, &[]), "B has 0 elements"),
    ] {
        refused(engine.load(weights), why);
    }

    let bytes = engine.load(Weights::i8(2, 3, &[1; 6])).unwrap();
    let mut c = [0; 4];
    for (m, a, columns, why) in [
        (0, &[][..], 0, "M is 0"),
        (2, &[0; 5][..], 4, "A has 5 elements"),
        (2, &[0; 6][..], 3, "C has 3 elements"),
        (usize::MAX, &[0; 6][..], 4, "rows that one call takes"),
    ] {
        refused(multiply(&engine, &bytes, m, a, &mut c[..columns]), why);
    }
}

#[test]
fn weights_of_another_kind_are_refused() {
    let engine = crate::common::engine();
    let bytes = engine.load(Weights::i8(2, 3, &[1; 6])).unwrap();
    let nibbles = engine.load(Weights::i4(2, 3, &random_i4(1, 6))).unwrap();
    let halves = engine.load(Weights::f16(2, 3, &random_f16(1, 6))).unwrap();
    let scaled = engine.load(Weights::w8a8(2, 3, &[1.0; 6])).unwrap();
    let (mut ints, mut floats) = ([0_i32; 2], [0.0_f32; 2]);
    let (a, integers, singles) = (random_f16(1, 3), [0_i8; 3], [0.0_f32; 3]);
    let needed = "these activations need";
    refused(
        multiply(&engine, &halves, 1, &integers, &mut floats),
        needed,
    );
    refused(multiply(&engine, &bytes, 1, &a, &mut ints), needed);
    refused(multiply(&engine, &nibbles, 1, &singles, &mut ints), needed);
    refused(
        multiply(&engine, &scaled, 1, &integers, &mut floats),
        needed,
    );
    let output = "cannot give";
    refused(multiply(&engine, &halves, 1, &a, &mut ints), output);
    refused(multiply(&engine, &bytes, 1, &integers, &mut floats), output);
    refused(multiply(&engine, &scaled, 1, &singles, &mut ints), output);
    let prepared = engine.prepare(&bytes, 1).unwrap();
    refused(prepared.run(&integers, &mut floats), output);
    refused(
        multiply(&engine, &nibbles, 1, &[0_i8, 0, -9], &mut ints),
        "A[2] is -9",
    );
}

#[test]
fn attention_without_a_plan_is_known_before_there_are_operands() {
    let case = Case {
        heads: 4,
        kv_heads: 1,
        rows: 8,
        keys: 4096,
        ..CASE
    };
    let mut operands = Operands::new(&case, 1);
    let batch = operands.call().batch();
    let mut options = PlanOptions::default();
    let roomy = crate::common::engine_with(options.clone(), 1);
    roomy.can_attend(&batch).unwrap();
    // Fewer bytes than the keys need.
    options.limits.buffer_bytes = case.keys * case.head_dim;
    let engine = crate::common::engine_with(options, 1);
    let why = engine.can_attend(&batch).unwrap_err();
    let expected = PlanError::TooManyKeys {
        keys: case.keys,
        head_dim: case.head_dim,
        value_dim: case.value_dim,
    };
    assert_eq!(why.to_string(), expected.to_string());
    let fewer = AttentionShape { keys: 64, ..batch };
    engine.can_attend(&fewer).unwrap();
    let error = engine.attend([operands.call()]).unwrap_err();
    assert_eq!(error.source.to_string(), why.to_string());
}
