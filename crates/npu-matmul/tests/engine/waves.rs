// SPDX-License-Identifier: MIT OR Apache-2.0
//! Jobs that are submitted together: all of a matmul, or as many as have room.

use npu_matmul::plan::JobLimits;
use npu_matmul::{Counters, PlanOptions, Weights};
use proptest::prelude::*;

use crate::common::{DEVICES, check_integers, random_i8, strict_engine};

/// Options for many steps: small tiles, and jobs of few tiles.
fn small(buffer_bytes: usize, tasks: usize) -> PlanOptions {
    let limits = JobLimits {
        buffer_bytes,
        tasks,
        ..JobLimits::default()
    };
    PlanOptions {
        limits,
        row_tile: Some(4),
        k_tile: Some(64),
        ..PlanOptions::default()
    }
}

/// Counters of a matmul of `m x k` and `n x k`, after a check of its result, and the number of
/// SUBMIT calls that its plan predicts.
fn counters_of(options: &PlanOptions, [m, n, k]: [usize; 3]) -> (Counters, usize) {
    let (engine, model) = strict_engine(options.clone(), DEVICES);
    let (a, b) = (random_i8(1, m * k), random_i8(2, n * k));
    let weights = engine.load(Weights::i8(n, k, &b)).unwrap();
    let planned = crate::common::plan(&engine, &weights, m).submits(&options.limits);
    check_integers(&engine, &weights, &a, &b);
    assert_eq!(model.events(), []);
    (engine.counters(), planned)
}

proptest! {
    #![proptest_config(test_support::cases(24))]

    #[test]
    fn a_plan_knows_its_submits(
        shape in [1..40_usize, 1..200, 1..150],
        bytes in 512..32768_usize,
        tasks in 1..8_usize,
    ) {
        let (counters, planned) = counters_of(&small(bytes, tasks), shape);
        prop_assert_eq!(counters.submits, planned as u64);
        prop_assert!(counters.submits <= counters.jobs);
    }
}

#[test]
fn several_jobs_of_a_device_are_one_submit() {
    // Four ranges of rows on each device, which take little memory.
    let (counters, _) = counters_of(&small(4096, 1), [16, 96, 32]);
    assert_eq!(counters.jobs, 4 * DEVICES as u64);
    assert_eq!(counters.submits, DEVICES as u64);
}

#[test]
fn what_has_no_room_is_several_submits() {
    // Each step writes 4 x 32 sums on a device; a wave has room for one step.
    let bytes = 4 * 32 * size_of::<i32>();
    for (rows, waves) in [(12, 3), (40, 10)] {
        let (counters, _) = counters_of(&small(bytes, 1), [rows, 96, 32]);
        assert_eq!(counters.jobs, (rows / 4 * DEVICES) as u64);
        assert_eq!(counters.submits, (waves * DEVICES) as u64, "{rows} rows");
    }
}
