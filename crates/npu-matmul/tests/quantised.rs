// SPDX-License-Identifier: MIT OR Apache-2.0
//! Quantised products of every kind, on the device that `ROCKET_DEVICE`
//! chooses (the software model where there is none), against their definition
//! in f64.
#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests: a failed unwrap is a failed test"
)]

mod common;

use common::{Random, Shape, engine, kinds, multiply, strict_engine, watched};
use npu_matmul::quantise::rotate::{self, Rotation};
use npu_matmul::quantise::search::Search;
use npu_matmul::quantise::{Operands, QuantiseOptions};
use npu_matmul::{Engine, Error, PlanOptions, Weights};
use proptest::prelude::*;

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

/// What a row becomes: integers and scales of its groups, by the definition.
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

/// One element of the result.
struct Expected {
    value: f64,
    tolerance: f64,
}

/// The definition, row by row.
struct Reference {
    a: Vec<Quantised>,
    b: Vec<Quantised>,
    group: usize,
    /// Channels that are added up as integers: a group, or a part of one.
    tile: usize,
    shape: Shape,
}

impl Reference {
    fn new(shape: Shape, options: &QuantiseOptions, a: &[f32], b: &[f32]) -> Self {
        let k = shape.k;
        let rotated = |matrix: &[f32]| {
            let mut matrix = matrix.to_vec();
            if options.rotated {
                Rotation::new(k, rotate::SEED).unwrap().apply(&mut matrix);
            }
            matrix
        };
        let (a, b) = (rotated(a), rotated(b));
        let group = options.k_group.unwrap_or(k);
        let limit = options.operands.activation_max();
        let absmax = |row: &[f32]| Search::AbsMax.scale(row, limit);
        let a = a.chunks(k).map(|row| quantise(row, group, limit, absmax));
        let limit = options.operands.weight_max();
        let found = |row: &[f32]| options.search.scale(row, limit);
        let b = b.chunks(k).map(|row| quantise(row, group, limit, found));
        Self {
            a: a.collect(),
            b: b.collect(),
            group,
            tile: group,
            shape,
        }
    }

    /// Element (i, j).
    fn element(&self, i: usize, j: usize) -> Expected {
        let (qa, qb) = (&self.a[i], &self.b[j]);
        let tiles = self.shape.k.div_ceil(self.tile);
        let (mut value, mut terms) = (0.0, 0.0);
        for tile in 0..tiles {
            let part = tile * self.tile..((tile + 1) * self.tile).min(self.shape.k);
            let group = part.start / self.group;
            let sum: i64 = part.map(|at| qa.integers[at] * qb.integers[at]).sum();
            let scale = f64::from(qa.scales[group]) * f64::from(qb.scales[group]);
            value += sum as f64 * scale;
            terms += (sum as f64 * scale).abs();
        }
        let count = tiles as f64;
        let tolerance = count * 2_f64.powi(-24) * (1.0 + count * 2_f64.powi(-22)) * terms;
        Expected { value, tolerance }
    }
}

fn check(engine: &Engine, shape: Shape, options: &QuantiseOptions, a: &[f32], b: &[f32]) {
    let Shape { m, n, k } = shape;
    let weights = engine.load(Weights::quantised(n, k, *options, b)).unwrap();
    // Junk, so that an element that nobody wrote is seen.
    let mut c = vec![f32::NAN; m * n];
    multiply(engine, &weights, m, a, &mut c).unwrap();
    let mut reference = Reference::new(shape, options, a, b);
    if reference.group < k {
        reference.tile = weights.plan().k_tile;
        assert!(reference.group.is_multiple_of(reference.tile));
    }
    for (at, got) in c.iter().enumerate() {
        let (i, j) = (at / n, at % n);
        let want = reference.element(i, j);
        let error = (f64::from(*got) - want.value).abs();
        assert!(
            error <= want.tolerance,
            "{shape:?} {options:?} [{i}, {j}]: {got} for {} +- {}",
            want.value,
            want.tolerance
        );
    }
}

fn operands() -> impl Strategy<Value = Operands> {
    prop::sample::select(Operands::ALL.to_vec())
}

fn k_group() -> impl Strategy<Value = Option<usize>> {
    prop::option::of((1..40_usize).prop_map(|groups| 32 * groups))
}

fn case() -> impl Strategy<Value = (Shape, QuantiseOptions)> {
    let shape = prop_oneof![
        (1..40_usize, 1..140_usize, 1..300_usize),
        (1..6_usize, 1..40_usize, 1..1500_usize),
    ];
    let search = prop::sample::select(vec![Search::AbsMax, Search::MeanSquare]);
    (shape, operands(), k_group(), search, any::<bool>()).prop_map(
        |((m, n, k), operands, k_group, search, rotated)| {
            let options = QuantiseOptions {
                operands,
                k_group,
                search,
                rotated,
            };
            (Shape { m, n, k }, options)
        },
    )
}

proptest! {
    #![proptest_config(test_support::cases(20))]

    #[test]
    fn every_kind_equals_its_definition(
        (shape, options) in case(),
        seed in any::<u32>(),
        row_tile in 1..6_usize,
        tasks in 1..20_usize,
    ) {
        let a = floats(seed.into(), shape.m, shape.k, &[3, 77]);
        let b = floats(u64::from(seed) + 1, shape.n, shape.k, &[]);
        watched(PlanOptions::default(), |engine| check(engine, shape, &options, &a, &b));
        // The same in small tiles and many jobs.
        let mut plan = PlanOptions {
            row_tile: Some(4 * row_tile),
            n_tile: Some(64),
            ..PlanOptions::default()
        };
        plan.limits.tasks = tasks;
        watched(plan, |engine| check(engine, shape, &options, &a, &b));
    }
}

#[test]
fn nothing_is_submitted_that_silicon_would_punish() {
    let (engine, model) = strict_engine(PlanOptions::default(), 2);
    let (m, n, k) = (33, 70, 256);
    let (a, b) = (floats(1, m, k, &[3]), floats(2, n, k, &[]));
    for options in kinds() {
        let weights = engine.load(Weights::quantised(n, k, options, &b)).unwrap();
        let mut c = vec![0.0; m * n];
        multiply(&engine, &weights, m, &a, &mut c).unwrap();
    }
    assert_eq!(model.events(), []);
    let counters = engine.counters();
    assert_eq!(counters.products, kinds().len() as u64);
    assert_eq!(counters.macs, (kinds().len() * m * n * k) as u64);
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
            for options in kinds() {
                let weights = engine.load(Weights::quantised(n, k, options, &b)).unwrap();
                let mut c = vec![0.0; m * n];
                multiply(&engine, &weights, m, &a, &mut c).unwrap();
                for (at, x) in c.iter().enumerate() {
                    let (row, column) = (at / n, at % n);
                    let poisoned = row == 2 || column == 5;
                    assert_eq!(x.is_nan(), poisoned, "{options:?} [{row}, {column}]: {x}");
                    assert!(row != 0 || poisoned || *x == 0.0);
                }
            }
        }
    }
}

#[test]
fn floats_near_the_ends_of_their_range() {
    let engine = engine();
    let (m, n, k) = (3, 5, 256);
    for (of_a, of_b) in [(1e30, 1e-30), (1e-30, 1e30), (1e36, 1e-38)] {
        let scaled = |x: Vec<f32>, by: f32| -> Vec<f32> { x.iter().map(|x| x * by).collect() };
        let a = scaled(floats(1, m, k, &[3]), of_a);
        let b = scaled(floats(2, n, k, &[]), of_b);
        let options = QuantiseOptions::default();
        check(&engine, Shape { m, n, k }, &options, &a, &b);
    }
}

/// Groups of INT4 weights that are deeper than any weights allow: tiles that
/// share a scale, as few as these weights allow.
#[test]
fn deep_groups_of_int4_are_several_tiles() {
    let engine = engine();
    let (m, n, k) = (3, 5, 2400);
    let a = floats(1, m, k, &[]);
    // All of the largest magnitude, and few that make all others small.
    let full: Vec<f32> = (0..n * k).map(|at| 1.0 - (at % 2) as f32 * 2.0).collect();
    let small: Vec<f32> = (0..n * k)
        .map(|at| if at % 512 == 0 { 7.0 } else { 1.0 })
        .collect();
    for (group, b, tile) in [(1024, &full, 512), (1024, &small, 1024), (992, &full, 32)] {
        for operands in [Operands::W4A8, Operands::W4A4] {
            let options = QuantiseOptions {
                operands,
                k_group: Some(group),
                ..QuantiseOptions::default()
            };
            let weights = engine.load(Weights::quantised(n, k, options, b)).unwrap();
            assert_eq!(weights.plan().k_tile, tile, "{group}");
            check(&engine, Shape { m, n, k }, &options, &a, b);
        }
    }
}

/// A group that is all of K asks for no depth of its tiles.
#[test]
fn one_group_is_cut_as_a_channel() {
    let engine = engine();
    for (k, group) in [(992, 992), (992, 4096), (2400, 2400)] {
        let (m, n) = (3, 5);
        let a = floats(1, m, k, &[]);
        let b: Vec<f32> = (0..n * k).map(|at| 1.0 - (at % 2) as f32 * 2.0).collect();
        for operands in Operands::ALL {
            let [channel, one] = [None, Some(group)].map(|k_group| {
                let options = QuantiseOptions {
                    operands,
                    k_group,
                    ..QuantiseOptions::default()
                };
                let weights = engine.load(Weights::quantised(n, k, options, &b)).unwrap();
                let mut out = vec![f32::NAN; m * n];
                multiply(&engine, &weights, m, &a, &mut out).unwrap();
                (weights.plan().clone(), out)
            });
            assert_eq!(one, channel, "{operands:?}, {group} of {k}");
        }
    }
}

#[test]
fn options_that_do_not_fit_are_refused() {
    let engine = engine();
    let (n, k) = (4, 100);
    let b = vec![1.0; n * k];
    let load = |options: &QuantiseOptions| {
        engine
            .load(Weights::quantised(n, k, *options, &b))
            .unwrap_err()
    };
    let with = |operands, k_group| QuantiseOptions {
        operands,
        k_group,
        ..QuantiseOptions::default()
    };
    for group in [0, 33, 500] {
        let error = load(&with(Operands::W4A4, Some(group)));
        assert!(matches!(error, Error::Plan(_)), "{group}: {error}");
    }
    // Sums of a group must fit, and not those of all of K.
    let deep = 140_000;
    let zeros = |_: usize, row: &mut [f32]| row.fill(0.0);
    let loaded = |k_group| {
        let options = with(Operands::W8A8, k_group);
        engine.load(Weights::quantised_rows(1, deep, options, zeros))
    };
    assert!(matches!(
        loaded(None),
        Err(Error::TooDeep { k: 140_000, .. })
    ));
    loaded(Some(1024)).unwrap();
    // Weights of integers give no floats.
    let weights = engine.load(Weights::i4(1, 2, &[1, 2])).unwrap();
    assert!(matches!(
        multiply(&engine, &weights, 1, &[0.0; 2], &mut [0.0]),
        Err(Error::WrongOutput {
            weights: "int4",
            ..
        })
    ));
}
