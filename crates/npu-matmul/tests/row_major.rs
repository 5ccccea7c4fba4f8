// SPDX-License-Identifier: MIT OR Apache-2.0
//! Staged products whose A or C is a row-major matrix: no scatter, no gather.
#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests: a failed unwrap is a failed test"
)]

mod common;
#[path = "common/in_place.rs"]
mod in_place;

use std::sync::Arc;

use common::{Lint, Shape, random_f16, random_i4, random_i8, strict_engine};
use half::f16;
use in_place::{fill_f16, fill_i8, gather, results};
use npu_matmul::layout::Order;
use npu_matmul::{
    Engine, Error, PackedWeights, PlanError, PlanOptions, Results, StageOptions, Weights, reference,
};
use proptest::prelude::*;
use rknpu_regcmd::DmaEngine;
use rknpu_regcmd::timing::{Machine, TaskWork};
use rocket_uapi::{Deadline, SharedBuffer};

/// A and C are row-major.
const BOTH: [bool; 2] = [true; 2];

fn options([row_major_a, row_major_c]: [bool; 2]) -> StageOptions {
    StageOptions {
        row_major_a,
        row_major_c,
        ..StageOptions::default()
    }
}

/// With K in one tile.
fn k_whole(k: usize) -> PlanOptions {
    PlanOptions {
        k_tile: Some(k.next_multiple_of(64)),
        ..PlanOptions::default()
    }
}

fn check_i8(engine: &Engine, weights: &PackedWeights, m: usize, b: &[i8], row_major: [bool; 2]) {
    let (n, k) = (weights.n(), weights.k());
    let a = random_i8(3, m * k);
    let mut staged = engine.stage(weights, m, options(row_major)).unwrap();
    for buffer in staged.result_buffers() {
        let is_row_major = matches!(buffer.tiles[0].layout.order, Order::RowMajor { .. });
        assert_eq!(is_row_major, row_major[1]);
    }
    fill_i8(&mut staged, &a, k);
    staged.run().unwrap();
    let c = results(&staged, i32::from_le_bytes);
    assert!(
        c == reference::multiply_i32(m, n, k, &a, b),
        "{row_major:?}"
    );
}

fn check_f16(engine: &Engine, Shape { m, n, k }: Shape, row_major: [bool; 2], seed: u64) {
    let (a, b) = (random_f16(seed, m * k), random_f16(seed + 1, n * k));
    let weights = engine.load(Weights::f16(n, k, &b)).unwrap();
    let expected = reference::multiply_f64(m, n, k, &a, &b, 1);
    for results in [Results::Sums, Results::Halves] {
        let options = StageOptions {
            results,
            ..options(row_major)
        };
        let mut staged = engine.stage(&weights, m, options).unwrap();
        fill_f16(&mut staged, &a, k);
        staged.run().unwrap();
        if results == Results::Halves {
            let c = self::results(&staged, f16::from_le_bytes);
            let mut pairs = c.iter().zip(&expected);
            assert!(pairs.all(|(&got, want)| want.allows_half(got)));
        } else {
            let c = self::results(&staged, f32::from_le_bytes);
            let mut pairs = c.iter().zip(&expected);
            assert!(
                pairs.all(|(&got, want)| (f64::from(got) - want.value).abs() <= want.tolerance)
            );
        }
    }
}

fn shape() -> impl Strategy<Value = Shape> {
    prop_oneof![
        (1..70_usize, 1..140_usize, 1..200_usize),
        (1..6_usize, 1..200_usize, 1..1500_usize),
        (100..300_usize, 1..80_usize, 1..80_usize),
    ]
    .prop_map(|(m, n, k)| Shape { m, n, k })
}

proptest! {
    #![proptest_config(test_support::cases(16))]

    #[test]
    fn any_orders_give_the_same(
        shape in shape(),
        seed in any::<u32>(),
        devices in 1..4_usize,
        row_major in any::<[bool; 2]>(),
        row_tile in prop::option::of(1..10_usize),
        n_tile in prop::option::of(1..4_usize),
        tasks in 1..20_usize,
        replicate in any::<Option<bool>>(),
    ) {
        let Shape { m, n, k } = shape;
        let seed = u64::from(seed);
        let mut options = PlanOptions {
            replicate,
            row_tile: row_tile.map(|fours| fours * 4),
            n_tile: n_tile.map(|groups| groups * 64),
            ..k_whole(k)
        };
        options.limits.tasks = tasks;
        let (engine, model) = strict_engine(options, devices);
        let engine = engine.observed_by(Arc::new(Lint));
        let b = random_i8(seed, n * k);
        let weights = engine.load(Weights::i8(n, k, &b)).unwrap();
        check_i8(&engine, &weights, m, &b, row_major);
        check_f16(&engine, shape, row_major, seed);
        prop_assert_eq!(model.events(), []);
    }
}

/// The deepest tiles that were measured, a depth at which few rows were, and a C
/// that is wider than the notch can say.
#[test]
fn the_largest_tiles() {
    for (m, n, k, rows) in [
        (140, 32, 2048, 72),
        (64, 32, 4096, 64),
        (9, 32, 3840, 4),
        (33, 32, 6144, 20),
        (16, 40, 8192, 16),
        (5, 40_000, 32, 8),
    ] {
        let (engine, model) = strict_engine(common::reusing(k_whole(k)), 1);
        let engine = engine.observed_by(Arc::new(Lint));
        let b = random_i8(1, n * k);
        let weights = engine.load(Weights::i8(n, k, &b)).unwrap();
        let staged = engine.stage(&weights, m, options(BOTH)).unwrap();
        assert_eq!(staged.plan().row_tile, rows, "{k}");
        assert_eq!(staged.result_buffers().len(), n.div_ceil(32_768));
        // The timing model counts what such programs move.
        let native = engine.stage(&weights, m, StageOptions::default()).unwrap();
        let [ours, native] =
            [staged.plan(), native.plan()].map(|plan| plan.predict(&Machine::RK3588));
        assert!(ours.npu_ps > 0 && ours.tasks >= native.tasks, "{k}");
        // Each job fetches A; a native C takes one.
        let jobs = n.div_ceil(32_768) as u64;
        let features = |work: &TaskWork| work.bytes.of(DmaEngine::Feature);
        assert_eq!(features(&ours.work), jobs * features(&native.work));
        drop(staged);
        check_i8(&engine, &weights, m, &b, BOTH);
        assert_eq!(model.events(), []);
    }
}

/// Where nothing is filled up, the buffers are the matrices.
#[test]
fn buffers_are_plain_matrices() {
    const M: usize = 100;
    const N: usize = 192;
    const K: usize = 128;
    let (engine, _) = strict_engine(k_whole(K), 1);
    let (a, b) = (random_i8(1, M * K), random_i8(2, N * K));
    let weights = engine.load(Weights::i8(N, K, &b)).unwrap();
    let mut staged = engine.stage(&weights, M, options(BOTH)).unwrap();
    let mut memory = staged.activations_mut(0).unwrap();
    memory.as_mut_slice_of::<i8>()[..M * K].copy_from_slice(&a);
    memory.finish().unwrap();
    staged.run().unwrap();
    let expected = reference::multiply_i32(M, N, K, &a, &b);
    assert!(staged.results(0).unwrap().as_slice_of::<i32>()[..M * N] == expected);
    // And so are dma-bufs.
    let dma_buf = staged.export_results(0).unwrap();
    staged.run().unwrap();
    let read = |index: usize| {
        let mut bytes = vec![0; staged.result_buffers()[index].bytes];
        dma_buf.read_into(0, &mut bytes, Deadline::FOREVER).unwrap();
        bytes
    };
    assert!(gather(&staged, read, i32::from_le_bytes) == expected);
}

#[test]
fn what_was_never_measured_is_refused() {
    let (n, k) = (64, 128);
    let stage = |options: PlanOptions, k: usize, row_major| {
        let (engine, _) = strict_engine(options, 1);
        let weights = engine.load(Weights::i8(n, k, &vec![1; n * k])).unwrap();
        let refused = engine.stage(&weights, 8, self::options(row_major));
        match refused {
            Err(Error::Plan(error)) => error,
            other => panic!("{other:?}"),
        }
    };
    for row_major in [[true, false], [false, true]] {
        let cut = PlanOptions {
            k_tile: Some(64),
            ..PlanOptions::default()
        };
        let refused = stage(cut, k, row_major);
        assert_eq!(refused, PlanError::RowMajorDepth { k_tiles: 2 });
        let (engine, _) = strict_engine(PlanOptions::default(), 1);
        let int4 = engine
            .load(Weights::i4(n, k, &random_i4(1, n * k)))
            .unwrap();
        let refused = engine.stage(&int4, 8, options(row_major));
        assert!(matches!(refused, Err(Error::Plan(PlanError::RowMajorInt4))));
    }
    // A single row of INT8 beyond 8192, and rows that were asked for.
    let refused = stage(k_whole(8224), 8224, BOTH);
    assert!(matches!(refused, PlanError::IllegalTile { m: 4, .. }));
    let tall = PlanOptions {
        row_tile: Some(8),
        ..k_whole(3840)
    };
    let refused = stage(tall, 3840, BOTH);
    assert!(matches!(refused, PlanError::IllegalTile { m: 8, .. }));
}
