// SPDX-License-Identifier: MIT OR Apache-2.0
//! Products whose K tiles the NPU adds up are those whose K tiles the CPU does.
#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests: a failed unwrap is a failed test"
)]

mod common;

use std::sync::Arc;

use common::{DEVICES, Lint, Shape, engine_with, random_f16, random_i8, strict_engine};
use npu_matmul::plan::{Accumulate, NPU_SUM_DEPTH_MAX};
use npu_matmul::quantise::{QuantiseOptions, Scheme};
use npu_matmul::{Counters, Engine, PlanOptions, reference};
use proptest::prelude::*;

/// The product, and what was counted for it.
fn product(engine: &Engine, Shape { m, n, k }: Shape, seed: u64) -> (Vec<i32>, Counters) {
    let (a, b) = (random_i8(seed, m * k), random_i8(seed + 1, n * k));
    let weights = engine.load_i8(n, k, &b).unwrap();
    let mut c = vec![-1; m * n];
    engine.multiply_i32(&weights, m, &a, &mut c).unwrap();
    assert!(
        c == reference::multiply_i32(m, n, k, &a, &b),
        "{m} x {k} x {n}"
    );
    (c, engine.counters())
}

proptest! {
    #![proptest_config(test_support::cases(16))]

    #[test]
    fn any_plan_gives_the_same_integers(
        m in 1..70_usize,
        n in 1..200_usize,
        k in 33..500_usize,
        seed in any::<u32>(),
        k_tile in 1..6_usize,
        row_tile in prop::option::of(1..10_usize),
        n_tile in prop::option::of(1..4_usize),
        tasks in prop::sample::select(vec![2, 12, 40, 1024]),
        replicate in any::<Option<bool>>(),
    ) {
        let mut options = PlanOptions {
            replicate,
            row_tile: row_tile.map(|tile| 4 * tile),
            k_tile: Some(32 * k_tile),
            n_tile: n_tile.map(|tile| 64 * tile),
            accumulate: Accumulate::Npu,
            ..PlanOptions::default()
        };
        options.limits.tasks = tasks;
        let (npu, model) = strict_engine(options.clone(), DEVICES);
        let npu = npu.observed_by(Arc::new(Lint));
        options.accumulate = Accumulate::Cpu;
        let cpu = engine_with(options, DEVICES);
        let shape = Shape { m, n, k };
        let (sums, _) = product(&npu, shape, seed.into());
        prop_assert_eq!(sums, product(&cpu, shape, seed.into()).0);
        prop_assert_eq!(model.events(), []);
    }
}

fn with(accumulate: Accumulate, k_tile: usize) -> PlanOptions {
    PlanOptions {
        accumulate,
        k_tile: Some(k_tile),
        ..PlanOptions::default()
    }
}

/// Planes of more than one task, and K tiles of which all but the first two need
/// a sum of their own.
#[test]
fn large_planes_are_added_up_in_pieces() {
    let shape = Shape {
        m: 300,
        n: 600,
        k: 320,
    };
    let (engine, model) = strict_engine(with(Accumulate::Npu, 64), 1);
    let engine = engine.observed_by(Arc::new(Lint));
    let (_, counters) = product(&engine, shape, 1);
    // 5 products of 300 rows and 608 channels. Each of the 4 sums takes a task of
    // 128 atoms by 1024 channels, and two for the rest.
    assert_eq!((counters.jobs, counters.tasks), (1, 5 + 4 * 3));
    assert_eq!(counters.bytes_from_device, 300 * 608 * 4);
    assert_eq!(model.events(), []);

    let engine = engine_with(with(Accumulate::Cpu, 64), 1);
    let (_, counters) = product(&engine, shape, 1);
    assert_eq!(counters.bytes_from_device, 5 * 300 * 608 * 4);
}

#[test]
fn programs_and_buffers_are_used_again() {
    let engine = engine_with(with(Accumulate::Npu, 32), DEVICES);
    let (m, n, k) = (40, 128, 200);
    let weights = engine.load_i8(n, k, &random_i8(2, n * k)).unwrap();
    let mut bytes = Vec::new();
    for seed in 0..4 {
        let a = random_i8(seed, m * k);
        let before = engine.counters().bytes_to_device;
        engine
            .multiply_i32(&weights, m, &a, &mut vec![0; m * n])
            .unwrap();
        bytes.push(engine.counters().bytes_to_device - before);
    }
    // Activations alone.
    assert!(bytes[1] < bytes[0]);
    assert_eq!(bytes[1..], [bytes[1]; 3]);
}

/// Modulo 2^32 beyond the depth that the NPU adds up, and exact up to it.
#[test]
fn the_deepest_sums_are_right() {
    let engine = engine_with(with(Accumulate::Npu, 8192), 1);
    for (k, expected) in [
        (NPU_SUM_DEPTH_MAX, (i32::MAX / 16384) * 16384),
        (NPU_SUM_DEPTH_MAX + 1, i32::MIN),
    ] {
        let least = vec![-128_i8; k];
        let weights = engine.load_i8(1, k, &least).unwrap();
        let before = engine.counters().bytes_from_device;
        let mut c = [0];
        engine.multiply_i32(&weights, 1, &least, &mut c).unwrap();
        assert_eq!(c, [expected]);
        let planes = if k > NPU_SUM_DEPTH_MAX { 17 } else { 1 };
        let read = engine.counters().bytes_from_device - before;
        assert_eq!(read, planes.min(16) * 4 * 32 * 4, "K = {k}");
    }
}

#[test]
fn scales_of_k_tiles_reach_each_of_them() {
    let (m, n, k) = (9, 70, 256);
    let floats =
        |seed, len| -> Vec<f32> { random_f16(seed, len).iter().map(|x| x.to_f32()).collect() };
    let (a, b) = (floats(1, m * k), floats(2, n * k));
    for scheme in [Scheme::PerChannel, Scheme::PerKGroup(64)] {
        let quantise = QuantiseOptions {
            scheme,
            ..QuantiseOptions::default()
        };
        let [cpu, npu] = [Accumulate::Cpu, Accumulate::Npu].map(|accumulate| {
            let engine = engine_with(with(accumulate, 64), DEVICES);
            let weights = engine.load_quantised(n, k, &quantise, &b).unwrap();
            let mut c = vec![0.0; m * n];
            engine.multiply_quantised(&weights, m, &a, &mut c).unwrap();
            (c, engine.counters().bytes_from_device)
        });
        assert_eq!(cpu.0, npu.0, "{scheme:?}");
        let parts = if scheme == Scheme::PerChannel { 4 } else { 1 };
        assert_eq!(cpu.1, parts * npu.1, "{scheme:?}");
    }
}
