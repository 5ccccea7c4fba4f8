// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compares quantised matmuls of every kind, on the device that `ROCKET_DEVICE` selects (the
//! software model if there is none), with their definition in f64.

use npu_matmul::quantise::Quantisation;
use npu_matmul::quantise::rotate::{self, Rotation};
use npu_matmul::quantise::search::least_square_scale;
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

/// Quantises a row by the definition: integers, and scales of its groups.
fn quantise(row: &[f32], group: usize, limit: f32, scale: impl Fn(&[f32]) -> f32) -> Quantised {
    let scales: Vec<f32> = row.chunks(group).map(scale).collect();
    let integers = row.iter().enumerate().map(|(at, x)| {
        let scale = scales[at / group];
        if scale == 0.0 || scale.is_nan() {
            return 0;
        }
        (x * scale.recip()).round_ties_even().clamp(-limit, limit) as i64
    });
    Quantised {
        integers: integers.collect(),
        scales,
    }
}

struct Quantised {
    integers: Vec<i64>,
    scales: Vec<f32>,
}

/// Scale by the largest magnitude: for activations, and for INT8 weights.
fn absmax(row: &[f32], limit: f32) -> f32 {
    if row.iter().any(|x| !x.is_finite()) {
        return f32::NAN;
    }
    let scale = row.iter().fold(0.0_f32, |max, x| max.max(x.abs())) / limit;
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
    group: usize,
    shape: Shape,
}

impl Reference {
    fn new(shape: Shape, to: Quantisation, a: &[f32], b: &[f32]) -> Self {
        let k = shape.k;
        let rotated = |matrix: &[f32]| {
            let mut matrix = matrix.to_vec();
            if to.is_rotated() {
                Rotation::new(k, rotate::SEED).unwrap().apply(&mut matrix);
            }
            matrix
        };
        let (a, b) = (rotated(a), rotated(b));
        // Limits of activations and of weights, the function for weight scales, and the channels
        // that share a scale.
        type Scale = fn(&[f32], f32) -> f32;
        let (of_a, of_b, found, group): (_, _, Scale, _) = match to {
            Quantisation::W8A8 | Quantisation::W8A8Hadamard => (127.0, 127.0, absmax, k),
            Quantisation::W4A8Hadamard => (119.0, 7.0, least_square_scale, 32),
        };
        let a = a.chunks(k);
        let a = a.map(|row| quantise(row, group, of_a, |row| absmax(row, of_a)));
        let b = b.chunks(k);
        let b = b.map(|row| quantise(row, group, of_b, |row| found(row, of_b)));
        Self {
            a: a.collect(),
            b: b.collect(),
            group,
            shape,
        }
    }

    /// Element (i, j).
    fn element(&self, i: usize, j: usize) -> Expected {
        let (qa, qb) = (&self.a[i], &self.b[j]);
        let groups = self.shape.k.div_ceil(self.group);
        let (mut value, mut terms) = (0.0, 0.0);
        for group in 0..groups {
            let part = group * self.group..((group + 1) * self.group).min(self.shape.k);
            let sum: i64 = part.map(|at| qa.integers[at] * qb.integers[at]).sum();
            let scale = f64::from(qa.scales[group]) * f64::from(qb.scales[group]);
            value += sum as f64 * scale;
            terms += (sum as f64 * scale).abs();
        }
        let count = groups as f64;
        let tolerance = count * 2_f64.powi(-24) * (1.0 + count * 2_f64.powi(-22)) * terms;
        Expected { value, tolerance }
    }
}

fn check(engine: &Engine, shape: Shape, to: Quantisation, a: &[f32], b: &[f32]) {
    let Shape { m, n, k } = shape;
    let weights = engine.load(Weights::quantised(n, k, to, b)).unwrap();
    // Junk, so that unwritten elements show.
    let mut c = vec![f32::NAN; m * n];
    multiply(engine, &weights, m, a, &mut c).unwrap();
    let reference = Reference::new(shape, to, a, b);
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
fn what_is_no_number_stays_in_its_row_or_column() {
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
    for (of_a, of_b) in [(1e30, 1e-30), (1e-30, 1e30), (1e36, 1e-38)] {
        let scaled = |x: Vec<f32>, by: f32| -> Vec<f32> { x.iter().map(|x| x * by).collect() };
        let a = scaled(floats(1, m, k, &[3]), of_a);
        let b = scaled(floats(2, n, k, &[]), of_b);
        check(&engine, Shape { m, n, k }, Quantisation::W8A8, &a, &b);
    }
}

#[test]
fn what_has_no_exact_sum_is_refused() {
    let engine = engine();
    let deep = 140_000;
    let zeros = |_: usize, row: &mut [f32]| row.fill(0.0);
    let loaded = |to| engine.load(Weights::quantised_rows(1, deep, to, zeros));
    for to in [Quantisation::W8A8, Quantisation::W8A8Hadamard] {
        assert!(matches!(loaded(to), Err(Error::TooDeep { k: 140_000, .. })));
    }
    // Only the sums of a group are integers, so K has no limit.
    loaded(Quantisation::W4A8Hadamard).unwrap();
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
