// SPDX-License-Identifier: MIT OR Apache-2.0
//! Jobs that the CPU computes while it waits, on a device whose jobs end when a thread waits for
//! them: the CPU gets each job that is not submitted at once.

use std::sync::Arc;

use npu_matmul::quantise::Quantisation;
use npu_matmul::{Engine, PlanOptions, WeightFormat};
use npu_model::{Model, ModelOptions};
use proptest::prelude::*;

use crate::common::matmul::Matmul;
use crate::common::slow::slow;
use crate::common::{DEVICES, Shape, engine_on, engine_with, plan};

fn options(cpu_jobs: Option<bool>) -> PlanOptions {
    PlanOptions {
        cpu_jobs,
        ..PlanOptions::default()
    }
}

/// An engine on this number of files of a slow device.
fn slow_engine(files: usize, options: PlanOptions) -> Engine {
    let device = slow(Model::new(ModelOptions::default()).open(), &Arc::default());
    engine_on(&device, files, options)
}

/// Jobs of the plans of these matmuls.
fn planned_jobs(engine: &Engine, all: &[Matmul]) -> u64 {
    let steps = all
        .iter()
        .flat_map(|one| plan(engine, &one.weights, one.m).steps());
    steps.map(|step| step.jobs.len() as u64).sum()
}

/// Computes the same matmuls with and without the CPU, and compares the results bit by bit.
/// Returns how many jobs NPU and CPU computed.
fn compare(
    files: usize,
    tiles: &PlanOptions,
    m: usize,
    k: usize,
    weights: [(WeightFormat, usize); 3],
) -> [u64; 2] {
    let tiles = |cpu_jobs| PlanOptions {
        cpu_jobs,
        ..tiles.clone()
    };
    let shared = slow_engine(files, tiles(Some(true)));
    let alone = engine_with(tiles(Some(false)), files);
    let [ours, theirs] = [&shared, &alone].map(|engine| {
        let all = Matmul::of_same_rows(engine, m, k, weights);
        (
            Matmul::run_all(engine, &all).unwrap(),
            planned_jobs(engine, &all),
        )
    });
    assert!(ours.0 == theirs.0, "{m} x {k}, {weights:?}");
    let counters = shared.counters();
    // Jobs of matmuls that are not shared are joined.
    assert!((1..=ours.1).contains(&(counters.jobs + counters.jobs_on_cpu)));
    assert_eq!(alone.counters().jobs_on_cpu, 0);
    [counters.jobs, counters.jobs_on_cpu]
}

proptest! {
    #![proptest_config(test_support::cases(24))]

    #[test]
    fn results_are_the_same_whoever_computes(
        m in 64..150_usize,
        k in 1..300_usize,
        widths in [1..300_usize, 1..300, 1..300],
        files in 1..=DEVICES,
        to in prop::sample::select(&Quantisation::ALL[..]),
        tile in prop::sample::select(&[(None, None, None), (Some(16), Some(96), Some(64))][..]),
    ) {
        let (row_tile, k_tile, n_tile) = tile;
        let tiles = PlanOptions { row_tile, k_tile, n_tile, ..PlanOptions::default() };
        for format in [WeightFormat::Quantised(to), WeightFormat::Int8] {
            compare(files, &tiles, m, k, widths.map(|n| (format, n)));
        }
    }
}

/// A few waves are in flight. Everything else waits, and the CPU takes it.
#[test]
fn the_cpu_takes_what_waits() {
    let tiles = PlanOptions {
        row_tile: Some(16),
        n_tile: Some(32),
        ..PlanOptions::default()
    };
    let int8 = WeightFormat::Quantised(Quantisation::W8A8);
    let jobs = compare(1, &tiles, 64, 128, [(int8, 64), (int8, 64), (int8, 96)]);
    assert_eq!(jobs, [2, 26]);
}

/// Few rows, other precisions and the user's choice leave all jobs to the NPU.
#[test]
fn jobs_of_other_calls_are_the_npus() {
    let int8 = WeightFormat::Int8;
    for (cpu_jobs, format, m) in [
        (Some(true), int8, 32),
        (Some(true), WeightFormat::Fp16, 128),
        (Some(true), WeightFormat::Int4, 128),
        (Some(false), int8, 128),
        // A software model, unless somebody asks for it.
        (None, int8, 128),
    ] {
        let engine = slow_engine(1, options(cpu_jobs));
        let matmul = Matmul::new(&engine, format, Shape::new(m, 1024, 512), 1).unwrap();
        matmul.check(&engine).unwrap();
        assert_eq!(
            engine.counters().jobs_on_cpu,
            0,
            "{cpu_jobs:?} {format:?} {m}"
        );
    }
}

/// The CPU takes jobs from the middle of a list, whose other matmuls add up K tiles in order.
#[test]
fn a_list_of_shared_and_other_matmuls() {
    let tiles = PlanOptions {
        row_tile: Some(16),
        k_tile: Some(128),
        n_tile: Some(32),
        cpu_jobs: Some(true),
        ..PlanOptions::default()
    };
    for files in 1..=DEVICES {
        let engine = slow_engine(files, tiles.clone());
        let formats = [WeightFormat::Int8, WeightFormat::Fp16, WeightFormat::Int8];
        let all: Vec<_> = (formats.into_iter().zip([96, 64, 128]).zip(1..))
            .map(|((format, n), seed)| {
                Matmul::new(&engine, format, Shape::new(96, n, 500), seed).unwrap()
            })
            .collect();
        let results = Matmul::run_all(&engine, &all).unwrap();
        for (one, results) in all.iter().zip(&results) {
            one.compare(results);
        }
        assert!(engine.counters().jobs_on_cpu > 0, "{files} files");
    }
}
