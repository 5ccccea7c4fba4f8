// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compares attention on the NPU with its definition in float64.

use half::f16;
use npu_matmul::attention::{AttentionCall, HeadRows};
use npu_matmul::{Engine, Error, PlanOptions};
use proptest::prelude::*;

use crate::common::attention::{CASE, Case, Mask, Operands};
use crate::common::{DEVICES, engine, strict_engine, watched};

/// Computes a case, and compares the result.
fn check(engine: &Engine, case: &Case) {
    let mut operands = Operands::new(case, 1);
    engine.attend([operands.call()]).unwrap();
    let nmse = operands.nmse();
    println!("NMSE {nmse:.1e}: {case:?}");
    assert!(nmse <= 1e-6, "NMSE {nmse:e}: {case:?}");
    operands.check_bound();
}

/// Checks that programs with a board's default tiles pass the strict model and the lint.
fn on_a_board(cases: &[Case]) {
    watched(PlanOptions::uncalibrated(600_000_000), |engine| {
        for case in cases {
            check(engine, case);
        }
    });
}

#[test]
fn head_sizes() {
    let sizes = [40, 64, 80, 96, 128, 192, 256].map(|size| [size; 2]);
    let cases = sizes.into_iter().chain([[576, 512], [192, 128], [1, 1]]);
    let cases = cases.map(|[head_dim, value_dim]| Case {
        head_dim,
        value_dim,
        ..CASE
    });
    let cases: Vec<_> = cases.collect();
    on_a_board(&cases);
    // Also with the largest legal tiles.
    let engine = engine();
    cases.iter().for_each(|case| check(&engine, case));
}

#[test]
fn heads_share_keys_and_values() {
    let groups = [(4, 4), (8, 2), (6, 1), (71, 1), (1, 1), (300, 1)];
    on_a_board(&groups.map(|(heads, kv_heads)| Case {
        heads,
        kv_heads,
        rows: 17,
        ..CASE
    }));
}

#[test]
fn masks() {
    let masks = [
        Mask::None,
        Mask::Causal,
        Mask::Window(100),
        Mask::Sequences(3),
        Mask::EmptyRows,
        Mask::AnyOfHeads,
    ];
    on_a_board(&masks.map(|mask| Case {
        mask,
        rows: 130,
        keys: 900,
        ..CASE
    }));
}

#[test]
fn rows_and_keys_of_any_number() {
    // A row without keys has a bound of 0.
    let sizes = [
        [4, 0],
        [1, 1],
        [1, 300],
        [2, 63],
        [7, 64],
        [33, 65],
        [97, 511],
        [5, 1025],
    ];
    for mask in [Mask::None, Mask::Causal] {
        on_a_board(&sizes.map(|[rows, keys]| Case {
            rows,
            keys,
            mask,
            ..CASE
        }));
    }
}

#[test]
fn slopes_caps_and_sinks() {
    let changes: [fn(&mut Case); 6] = [
        |case| (case.alibi, case.mask) = (true, Mask::AnyOfHeads),
        |case| (case.softcap, case.logits) = (50.0, 10.0),
        |case| (case.softcap, case.mask) = (20.0, Mask::None),
        |case| case.sinks = true,
        |case| (case.sinks, case.mask) = (true, Mask::EmptyRows),
        |case| {
            (case.alibi, case.softcap) = (true, 30.0);
            (case.sinks, case.mask) = (true, Mask::AnyOfHeads);
        },
    ];
    on_a_board(&changes.map(|change| {
        let mut case = Case { keys: 500, ..CASE };
        change(&mut case);
        case
    }));
}

/// The largest logit is 80: most rows see one key.
/// The same bits as with keys that are as many times larger.
#[test]
fn each_kv_head_may_have_a_factor() {
    let factors = [0.25, 8.0];
    let engine = engine();
    let mut scaled = Operands::new(&CASE, 1);
    let mut expected = Operands::new(&CASE, 1);
    for (at, k) in expected.k.iter_mut().enumerate() {
        *k *= f16::from_f32(factors[at / CASE.head_dim % CASE.kv_heads]);
    }
    let mut call = scaled.call();
    call.key_scales = Some(&factors);
    engine.attend([call, expected.call()]).unwrap();
    assert_eq!(scaled.out, expected.out);
}

#[test]
fn logits_up_to_80() {
    let cases = [64, 512, 2048].map(|keys| {
        let case = Case {
            keys,
            mask: Mask::None,
            ..CASE
        };
        let mut operands = Operands::new(&case, 1);
        let logits = 80.0 / operands.largest_logit();
        Case { logits, ..case }
    });
    on_a_board(&cases);
}

/// Several calls at once, with different sizes.
#[test]
fn calls_together() {
    let (engine, _) = strict_engine(PlanOptions::default(), DEVICES);
    let cases = [
        CASE,
        Case {
            keys: 400,
            mask: Mask::None,
            ..CASE
        },
        Case {
            heads: 6,
            kv_heads: 3,
            rows: 1,
            ..CASE
        },
    ];
    let mut operands = cases.map(|case| Operands::new(&case, 3));
    engine
        .attend(operands.iter_mut().map(Operands::call))
        .unwrap();
    for operands in &mut operands {
        let together = operands.out.clone();
        assert!(operands.nmse() <= 1e-6);
        engine.attend([operands.call()]).unwrap();
        assert_eq!(operands.out, together);
    }
    engine.attend([]).unwrap();
}

/// Results have the same bits with any number of threads and devices.
#[test]
fn threads_change_no_bit() {
    let case = Case {
        heads: 8,
        rows: 150,
        keys: 700,
        ..CASE
    };
    let run = |threads: &str, devices| {
        let (engine, _) = strict_engine(PlanOptions::default(), devices);
        let engine = engine.with_threads(threads.parse().unwrap()).unwrap();
        let mut operands = Operands::new(&case, 4);
        engine.attend([operands.call()]).unwrap();
        operands.out
    };
    let expected = run("1", 3);
    for (threads, devices) in [("4", 3), ("4", 1), ("2", 2)] {
        assert_eq!(run(threads, devices), expected);
    }
}

/// A second call plans nothing, and makes no buffer or program.
#[test]
fn the_second_time_nothing_is_made() {
    let (engine, model) = strict_engine(PlanOptions::default(), DEVICES);
    let mut operands = Operands::new(
        &Case {
            rows: 300,
            keys: 600,
            ..CASE
        },
        5,
    );
    let mut run = || {
        engine.attend([operands.call()]).unwrap();
        engine.counters()
    };
    let [first, second, third] = [(); 3].map(|()| run());
    assert!(first.plans > 0 && first.jobs > 0);
    assert_eq!(third.plans, first.plans);
    // Each call writes operands, but programs only once.
    let written = second.bytes_to_device - first.bytes_to_device;
    assert_eq!(third.bytes_to_device - second.bytes_to_device, written);
    assert!(0 < written && written < first.bytes_to_device);
    assert_eq!(model.events(), []);
}

#[test]
fn operands_that_do_not_fit() {
    let (engine, _) = strict_engine(PlanOptions::default(), DEVICES);
    let mut operands = Operands::new(&CASE, 6);
    fn one(heads: usize, rows: usize, len: usize) -> Option<HeadRows<'static, f16>> {
        HeadRows::new(&[f16::ONE], [heads, rows, len], [0, 0])
    }
    assert!(one(1, 1, 2).is_none() && one(usize::MAX, usize::MAX, 1).is_some());
    let changes: [(_, fn(&mut AttentionCall<'_>)); 9] = [
        ("the number of sinks", |call| call.sinks = Some(&[0.0])),
        ("the number of slopes", |call| call.slopes = Some(&[])),
        ("the number of factors of K", |call| {
            call.key_scales = Some(&[1.0; 3]);
        }),
        ("the length of the result", |call| call.out = &mut []),
        ("the length of K's vectors", |call| {
            call.k = one(2, 70, 1).unwrap()
        }),
        ("V's number of keys", |call| call.v = one(2, 71, 1).unwrap()),
        ("V's number of heads", |call| {
            call.v = one(1, 70, 1).unwrap()
        }),
        ("the mask's number of rows", |call| call.mask = one(1, 2, 1)),
        ("the length of the mask's rows", |call| {
            call.mask = one(1, 33, 1)
        }),
    ];
    for (size, change) in changes {
        let mut call = operands.call();
        change(&mut call);
        let error = engine.attend([call]).unwrap_err();
        assert_eq!(error.call, 0);
        let is_named = matches!(error.source, Error::AttentionShape { what, .. } if what == size);
        assert!(is_named, "{size}: {error}");
    }
    // Rejected calls do not change the engine.
    engine.attend([operands.call()]).unwrap();
    assert!(operands.nmse() <= 1e-6);
}

/// Scores beyond the range in which they are exact, and those that are no numbers.
#[test]
fn values_out_of_range_are_refused() {
    let (engine, _) = strict_engine(PlanOptions::default(), DEVICES);
    let mut operands = Operands::new(
        &Case {
            mask: Mask::None,
            ..CASE
        },
        7,
    );
    let inside = operands.q.clone();
    for factor in [3e4, 1e10, 1e30, f32::INFINITY, f32::NAN] {
        for (x, inside) in operands.q.iter_mut().zip(&inside) {
            *x = inside * factor;
        }
        let error = engine.attend([operands.call()]).unwrap_err();
        let is_named = matches!(error.source, Error::AttentionOutOfRange { .. });
        assert!(is_named, "{factor}: {error}");
    }
    operands.q = inside;
    engine.attend([operands.call()]).unwrap();
    assert!(operands.nmse() <= 1e-6);
}

/// A key that a row does not see does not change the row's result. A visible NaN or infinity makes
/// it NaN.
fn check_not_finite(case: &Case, seed: u64, places: &[(bool, usize, usize)]) {
    let (engine, model) = strict_engine(PlanOptions::default(), DEVICES);
    let mut operands = Operands::new(case, seed);
    engine.attend([operands.call()]).unwrap();
    let finite = operands.out.clone();
    let mut lost = Vec::new();
    for (in_values, place, kind) in places {
        let (operand, dim) = if *in_values {
            (&mut operands.v, case.value_dim)
        } else {
            (&mut operands.k, case.head_dim)
        };
        let at = place % operand.len();
        operand[at] = [f16::NAN, -f16::NAN, f16::INFINITY, f16::NEG_INFINITY][kind % 4];
        // Sorted by key, then KV head.
        let vector = at / dim;
        lost.push((vector / case.kv_heads, vector % case.kv_heads));
    }
    engine.attend([operands.call()]).unwrap();
    let group = case.heads / case.kv_heads;
    let out = operands.out.clone();
    for (at, (got, finite)) in out
        .chunks(case.value_dim)
        .zip(finite.chunks(case.value_dim))
        .enumerate()
    {
        let (row, head) = (at / case.heads, at % case.heads);
        let mut sees = |&(key, kv_head): &(usize, usize)| {
            kv_head == head / group && operands.is_seen(head, row, key)
        };
        if lost.iter().any(&mut sees) {
            assert!(got.iter().all(|x| x.is_nan()), "row {row}, {head}: {got:?}");
        } else {
            assert_eq!(got, finite, "row {row}, {head}");
        }
    }
    assert_eq!(model.events(), []);
}

/// Queries and keys are divided into parts, and masks hide keys from some rows only.
#[test]
fn masked_keys_may_have_any_value() {
    let case = Case {
        head_dim: 576,
        keys: 500,
        ..CASE
    };
    let (key, value) = (2 * 576, 2 * 64);
    // The last key, which one row sees, and one that the first row sees too.
    check_not_finite(&case, 8, &[(false, 499 * key + 570, 0)]);
    check_not_finite(&case, 8, &[(true, 499 * value, 2), (false, 498 * key, 3)]);
    check_not_finite(&case, 8, &[(true, 9 * value + 1, 1)]);
}

fn any_case() -> impl Strategy<Value = Case> {
    let mask = prop_oneof![
        Just(Mask::None),
        Just(Mask::Causal),
        (1..300_usize).prop_map(Mask::Window),
        (1..5_usize).prop_map(Mask::Sequences),
        Just(Mask::EmptyRows),
        Just(Mask::AnyOfHeads),
    ];
    let sizes = [1..5_usize, 1..4, 1..80, 1..500, 1..140, 1..140];
    let softcap = prop::sample::select(&[0.0_f32, 25.0][..]);
    let extras = (mask, any::<bool>(), softcap, any::<bool>(), 0.1_f32..8.0);
    (sizes, extras).prop_map(|(sizes, (mask, alibi, softcap, sinks, logits))| {
        let [group, kv_heads, rows, keys, head_dim, value_dim] = sizes;
        Case {
            heads: group * kv_heads,
            kv_heads,
            rows,
            keys,
            head_dim,
            value_dim,
            mask,
            alibi,
            softcap,
            sinks,
            logits,
        }
    })
}

proptest! {
    #![proptest_config(test_support::cases(24))]

    #[test]
    fn any_attention_is_near_its_definition(
        case in any_case(),
        seed in any::<u64>(),
        board in any::<bool>(),
    ) {
        let options = if board {
            PlanOptions::uncalibrated(600_000_000)
        } else {
            PlanOptions::default()
        };
        let (engine, model) = strict_engine(options, DEVICES);
        let mut operands = Operands::new(&case, seed);
        engine.attend([operands.call()]).unwrap();
        // No squared error: for a result with few elements it depends on chance.
        operands.check_bound();
        prop_assert_eq!(model.events(), []);
    }

    #[test]
    fn keys_that_are_not_finite_stay_where_they_are_seen(
        case in any_case(),
        seed in any::<u64>(),
        places in prop::collection::vec((any::<bool>(), any::<usize>(), any::<usize>()), 1..6),
    ) {
        check_not_finite(&case, seed, &places);
    }
}
