// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compares matmuls on the device that `ROCKET_DEVICE` selects (the software model if there is
//! none) with the reference.

use std::sync::Arc;

use half::f16;
use npu_matmul::quantise::{dequantise, quantise_rows};
use npu_matmul::{Dtype, PlanOptions, Weights, reference};
use proptest::prelude::*;

use crate::common::{
    DEVICES, Lint, Shape, check, check_all, check_halves, check_integers, counted, engine,
    engine_with, multiply, random_f16, random_i8, reusing, strict_engine, watched,
};

fn shape() -> impl Strategy<Value = Shape> {
    // Small sizes, and sizes that are long in one direction.
    prop_oneof![
        (1..70_usize, 1..140_usize, 1..200_usize),
        (1..6_usize, 1..300_usize, 1..2500_usize),
        (100..600_usize, 1..40_usize, 1..80_usize),
    ]
    .prop_map(|(m, n, k)| Shape { m, n, k })
}

proptest! {
    #![proptest_config(test_support::cases(48))]

    #[test]
    fn integers_equal_the_oracle_and_floats_are_within_their_bound(
        dtype in prop::sample::select(&Dtype::ALL[..]),
        shape in shape(),
        seed in any::<u32>(),
    ) {
        watched(PlanOptions::default(), |engine| check(engine, dtype, shape, seed.into()));
    }

    #[test]
    fn any_tiles_give_the_same_integers(
        shape in shape(),
        seed in any::<u32>(),
        row_tile in 1..10_usize,
        k_tile in 1..10_usize,
        n_tile in 1..4_usize,
        tasks in 1..20_usize,
    ) {
        let mut options = PlanOptions {
            row_tile: Some(row_tile * 4),
            k_tile: Some(k_tile * 32),
            n_tile: Some(n_tile * 64),
            ..PlanOptions::default()
        };
        options.limits.tasks = tasks;
        watched(options, |engine| check_all(engine, shape, seed.into()));
    }
}

#[test]
fn nothing_is_submitted_that_silicon_would_punish() {
    let (engine, model) = strict_engine(PlanOptions::default(), 2);
    let engine = engine.observed_by(Arc::new(Lint));
    // The deepest tiles of each precision, the widest, the highest, and some with odd sizes.
    for (seed, (m, n, k)) in [
        (64, 64, 4096),
        (64, 40, 2048),
        (5, 70, 11008),
        (4, 8192, 32),
        (1020, 64, 64),
        (1021, 33, 96),
    ]
    .into_iter()
    .enumerate()
    {
        check_all(&engine, Shape::new(m, n, k), seed as u64);
    }
    assert_eq!(model.events(), []);
}

#[test]
fn what_stays_in_cbuf_is_what_is_needed() {
    // Several tiles of channels for the same rows, also with K divided.
    let tiles = |row_tile, k_tile, n_tile| {
        reusing(PlanOptions {
            row_tile: Some(row_tile),
            k_tile: Some(k_tile),
            n_tile: Some(n_tile),
            ..PlanOptions::default()
        })
    };
    for options in [tiles(32, 256, 64), tiles(8, 256, 64), tiles(32, 128, 64)] {
        let (engine, model) = strict_engine(options, 1);
        let engine = engine.observed_by(Arc::new(Lint));
        check_all(&engine, Shape::new(32, 200, 256), 1);
        assert_eq!(model.events(), []);
    }
}

#[test]
fn the_smallest_and_the_self_test() {
    let engine = engine();
    for (m, n, k) in [(1, 1, 1), (64, 64, 64), (1, 64, 33), (5, 1, 7)] {
        check_all(&engine, Shape::new(m, n, k), 1);
    }
}

/// Tiles that have run on silicon are exact, too.
#[test]
fn tiles_within_the_envelope_give_the_same_integers() {
    let within = PlanOptions {
        unmeasured_tiles: Some(false),
        ..PlanOptions::default()
    };
    let (engine, model) = strict_engine(within, DEVICES);
    for (m, k, n) in [
        (300, 800, 300),
        (20, 5000, 100),
        (130, 1100, 2100),
        (3, 9000, 33),
    ] {
        for dtype in [Dtype::Int8, Dtype::Int4] {
            check(&engine, dtype, Shape::new(m, n, k), 1);
        }
    }
    assert_eq!(model.events(), []);
}

#[test]
fn extreme_integers() {
    let engine = engine();
    let (m, n, k) = (4, 64, 5000);
    for (a, b) in [(-128, -128), (-128, 127), (127, 127)] {
        let (a, b) = (vec![a; m * k], vec![b; n * k]);
        let weights = engine.load(Weights::i8(n, k, &b)).unwrap();
        check_integers(&engine, &weights, &a, &b);
    }
    for (a, b) in [(-8, -8), (-8, 7), (7, 7)] {
        let (a, b) = (vec![a; m * k], vec![b; n * k]);
        let weights = engine.load(Weights::i4(n, k, &b)).unwrap();
        check_integers(&engine, &weights, &a, &b);
    }
}

#[test]
fn quantised_matmuls_are_the_dequantised_integer_matmul() {
    let (m, n, k) = (9, 70, 300);
    let float = |seed| -> Vec<f32> {
        let integers = random_i8(seed, m.max(n) * k);
        integers.iter().map(|&x| f32::from(x) * 0.037).collect()
    };
    let (mut a, b) = (float(1)[..m * k].to_vec(), float(2)[..n * k].to_vec());
    a[k..2 * k].fill(0.0);
    a[2 * k] = f32::NAN;
    // With K in one tile, and with K divided over several jobs.
    let mut cut = PlanOptions {
        k_tile: Some(64),
        ..PlanOptions::default()
    };
    cut.limits.tasks = 2;
    for options in [PlanOptions::default(), cut] {
        let engine = engine_with(options, DEVICES);
        let weights = engine.load(Weights::w8a8(n, k, &b)).unwrap();
        let mut c = vec![0.0; m * n];
        multiply(&engine, &weights, m, &a, &mut c).unwrap();

        let ((qa, sa), (qb, sb)) = (quantise_rows(&a, k), quantise_rows(&b, k));
        let sums = reference::multiply_i32(m, n, k, &qa, &qb);
        for (at, (&got, &sum)) in c.iter().zip(&sums).enumerate() {
            let want = dequantise(sum, sa[at / n], sb[at % n]);
            assert_eq!(got.is_nan(), at / n == 2);
            assert!(got == want || want.is_nan(), "[{at}]: {got} for {want}");
        }
        assert!(c[n..2 * n].iter().all(|&x| x == 0.0));
    }
}

#[test]
fn the_npu_writes_half_the_bytes_of_half_results() {
    let (m, n, k) = (40, 96, 128);
    let (a, b) = (random_f16(1, m * k), random_f16(2, n * k));
    let read = |k_tile, halves: bool| {
        let options = PlanOptions {
            k_tile: Some(k_tile),
            ..PlanOptions::default()
        };
        let (engine, model) = strict_engine(options, 1);
        let weights = engine.load(Weights::f16(n, k, &b)).unwrap();
        // Buffers and sizes are the same; only what the programs write differs.
        let (mut c, mut c16) = (vec![0.0; m * n], vec![f16::ZERO; m * n]);
        multiply(&engine, &weights, m, &a, &mut c).unwrap();
        let counters = counted(&engine, || {
            if halves {
                multiply(&engine, &weights, m, &a, &mut c16).unwrap();
            } else {
                multiply(&engine, &weights, m, &a, &mut c).unwrap();
            }
        });
        if halves {
            let rounded: Vec<f16> = c.iter().map(|&x| f16::from_f32(x)).collect();
            assert_eq!(c16, rounded);
        }
        assert_eq!(model.events(), []);
        counters.bytes_from_device
    };
    let whole = (m * n * 4) as u64;
    assert_eq!((read(128, false), read(128, true)), (whole, whole / 2));
    // Tiles of K are added in binary32.
    assert_eq!((read(64, false), read(64, true)), (2 * whole, 2 * whole));
}

#[test]
fn halves_that_are_too_large_are_infinite() {
    let engine = engine();
    let (m, n, k) = (4, 16, 64);
    let a = vec![f16::from_f32(256.0); m * k];
    let b: Vec<_> = (0..n * k)
        .map(|at| f16::from_f32(if at / k % 2 == 0 { 4.0 } else { -3.0 }))
        .collect();
    let weights = engine.load(Weights::f16(n, k, &b)).unwrap();
    let mut c = vec![f16::ZERO; m * n];
    multiply(&engine, &weights, m, &a, &mut c).unwrap();
    for (at, &x) in c.iter().enumerate() {
        let want = if at % 2 == 0 {
            f16::INFINITY
        } else {
            f16::from_f32(-49152.0)
        };
        assert_eq!(x, want, "[{at}]");
    }
}

#[test]
fn threads_share_an_engine_and_weights() {
    let engine = engine();
    let (n, k) = (96, 200);
    let b = random_i8(7, n * k);
    let weights = engine.load(Weights::i8(n, k, &b)).unwrap();
    let halves: Vec<f16> = random_f16(8, n * k);
    let float_weights = engine.load(Weights::f16(n, k, &halves)).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (engine, weights, float_weights) = (&engine, &weights, &float_weights);
            let (b, halves) = (&b, &halves);
            scope.spawn(move || {
                for round in 0..4 {
                    let m = 1 + 13 * thread + round;
                    let a = random_i8(100 + m as u64, m * k);
                    check_integers(engine, weights, &a, b);
                    let a = random_f16(200 + m as u64, m * k);
                    check_halves(engine, float_weights, &a, halves);
                }
            });
        }
    });
    let counters = engine.counters();
    assert_eq!(counters.matmuls, 48);
    let rows: u64 = (0..4)
        .flat_map(|t| (0..4).map(move |r| 1 + 13 * t + r))
        .sum();
    assert_eq!(counters.macs, 3 * rows * (n * k) as u64);
    assert!(counters.jobs >= 48 && counters.tasks >= counters.jobs);
    assert!(counters.bytes_from_device >= (4 + 4 + 2) * rows * n as u64);
    assert!(counters.bytes_to_device >= weights.device_bytes() + rows * k as u64);
}

#[test]
fn every_pool_size() {
    for devices in 1..=5 {
        let engine = engine_with(PlanOptions::default(), devices);
        check(&engine, Dtype::Int8, Shape::new(10, 300, 100), 11);
        check(&engine, Dtype::Int4, Shape::new(10, 300, 100), 12);
    }
}
