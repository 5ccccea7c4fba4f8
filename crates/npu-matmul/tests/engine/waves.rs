// SPDX-License-Identifier: MIT OR Apache-2.0
//! Jobs that are submitted together: all of a matmul, or as many as have room.

use npu_matmul::plan::JobLimits;
use npu_matmul::{Counters, PlanOptions, WeightFormat};
use proptest::prelude::*;

use crate::common::matmul::Matmul;
use crate::common::{DEVICES, Shape, plan, strict_engine};

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
    let matmul = Matmul::new(&engine, WeightFormat::Int8, Shape::new(m, n, k), 1).unwrap();
    let planned = plan(&engine, &matmul.weights, m).submits(&options.limits);
    matmul.check(&engine).unwrap();
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
fn several_jobs_of_a_device_are_one_submit_if_there_is_room() {
    // Each step writes 4 x 32 sums on a device: there is room for all steps, or for one.
    let one = 4 * 32 * size_of::<i32>();
    for (rows, bytes, submits) in [(16, 4096, 1), (12, one, 3), (40, one, 10)] {
        let (counters, _) = counters_of(&small(bytes, 1), [rows, 96, 32]);
        assert_eq!(counters.jobs, (rows / 4 * DEVICES) as u64);
        assert_eq!(counters.submits, (submits * DEVICES) as u64, "{rows} rows");
    }
}
