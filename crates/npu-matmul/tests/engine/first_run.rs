// SPDX-License-Identifier: MIT OR Apache-2.0
//! On an uncalibrated NPU the first task of each kind is checked, and the cause of a wrong result
//! is not used again.

use std::sync::Arc;

use half::f16;
use npu_matmul::profile::Board;
use npu_matmul::{
    Dtype, Engine, Error, MatmulKind, PlanOptions, Profile, Remedy, WeightFormat, Weights,
    WrongResult, reference,
};
use npu_model::{Model, ModelOptions};

use crate::common::lying::lying_engine;
use crate::common::matmul::Matmul;
use crate::common::{Shape, engine_on, multiply, random_f16, random_i8, reusing};

const M: usize = 18;
const K: usize = 64;
const N: usize = 128;

fn wrong(result: Result<(), Error>) -> WrongResult {
    let found = match result {
        Err(Error::WrongResult { source, .. }) => Some(*source),
        _ => None,
    };
    found.unwrap()
}

/// Options with narrow tiles, so that jobs have several tasks.
fn narrow() -> PlanOptions {
    PlanOptions {
        n_tile: Some(64),
        ..PlanOptions::default()
    }
}

/// Runs a matmul of this precision.
fn run(engine: &Engine, dtype: Dtype) -> Result<(), Error> {
    let format = match dtype {
        Dtype::Int8 => WeightFormat::Int8,
        Dtype::Int4 => WeightFormat::Int4,
        Dtype::Fp16 => WeightFormat::Fp16,
    };
    let matmul = Matmul::new(engine, format, Shape::new(M, N, K), 1)?;
    match dtype {
        Dtype::Int8 | Dtype::Int4 => matmul.check(engine),
        // Some tests let wrong results pass.
        Dtype::Fp16 => matmul.run(engine).map(drop),
    }
}

#[test]
fn a_wrong_row_at_either_end_is_found_in_each_type_which_is_then_refused() {
    for dtype in Dtype::ALL {
        for last in [false, true] {
            let engine = if last {
                lying_engine(PlanOptions::default(), |job, task, _| {
                    let rows = job.job.band.rows.len();
                    Some([rows - 1, task.n.len() - 1])
                })
            } else {
                lying_engine(PlanOptions::default(), |_, _, _| Some([0, 5]))
            };
            let found = wrong(run(&engine, dtype));
            let kind = MatmulKind::resident(dtype);
            assert_eq!(
                (found.kind.dtype, found.remedy),
                (dtype, Remedy::Refuse(kind))
            );
            let row = if last { found.kind.rows - 1 } else { 0 };
            assert_eq!(found.row, row);
            assert_ne!(found.got, found.expected);
            let refused = run(&engine, dtype).unwrap_err();
            assert!(
                matches!(refused, Error::Distrusted { kind: k } if k == kind),
                "{refused}"
            );
            assert!(!engine.is_usable(dtype));
        }
    }
}

/// Operands that show nothing leave the kind unchecked.
#[test]
fn zeros_and_operands_that_are_not_finite_prove_nothing() {
    let engine = lying_engine(PlanOptions::default(), |_, _, _| None);
    let b = random_f16(2, N * K);
    let weights = engine.load(Weights::f16(N, K, &b)).unwrap();
    let mut checked = 0;
    for (value, is_proof) in [
        (f16::ZERO, false),
        (f16::NAN, false),
        (f16::INFINITY, false),
        (f16::ONE, true),
        (f16::ONE, true),
    ] {
        let before = engine.counters().checked_tasks;
        let a = vec![value; M * K];
        multiply(&engine, &weights, M, &a, &mut vec![0.0_f32; M * N]).unwrap();
        let is_checked = engine.counters().checked_tasks > before;
        assert_eq!(is_checked, checked == 0, "{value}");
        checked += usize::from(is_proof);
    }
}

/// Wrong results of streamed weights leave resident ones usable.
#[test]
fn a_kind_is_refused_rather_than_a_precision() {
    let streams = PlanOptions {
        n_tile: Some(4096),
        unmeasured_tiles: Some(true),
        ..PlanOptions::default()
    };
    let engine = lying_engine(streams, |_, task, _| {
        (task.n.len() > 1000).then_some([0, 5])
    });
    let n = 4096;
    let b = random_i8(2, n * 512);
    let wide = engine.load(Weights::i8(n, 512, &b)).unwrap();
    let a = random_i8(1, M * 512);
    let mut c = vec![0; M * n];
    let found = wrong(multiply(&engine, &wide, M, &a, &mut c));
    let kind = MatmulKind {
        dtype: Dtype::Int8,
        streams: true,
    };
    assert_eq!(found.remedy, Remedy::Refuse(kind));
    let text = found.to_string();
    assert!(
        text.contains("whose weights stream through CBUF are refused"),
        "{text}"
    );
    let refused = multiply(&engine, &wide, M, &a, &mut c).unwrap_err();
    assert!(
        matches!(refused, Error::Distrusted { kind: k } if k == kind),
        "{refused}"
    );
    assert!(engine.is_usable(Dtype::Int8));
    run(&engine, Dtype::Int8).unwrap();
}

/// Without the check wrong results pass, so the test above is effective.
#[test]
fn without_the_check_wrong_results_pass() {
    let options = PlanOptions {
        check_first: Some(false),
        ..PlanOptions::default()
    };
    let engine = lying_engine(options, |_, _, _| Some([0, 5]));
    run(&engine, Dtype::Fp16).unwrap();
    assert_eq!(engine.counters().checked_tasks, 0);
}

#[test]
fn one_refused_precision_leaves_the_others() {
    let engine = lying_engine(PlanOptions::default(), |job, _, _| {
        (job.dtype == Dtype::Int8).then_some([1, 0])
    });
    // Row 1 is not compared in a large tile; a smaller tile has it in the middle.
    let b = random_i8(2, N * K);
    let weights = engine.load(Weights::i8(N, K, &b)).unwrap();
    let (a, mut c) = (random_i8(1, 2 * K), vec![0; 2 * N]);
    let found = wrong(multiply(&engine, &weights, 2, &a, &mut c));
    assert_eq!((found.row, found.column), (1, 0));
    run(&engine, Dtype::Fp16).unwrap();
    run(&engine, Dtype::Int4).unwrap();
}

/// Matmuls that were prepared before are right afterwards, too.
#[test]
fn where_only_reuse_is_wrong_the_next_call_is_right_without_it() {
    let engine = lying_engine(reusing(narrow()), |_, _, reuse| {
        (reuse.features || reuse.weights).then_some([0, 0])
    });
    let (a, b) = (random_i8(1, M * K), random_i8(2, N * K));
    let weights = engine.load(Weights::i8(N, K, &b)).unwrap();
    let gemm = engine.prepare(&weights, M).unwrap();
    let mut c = vec![0; M * N];
    let found = wrong(gemm.run(&a, &mut c));
    assert_eq!(found.remedy, Remedy::NoReuse(Dtype::Int8));
    assert!(found.to_string().contains("run the call again"), "{found}");
    for _ in 0..2 {
        c.fill(0);
        gemm.run(&a, &mut c).unwrap();
        assert!(c == reference::multiply_i32(M, N, K, &a, &b));
    }
    assert!(engine.is_usable(Dtype::Int8));
    // INT4 still reuses data; its wrong result is found separately.
    let found = wrong(run(&engine, Dtype::Int4));
    assert_eq!(found.remedy, Remedy::NoReuse(Dtype::Int4));
    run(&engine, Dtype::Int4).unwrap();
}

#[test]
fn each_kind_is_checked_once() {
    let engine = lying_engine(reusing(narrow()), |_, _, _| None);
    let checked = || engine.counters().checked_tasks;
    let mut before = 0;
    for dtype in Dtype::ALL {
        run(&engine, dtype).unwrap();
        assert!(checked() > before, "{dtype}");
        before = checked();
        run(&engine, dtype).unwrap();
        assert_eq!(checked(), before, "{dtype}");
    }
    assert!(!engine.times().check.is_zero());
    // Another tile.
    let b = random_i8(2, N * K);
    let weights = engine.load(Weights::i8(N, K, &b)).unwrap();
    let (a, mut c) = (random_i8(1, K), vec![0; N]);
    multiply(&engine, &weights, 1, &a, &mut c).unwrap();
    assert!(checked() > before);
}

#[test]
fn operands_that_are_not_finite_are_no_fault() {
    let engine = lying_engine(PlanOptions::default(), |_, _, _| None);
    let (mut a, b) = (random_f16(1, M * K), random_f16(2, N * K));
    a[0] = f16::NAN;
    a[K * (M - 1)] = f16::INFINITY;
    let weights = engine.load(Weights::f16(N, K, &b)).unwrap();
    multiply(&engine, &weights, M, &a, &mut vec![0.0_f32; M * N]).unwrap();
}

#[test]
fn calibrated_boards_and_the_model_are_not_checked() {
    let with_profile = |measured, is_model| {
        let mut profile = Profile::clone(&Profile::built_in());
        profile.board = Some(Board {
            board: "any".to_owned(),
            kernel: "6.18.0".to_owned(),
            is_model,
            assigned_hz: None,
        });
        profile.measured = measured;
        PlanOptions {
            profile: Arc::new(profile),
            ..PlanOptions::default()
        }
    };
    let on_model = |options| {
        let model = Model::new(ModelOptions::default());
        engine_on(&model.open_device(), 1, options)
    };
    let calibrated = lying_engine(with_profile(true, false), |_, _, _| Some([0, 0]));
    let model = on_model(PlanOptions::default());
    // A profile that `npu-probe first` wrote on a model that imitates a board.
    let played = on_model(with_profile(false, true));
    for (engine, checks) in [(calibrated, false), (model, false), (played, true)] {
        run(&engine, Dtype::Fp16).unwrap();
        assert_eq!(engine.counters().checked_tasks > 0, checks);
    }
}
