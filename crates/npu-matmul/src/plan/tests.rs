// SPDX-License-Identifier: MIT OR Apache-2.0
//! Properties that hold for every plan.

mod choices;
mod few_rows;

use std::collections::HashMap;
use std::time::Duration;

use proptest::prelude::*;
use rknpu_regcmd::MatmulError;

use super::cost::task_time_bound_ns;
use super::tiles::check_tile;
use super::*;
use crate::numbers::dtype::Dtype;
use crate::numbers::layout;

/// Options of a board at a clock.
const BOARDS: [fn(u64) -> PlanOptions; 2] = [PlanOptions::uncalibrated, PlanOptions::calibrated];

fn dtype() -> impl Strategy<Value = Dtype> {
    prop::sample::select(&Dtype::ALL[..])
}

/// Limits from "almost nothing" to the default.
fn limits() -> impl Strategy<Value = JobLimits> {
    let small = JobLimits {
        time: Duration::from_millis(4),
        buffer_bytes: 256 << 10,
        tasks: 7,
        joined: true,
    };
    prop::sample::select(vec![small, JobLimits::default()])
}

/// Checks that `ranges` cover each element of `0..len` once.
fn assert_covers(len: usize, ranges: impl Iterator<Item = std::ops::Range<usize>>) {
    let mut ranges: Vec<_> = ranges.collect();
    ranges.sort_by_key(|r| r.start);
    let mut next = 0;
    for range in ranges {
        assert_eq!(range.start, next);
        assert!(!range.is_empty());
        next = range.end;
    }
    assert_eq!(next, len);
}

/// Checks everything in a plan that execution relies on.
fn check(plan: &Plan, limits: &JobLimits) {
    let w = &plan.weights;
    let p = w.dtype;
    assert_covers(w.n, w.blocks.iter().map(|b| b.n.clone()));
    assert_covers(w.k, w.k_tiles().map(|t| t.k));
    // (first row, first channel) -> number of K tiles computed so far.
    let mut done: HashMap<(usize, usize), usize> = HashMap::new();
    let mut area = 0;
    for step in plan.steps() {
        assert!(!step.jobs.is_empty());
        let mut devices: Vec<_> = step.jobs.iter().map(|j| j.device).collect();
        devices.dedup();
        assert_eq!(devices.len(), step.jobs.len(), "two jobs on one device");
        for job in &step.jobs {
            let block = &w.blocks[job.block];
            assert_eq!(job.device, block.device);
            assert!(job.output_bytes <= limits.buffer_bytes);
            assert!(job.tasks.len() <= limits.tasks);
            let band = &*job.band;
            assert!(band.padded >= band.rows.len() && band.padded % 4 == 0);
            let (mut a_end, mut offsets) = (0, Vec::new());
            for a in &band.k_tiles {
                offsets.push(a_end);
                a_end += layout::activation_bytes(p, band.padded, a.padded);
            }
            assert_eq!(a_end, band.activation_bytes);
            assert!(a_end <= limits.buffer_bytes);
            let (mut time, mut c_end) = (0, 0);
            for task in &job.tasks {
                let (m, k, n) = (
                    task.m_padded as usize,
                    task.k_padded as usize,
                    task.n_padded as usize,
                );
                check_tile(p, m, k, n).unwrap();
                assert!(k.is_multiple_of(w.k_multiple()));
                time += task_time_bound_ns(p, m, k, n);
                let a = &band.k_tiles[task.activation];
                assert_eq!((band.padded, a.padded), (m, k));
                assert_eq!(offsets[task.activation], task.a as usize);
                assert_eq!(task.c as usize, c_end);
                c_end += layout::output_bytes(job.dtype, m, n);
                assert_eq!((task.n.start - block.n.start) % p.kernel_group(), 0);
                assert!(task.n.len() <= n);
                let b_end = task.b as usize + layout::weight_bytes(p, n, k);
                assert!(b_end <= w.block_bytes(block));
                area += band.rows.len() * a.k.len() * task.n.len();
                let seen = done.entry((band.rows.start, task.n.start)).or_default();
                assert_eq!(*seen, a.index, "K tiles out of order");
                *seen += 1;
            }
            assert_eq!(c_end, job.output_bytes);
            let tile_tasks = (0..band.k_tiles.len()).flat_map(|a| {
                let tasks = job.tasks_of(a);
                assert!(tasks.iter().all(|task| task.activation == a));
                assert!(tasks.is_sorted_by_key(|task| task.n.start));
                tasks
            });
            assert_eq!(tile_tasks.count(), job.tasks.len());
            assert_eq!(time, job.time_bound_ns);
            assert!(u128::from(time) <= limits.time.as_nanos());
        }
    }
    assert!(done.values().all(|&seen| seen == w.k_tile_count()));
    assert_eq!(area, plan.m * w.k * w.n);
}

proptest! {
    #![proptest_config(test_support::cases(96))]

    #[test]
    fn plans_are_whole_legal_and_bounded(
        dtype in dtype(),
        m in prop_oneof![1..=32_usize, 1..3000_usize],
        k in 1..20_000_usize,
        n in 1..20_000_usize,
        devices in 1..6_usize,
        limits in limits(),
        board in prop::sample::select(&BOARDS[..]),
        parts in prop::option::of(0..9_usize),
    ) {
        let options = PlanOptions { limits, parts, ..board(600_000_000) };
        let weights = WeightPlan::new(dtype, n, k, devices, &options).unwrap();
        match Plan::new(&weights, m, &options) {
            Ok(plan) => check(&plan, &limits),
            Err(PlanError::JobLimits { .. }) => prop_assert_ne!(limits, JobLimits::default()),
            Err(other) => prop_assert!(false, "{other}"),
        }
    }

    #[test]
    fn forced_tiles_are_obeyed_or_refused(
        dtype in dtype(),
        m in 1..300_usize,
        k in 1..1000_usize,
        n in 1..1000_usize,
        row_tile in 0..1100_usize,
        k_tile in 0..1100_usize,
        n_tile in 0..1100_usize,
        multiples in any::<bool>(),
    ) {
        let round = |size: usize, unit: usize| if multiples { size / unit * unit } else { size };
        let options = PlanOptions {
            row_tile: Some(round(row_tile, 4)),
            k_tile: Some(round(k_tile, 32)),
            n_tile: Some(round(n_tile, dtype.kernel_group())),
            ..PlanOptions::default()
        };
        let plan = WeightPlan::new(dtype, n, k, 2, &options);
        if let Ok(weights) = &plan
            && let Ok(plan) = Plan::new(weights, m, &options)
        {
            prop_assert!(plan.row_tile <= row_tile && weights.k_tile <= k_tile);
            check(&plan, &options.limits);
        }
    }

    #[test]
    fn any_numbers_give_a_plan_or_an_error(
        dtype in dtype(),
        m in any::<usize>(),
        k in any::<usize>(),
        n in any::<usize>(),
        shift in 0..60_u32,
        forced in any::<Option<usize>>(),
    ) {
        let options = PlanOptions {
            row_tile: forced,
            k_tile: forced,
            n_tile: forced,
            ..PlanOptions::default()
        };
        for options in [options, PlanOptions::default()] {
            let Ok(weights) = WeightPlan::new(dtype, n >> shift, k >> shift, 3, &options) else {
                continue;
            };
            if let Ok(plan) = Plan::new(&weights, m >> shift, &options) {
                let _ = plan.steps().next();
            }
        }
    }
}

fn weights(dtype: Dtype, n: usize, k: usize, devices: usize) -> WeightPlan {
    WeightPlan::new(dtype, n, k, devices, &PlanOptions::default()).unwrap()
}

#[test]
fn small_matmuls_are_one_task() {
    let w = weights(Dtype::Int8, 64, 64, 1);
    let plan = Plan::new(&w, 64, &PlanOptions::default()).unwrap();
    let steps: Vec<_> = plan.steps().collect();
    assert_eq!(steps.len(), 1);
    assert_eq!(steps[0].jobs.len(), 1);
    assert_eq!(steps[0].jobs[0].tasks.len(), 1);
    assert_eq!(
        plan.to_string(),
        "int8 M=64 K=64 N=64: tiles of 64 x 64 x 8192, 1 K tile(s), 1 block(s) of weights, \
         1 step(s) of up to 64 channels, 1 K tile(s) per job"
    );
}

#[test]
fn channels_are_spread_evenly() {
    let w = weights(Dtype::Int8, 4096, 64, 3);
    let sizes: Vec<_> = w.blocks.iter().map(|b| b.padded / 32).collect();
    assert_eq!(sizes, [43, 43, 42]);
    // There are fewer groups than devices, so some devices have no block.
    let w = weights(Dtype::Int8, 33, 64, 5);
    assert_eq!(w.blocks.len(), 2);
}

#[test]
fn illegal_sizes_are_named() {
    let none = PlanOptions::default();
    let new = |n, k, options: &PlanOptions| WeightPlan::new(Dtype::Int8, n, k, 1, options);
    assert_eq!(
        new(0, 1, &none),
        Err(PlanError::EmptyDimension { dimension: "N" })
    );
    assert_eq!(
        new(1, 0, &none),
        Err(PlanError::EmptyDimension { dimension: "K" })
    );
    assert_eq!(
        WeightPlan::new(Dtype::Int8, 1, 1, 0, &none),
        Err(PlanError::NoDevice)
    );
    let w = new(64, 64, &none).unwrap();
    assert_eq!(
        Plan::new(&w, 0, &none),
        Err(PlanError::EmptyDimension { dimension: "M" })
    );
    assert!(matches!(
        new(1, 1 << 30, &none),
        Err(PlanError::GroupTooLarge { .. })
    ));
    assert!(matches!(
        new(1 << 30, 1 << 10, &none),
        Err(PlanError::WeightsTooLarge { .. })
    ));

    let forced = |row_tile, k_tile, n_tile| PlanOptions {
        row_tile,
        k_tile,
        n_tile,
        ..PlanOptions::default()
    };
    let rule = |result: Result<(), PlanError>| -> MatmulError {
        match result {
            Err(PlanError::IllegalTile { source, .. }) => source,
            other => panic!("{other:?}"),
        }
    };
    let plan = |options| rule(Plan::new(&w, 64, &options).map(|_| ()));
    for (options, expected) in [
        (
            forced(Some(6), None, None),
            "M = 6 is not a positive multiple of 4",
        ),
        (forced(Some(0), None, None), "M = 0 is not a positive"),
        (forced(None, None, Some(0)), "N = 0 is not a positive"),
        (forced(Some(2048), None, None), "M = 2048 is more than"),
        (
            forced(None, None, Some(33)),
            "N = 33 is not a positive multiple of",
        ),
        (forced(None, None, Some(16384)), "N = 16384 is more than"),
    ] {
        assert!(plan(options).to_string().starts_with(expected));
    }
    for k_tile in [0, 33, 16384] {
        rule(new(64, 64, &forced(None, Some(k_tile), None)).map(|_| ()));
    }
    assert_eq!(
        WeightPlan::new(Dtype::Int4, 1, 1024, 1, &forced(None, Some(512), None)),
        Err(PlanError::Int4Saturation { k: 512, max: 384 })
    );
}
