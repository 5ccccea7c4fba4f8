// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compares matmuls on the device that `ROCKET_DEVICE` selects (the software model if there is
//! none) with the reference.

use npu_matmul::{Dtype, PlanOptions, WeightFormat};
use proptest::prelude::*;

use crate::common::matmul::{Matmul, Rows};
use crate::common::{Shape, check, check_all, engine, engine_with, reusing, watched};

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
    // The smallest, the self test's, the deepest tiles of each precision, the widest, the highest,
    // and some with odd sizes.
    let shapes = [
        (1, 1, 1),
        (64, 64, 64),
        (1, 64, 33),
        (5, 1, 7),
        (64, 64, 4096),
        (64, 40, 2048),
        (5, 70, 11008),
        (4, 8192, 32),
        (1020, 64, 64),
        (1021, 33, 96),
    ];
    watched(PlanOptions::default(), |engine| {
        for (seed, (m, n, k)) in (0..).zip(shapes) {
            check_all(engine, Shape::new(m, n, k), seed);
        }
    });
}

#[test]
fn operands_that_stay_in_cbuf_are_reused() {
    // Several tiles of channels for the same rows, also with K divided.
    for (row_tile, k_tile) in [(32, 256), (8, 256), (32, 128)] {
        let options = reusing(PlanOptions {
            row_tile: Some(row_tile),
            k_tile: Some(k_tile),
            n_tile: Some(64),
            ..PlanOptions::default()
        });
        watched(options, |engine| {
            check_all(engine, Shape::new(32, 600, 256), 1)
        });
    }
}

/// Tiles that have run on silicon are exact, too.
#[test]
fn tiles_within_the_envelope_give_the_same_integers() {
    let within = PlanOptions {
        unmeasured_tiles: Some(false),
        ..PlanOptions::default()
    };
    watched(within, |engine| {
        for (m, k, n) in [
            (300, 800, 300),
            (20, 5000, 100),
            (130, 1100, 2100),
            (3, 9000, 33),
        ] {
            for dtype in [Dtype::Int8, Dtype::Int4] {
                check(engine, dtype, Shape::new(m, n, k), 1);
            }
        }
    });
}

#[test]
fn extreme_integers() {
    let engine = engine();
    let shape = Shape::new(4, 64, 5000);
    let Shape { m, n, k } = shape;
    for (format, least, most) in [(WeightFormat::Int8, -128, 127), (WeightFormat::Int4, -8, 7)] {
        for (a, b) in [(least, least), (least, most), (most, most)] {
            let (a, b) = (vec![a; m * k], vec![b; n * k]);
            let (a, b) = (Rows::Integers(a), Rows::Integers(b));
            let matmul = Matmul::load(&engine, format, shape, a, b).unwrap();
            matmul.check(&engine).unwrap();
        }
    }
}

#[test]
fn every_pool_size() {
    for devices in 1..=5 {
        let engine = engine_with(PlanOptions::default(), devices);
        check(&engine, Dtype::Int8, Shape::new(10, 300, 100), 11);
        check(&engine, Dtype::Int4, Shape::new(10, 300, 100), 12);
    }
}
