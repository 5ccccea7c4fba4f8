// SPDX-License-Identifier: MIT OR Apache-2.0
//! Products whose operands stay in the NPU's buffers: against the oracle, handed
//! to others, and on a device that fails.
#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests: a failed unwrap is a failed test"
)]

mod common;
#[path = "common/faults.rs"]
mod faults;
#[path = "common/in_place.rs"]
mod in_place;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use common::{Lint, Random, Shape, random_f16, random_i4, random_i8, strict_engine};
use faults::faulty_engine;
use half::f16;
use in_place::{fill_f16, fill_i4, fill_i8, gather, results};
use npu_matmul::{
    Engine, Error, JobFailure, PlanOptions, Results, StageOptions, StagedError, reference,
};
use npu_model::driver::Caches;
use npu_model::{Level, Model, ModelOptions};
use proptest::prelude::*;
use rocket_uapi::{Deadline, DevicePool, SharedBuffer};

fn check_integers(engine: &Engine, Shape { m, n, k }: Shape, seed: u64) {
    let b = random_i8(seed, n * k);
    let weights = engine.load_i8(n, k, &b).unwrap();
    let mut staged = engine.stage(&weights, m).unwrap();
    for seed in [seed + 1, seed + 2] {
        let a = random_i8(seed, m * k);
        fill_i8(&mut staged, &a, k);
        staged.multiply().unwrap();
        let c = results(&staged, i32::from_le_bytes);
        assert!(c == reference::multiply_i32(m, n, k, &a, &b));
    }
    let b = random_i4(seed, n * k);
    let weights = engine.load_i4(n, k, &b).unwrap();
    let mut staged = engine.stage(&weights, m).unwrap();
    let a = random_i4(seed + 1, m * k);
    fill_i4(&mut staged, &a, k);
    staged.multiply().unwrap();
    let c = results(&staged, |bytes| i32::from(i16::from_le_bytes(bytes)));
    assert!(c == reference::multiply_i32(m, n, k, &a, &b));
}

fn check_floats(engine: &Engine, Shape { m, n, k }: Shape, seed: u64) {
    let (a, b) = (random_f16(seed, m * k), random_f16(seed + 1, n * k));
    let weights = engine.load_f16(n, k, &b).unwrap();
    let k_tiles = weights.plan().k_tile_count();
    let expected = reference::multiply_f64(m, n, k, &a, &b, k_tiles);
    for results in [Results::Sums, Results::Halves] {
        let options = StageOptions {
            results,
            ..StageOptions::default()
        };
        let mut staged = engine.stage_with(&weights, m, options).unwrap();
        fill_f16(&mut staged, &a, k);
        staged.multiply().unwrap();
        let halves = staged.result_buffers()[0].regions[0].layout.ty.out_bytes() == 2;
        assert_eq!(halves, results == Results::Halves && k_tiles == 1);
        if halves {
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
        (100..300_usize, 1..40_usize, 1..80_usize),
    ]
    .prop_map(|(m, n, k)| Shape { m, n, k })
}

proptest! {
    #![proptest_config(test_support::cases(16))]

    #[test]
    fn in_place_equals_the_oracle(
        shape in shape(),
        seed in any::<u32>(),
        devices in 1..4_usize,
        row_tile in prop::option::of(1..10_usize),
        k_tile in prop::option::of(1..10_usize),
        tasks in 1..20_usize,
        replicate in any::<Option<bool>>(),
    ) {
        let mut options = PlanOptions {
            replicate,
            row_tile: row_tile.map(|fours| fours * 4),
            k_tile: k_tile.map(|groups| groups * 32),
            ..PlanOptions::default()
        };
        options.limits.tasks = tasks;
        let (engine, model) = strict_engine(options, devices);
        let engine = engine.observed_by(Arc::new(Lint));
        check_integers(&engine, shape, seed.into());
        check_floats(&engine, shape, seed.into());
        prop_assert_eq!(model.events(), []);
    }
}

const M: usize = 40;
const N: usize = 200;
const K: usize = 96;

#[test]
fn one_buffer_is_filled_and_copied_to_the_other_devices() {
    let options = PlanOptions {
        replicate: Some(false),
        ..PlanOptions::default()
    };
    let (engine, _) = strict_engine(options, 3);
    let (a, b) = (random_i8(1, M * K), random_i8(2, N * K));
    let weights = engine.load_i8(N, K, &b).unwrap();
    let mut staged = engine.stage(&weights, M).unwrap();
    assert_eq!(staged.activation_buffers().len(), 3);
    let regions = staged.activation_buffers()[1].regions.clone();
    let mut memory = staged.activations_mut(1).unwrap();
    for (at, &value) in a.iter().enumerate() {
        let at = regions[0].position(at / K, at % K).unwrap();
        memory[at.byte] = value.cast_unsigned();
    }
    drop(memory);
    staged.copy_activations(1).unwrap();
    staged.multiply().unwrap();
    let c = results(&staged, i32::from_le_bytes);
    assert!(c == reference::multiply_i32(M, N, K, &a, &b));
}

#[test]
fn nothing_is_allocated_again() {
    let (engine, faults) = faulty_engine(3);
    let (a, b) = (random_i8(1, M * K), random_i8(2, N * K));
    let weights = engine.load_i8(N, K, &b).unwrap();
    let mut staged = engine.stage(&weights, M).unwrap();
    // Each device makes the page of its jobs.
    staged.multiply().unwrap();
    let (made, before) = (faults.made.load(Ordering::Relaxed), engine.counters());
    for _ in 0..3 {
        fill_i8(&mut staged, &a, K);
        staged.multiply().unwrap();
    }
    assert_eq!(faults.made.load(Ordering::Relaxed), made);
    let after = engine.counters();
    // Nothing is copied by the engine, and each device gets one SUBMIT.
    assert_eq!(after.bytes_to_device, before.bytes_to_device);
    assert_eq!(after.bytes_from_device, before.bytes_from_device);
    assert_eq!(after.products - before.products, 3);
    assert_eq!(after.submits - before.submits, 9);
    // The buffers are the next product's.
    drop(staged);
    let mut staged = engine.stage(&weights, M).unwrap();
    fill_i8(&mut staged, &a, K);
    staged.multiply().unwrap();
    assert!(results(&staged, i32::from_le_bytes) == reference::multiply_i32(M, N, K, &a, &b));
    let programs = staged.result_buffers().len();
    assert_eq!(faults.made.load(Ordering::Relaxed), made + programs);
    drop(staged);
    drop(weights);
    drop(engine);
    assert_eq!(faults.live.load(Ordering::Relaxed), 0);
}

/// A device whose NPU sees of the CPU's caches what PREP_BO and FINI_BO let it,
/// a pool of it, and another file of it.
fn shared() -> (Engine, rocket_uapi::Device, Arc<Model>) {
    let model = Model::new(ModelOptions {
        caches: Caches::Manual,
        level: Level::Strict,
        ..ModelOptions::default()
    });
    let device = model.open_device();
    let pool = DevicePool::open(&device, 2).unwrap();
    // Both read all of A.
    let options = PlanOptions {
        replicate: Some(false),
        ..PlanOptions::default()
    };
    let engine = Engine::with_options(pool, options)
        .unwrap()
        .observed_by(Arc::new(Lint));
    (engine, device.reopen().unwrap(), model)
}

#[test]
fn another_file_writes_a_and_reads_c() {
    let (engine, other, model) = shared();
    let b = random_i8(2, N * K);
    let weights = engine.load_i8(N, K, &b).unwrap();
    let mut staged = engine.stage(&weights, M).unwrap();
    let inputs: Vec<_> = (0..staged.activation_buffers().len())
        .map(|index| staged.export_activations(index).unwrap())
        .map(|dma_buf| other.import(std::os::fd::AsFd::as_fd(&dma_buf)).unwrap())
        .collect();
    let outputs: Vec<_> = (0..staged.result_buffers().len())
        .map(|index| staged.export_results(index).unwrap())
        .map(|dma_buf| other.import(std::os::fd::AsFd::as_fd(&dma_buf)).unwrap())
        .collect();
    for seed in [10, 11] {
        let a = random_i8(seed, M * K);
        for (buffer, input) in staged.activation_buffers().iter().zip(&inputs) {
            let mut bytes = vec![0; buffer.bytes];
            for region in &buffer.regions {
                for (at, &value) in a.iter().enumerate() {
                    if let Some(at) = region.position(at / K, at % K) {
                        bytes[at.byte] = value.cast_unsigned();
                    }
                }
            }
            input.write_from(0, &bytes, Deadline::FOREVER).unwrap();
        }
        staged.multiply().unwrap();
        let read = |index: usize| {
            let mut bytes = vec![0; staged.result_buffers()[index].bytes];
            outputs[index]
                .read_into(0, &mut bytes, Deadline::FOREVER)
                .unwrap();
            bytes
        };
        let c = gather(&staged, read, i32::from_le_bytes);
        assert!(c == reference::multiply_i32(M, N, K, &a, &b));
    }
    assert_eq!(model.events(), []);
    // What others have is not reached by slices any more.
    let exported = |operand| Error::Staged(StagedError::Exported { operand, index: 0 }).to_string();
    let refused = staged.activations_mut(0).unwrap_err().to_string();
    assert_eq!(refused, exported("activation"));
    let refused = staged.copy_activations(0).unwrap_err().to_string();
    assert_eq!(refused, exported("activation"));
    let refused = staged.results(0).unwrap_err().to_string();
    assert_eq!(refused, exported("result"));
    // The same dma-buf again.
    let again = staged.export_results(0).unwrap();
    assert_eq!(again.iova(), staged.export_results(0).unwrap().iova());
}

#[test]
fn what_is_not_there_is_refused() {
    let (engine, _) = strict_engine(PlanOptions::default(), 1);
    let weights = engine.load_i8(N, K, &random_i8(1, N * K)).unwrap();
    let other = strict_engine(PlanOptions::default(), 1).0;
    assert!(matches!(
        other.stage(&weights, M),
        Err(Error::ForeignWeights)
    ));
    assert!(matches!(engine.stage(&weights, 0), Err(Error::Plan(_))));
    let too_large = engine.stage(&weights, i32::MAX as usize);
    assert!(matches!(
        too_large,
        Err(Error::Staged(StagedError::TooLarge { device: 0, .. }))
    ));
    let mut staged = engine.stage(&weights, M).unwrap();
    let refusals = [
        staged.activations_mut(1).map(drop),
        staged.copy_activations(1),
        staged.results(1).map(drop),
        staged.export_activations(1).map(drop),
        staged.export_results(1).map(drop),
    ];
    for refused in refusals {
        assert!(matches!(
            refused,
            Err(Error::Staged(StagedError::NoSuchBuffer {
                index: 1,
                count: 1,
                ..
            }))
        ));
    }
    staged.multiply().unwrap();
}

#[test]
fn a_failed_product_leaves_its_operands() {
    for exports in [false, true] {
        let (engine, faults) = faulty_engine(3);
        let (a, b) = (random_i8(1, M * K), random_i8(2, N * K));
        let weights = engine.load_i8(N, K, &b).unwrap();
        let mut staged = engine.stage(&weights, M).unwrap();
        fill_i8(&mut staged, &a, K);
        if exports {
            for index in 0..staged.result_buffers().len() {
                staged.export_results(index).unwrap();
            }
        }
        let mut random = Random::new(5);
        for _ in 0..10 {
            let count = random.next() as usize % 4 + 1;
            faults.killed.store(count, Ordering::Relaxed);
            let killed = staged.multiply().unwrap_err();
            assert!(matches!(
                killed,
                Error::Job {
                    source: JobFailure::Killed,
                    ..
                }
            ));
            faults.killed.store(0, Ordering::Relaxed);
            faults.lost.store(usize::MAX, Ordering::Relaxed);
            let lost = staged.multiply().unwrap_err();
            assert!(matches!(lost, Error::Job { .. }), "{lost}");
            faults.lost.store(0, Ordering::Relaxed);
            faults.refused.store(count, Ordering::Relaxed);
            let refused = staged.multiply().unwrap_err();
            assert!(matches!(refused, Error::Device { .. }));
            faults.refused.store(0, Ordering::Relaxed);
        }
        // A run that nobody waits for ends all the same.
        drop(staged.submit().unwrap());
        staged.submit().unwrap().wait().unwrap();
        let expected = reference::multiply_i32(M, N, K, &a, &b);
        if exports {
            let dma_bufs: Vec<_> = (0..staged.result_buffers().len())
                .map(|index| staged.export_results(index).unwrap())
                .collect();
            let read = |index: usize| {
                let mut bytes = vec![0; staged.result_buffers()[index].bytes];
                dma_bufs[index]
                    .read_into(0, &mut bytes, Deadline::FOREVER)
                    .unwrap();
                bytes
            };
            assert!(gather(&staged, read, i32::from_le_bytes) == expected);
        } else {
            assert!(results(&staged, i32::from_le_bytes) == expected);
        }
        drop(staged);
        drop(weights);
        drop(engine);
        assert_eq!(faults.live.load(Ordering::Relaxed), 0);
    }
}

#[test]
fn no_memory_for_a_staged_product_is_an_error() {
    let (engine, faults) = faulty_engine(2);
    let weights = engine.load_i8(N, K, &random_i8(1, N * K)).unwrap();
    // A CREATE_BO without memory is tried again where there are idle buffers.
    for failing in 0..8 {
        faults.no_memory.store(2, Ordering::Relaxed);
        let refused = engine.stage(&weights, M + 40 * failing).unwrap_err();
        assert!(matches!(refused, Error::Device { .. }), "{refused}");
        faults.no_memory.store(0, Ordering::Relaxed);
        engine
            .stage(&weights, M + 40 * failing)
            .unwrap()
            .multiply()
            .unwrap();
    }
    drop(weights);
    drop(engine);
    assert_eq!(faults.live.load(Ordering::Relaxed), 0);
}
