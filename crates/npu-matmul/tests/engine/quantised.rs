// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compares quantised matmuls of every kind, on the device that `ROCKET_DEVICE` selects (the
//! software model if there is none), with their definition in f64.

use npu_matmul::quantise::Quantisation;
use npu_matmul::quantise::rotate::{self, Rotation};
use npu_matmul::reference::Expected;
use npu_matmul::{Engine, Error, PlanOptions, Weights};
use proptest::prelude::*;

use crate::common::matmul::check_floats;
use crate::common::{Random, Shape, engine, multiply, watched};

/// Floats around 0 with a few large columns.
fn floats(seed: u64, rows: usize, k: usize, large: &[usize]) -> Vec<f32> {
    let mut random = Random::new(seed);
    let mut all: Vec<f32> = (0..rows * k)
        .map(|_| (random.next() >> 40) as f32 / (1 << 23) as f32 - 1.0)
        .collect();
    for row in all.chunks_mut(k) {
        for &column in large.iter().filter(|&&column| column < k) {
            row[column] *= 60.0;
        }
    }
    all
}

/// A row quantised by the definition.
struct Quantised {
    integers: Vec<i64>,
    scale: f32,
}

impl Quantised {
    fn new(row: &[f32]) -> Self {
        let scale = absmax(row);
        let integers = row.iter().map(|x| {
            if scale == 0.0 || scale.is_nan() {
                return 0;
            }
            (x * scale.recip()).round_ties_even() as i64
        });
        Self {
            integers: integers.collect(),
            scale,
        }
    }
}

/// Scale by the largest magnitude.
fn absmax(row: &[f32]) -> f32 {
    if row.iter().any(|x| !x.is_finite()) {
        return f32::NAN;
    }
    let scale = row.iter().fold(0.0_f32, |max, x| max.max(x.abs())) / 127.0;
    if scale < f32::MIN_POSITIVE {
        0.0
    } else {
        scale
    }
}

/// The definition: quantised rows of A and of B.
struct Reference {
    a: Vec<Quantised>,
    b: Vec<Quantised>,
}

impl Reference {
    fn new(k: usize, to: Quantisation, a: &[f32], b: &[f32]) -> Self {
        let quantised = |matrix: &[f32]| {
            let mut matrix = matrix.to_vec();
            if to.is_rotated() {
                Rotation::new(k, rotate::SEED).unwrap().apply(&mut matrix);
            }
            matrix.chunks(k).map(Quantised::new).collect()
        };
        let (a, b) = (quantised(a), quantised(b));
        Self { a, b }
    }

    /// Element (i, j).
    fn element(&self, i: usize, j: usize) -> Expected {
        let (qa, qb) = (&self.a[i], &self.b[j]);
        let sum: i64 = qa
            .integers
            .iter()
            .zip(&qb.integers)
            .map(|(a, b)| a * b)
            .sum();
        let value = sum as f64 * f64::from(qa.scale) * f64::from(qb.scale);
        // Rounded once to f32; the three factors are rounded in f64.
        let tolerance = 2_f64.powi(-24) * (1.0 + 2_f64.powi(-22)) * value.abs();
        Expected { value, tolerance }
    }
}

fn check(engine: &Engine, shape: Shape, to: Quantisation, a: &[f32], b: &[f32]) {
    let Shape { m, n, k } = shape;
    let weights = engine.load(Weights::quantised(n, k, to, b)).unwrap();
    // Junk, so that unwritten elements show.
    let mut c = vec![f32::NAN; m * n];
    multiply(engine, &weights, m, a, &mut c).unwrap();
    let reference = Reference::new(k, to, a, b);
    let expected: Vec<_> = (0..m * n)
        .map(|at| reference.element(at / n, at % n))
        .collect();
    check_floats(&c, &expected);
}

fn case() -> impl Strategy<Value = (Shape, Quantisation)> {
    let shape = prop_oneof![
        (1..40_usize, 1..140_usize, 1..300_usize),
        (1..6_usize, 1..40_usize, 1..1500_usize),
    ];
    let shape = shape.prop_map(|(m, n, k)| Shape { m, n, k });
    (shape, prop::sample::select(&Quantisation::ALL[..]))
}

proptest! {
    #![proptest_config(test_support::cases(20))]

    #[test]
    fn every_kind_equals_its_definition(
        (shape, to) in case(),
        seed in any::<u32>(),
        row_tile in 1..6_usize,
        k_tile in 1..10_usize,
        tasks in 1..20_usize,
    ) {
        let a = floats(seed.into(), shape.m, shape.k, &[3, 77]);
        let b = floats(u64::from(seed) + 1, shape.n, shape.k, &[]);
        watched(PlanOptions::default(), |engine| check(engine, shape, to, &a, &b));
        // Also with small tiles and many jobs.
        let mut plan = PlanOptions {
            row_tile: Some(4 * row_tile),
            k_tile: Some(32 * k_tile),
            n_tile: Some(64),
            ..PlanOptions::default()
        };
        plan.limits.tasks = tasks;
        watched(plan, |engine| check(engine, shape, to, &a, &b));
    }
}

#[test]
fn nans_stay_in_their_row_or_column() {
    let engine = engine();
    let (m, n, k) = (4, 6, 256);
    for poison in [f32::NAN, f32::INFINITY] {
        for column in [3, 4] {
            let (mut a, mut b) = (floats(1, m, k, &[3]), floats(2, n, k, &[]));
            a[2 * k + column] = poison;
            b[5 * k + column] = poison;
            a[..k].fill(0.0);
            for to in Quantisation::ALL {
                let weights = engine.load(Weights::quantised(n, k, to, &b)).unwrap();
                let mut c = vec![0.0; m * n];
                multiply(&engine, &weights, m, &a, &mut c).unwrap();
                for (at, x) in c.iter().enumerate() {
                    let (row, column) = (at / n, at % n);
                    let poisoned = row == 2 || column == 5;
                    assert_eq!(x.is_nan(), poisoned, "{to:?} [{row}, {column}]: {x}");
                    assert!(row != 0 || poisoned || *x == 0.0);
                }
            }
        }
    }
    let calls = 4 * Quantisation::ALL.len();
    assert_eq!(engine.counters().macs, (calls * m * n * k) as u64);
}

#[test]
fn floats_near_the_ends_of_their_range() {
    let engine = engine();
    let (m, n, k) = (3, 5, 256);
    for (a_factor, b_factor) in [(1e30, 1e-30), (1e-30, 1e30), (1e36, 1e-38)] {
        let scaled = |x: Vec<f32>, by: f32| -> Vec<f32> { x.iter().map(|x| x * by).collect() };
        let a = scaled(floats(1, m, k, &[3]), a_factor);
        let b = scaled(floats(2, n, k, &[]), b_factor);
        check(&engine, Shape { m, n, k }, Quantisation::W8A8, &a, &b);
    }
}

#[test]
fn weights_without_exact_sums_are_refused() {
    let engine = engine();
    let deep = 140_000;
    let zeros = |_: usize, row: &mut [f32]| row.fill(0.0);
    let loaded = |to| engine.load(Weights::quantised_rows(1, deep, to, zeros));
    for to in Quantisation::ALL {
        assert!(matches!(loaded(to), Err(Error::TooDeep { k: 140_000, .. })));
    }
    let max = 131_071;
    let b = vec![i8::MIN; max + 1];
    let error = engine.load(Weights::i8(1, max + 1, &b)).unwrap_err();
    assert!(
        matches!(error, Error::TooDeep { max: 131_071, .. }),
        "{error}"
    );
    let error = engine.load(Weights::i4(1, 1 << 25, &[])).unwrap_err();
    assert!(matches!(error, Error::TooDeep { .. }), "{error}");
    // The largest sum that there is.
    let (mut sum, row) = ([0], &b[..max]);
    let weights = engine.load(Weights::i8(1, max, row)).unwrap();
    let gemm = engine.prepare(&weights, 1).unwrap();
    gemm.run(row, &mut sum[..]).unwrap();
    assert_eq!(sum[0], 131_071 << 14);
}
