// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compares the memory planner with the allocations of the model's driver.

use std::sync::{Arc, Mutex};

use npu_matmul::memory::{MemoryPlan, WeightMemory};
use npu_matmul::plan::JobLimits;
use npu_matmul::quantise::Quantisation;
use npu_matmul::{
    Engine, Error, Observer, PackedWeights, PlanOptions, SubmittedJob, WeightFormat, Weights,
};
use npu_model::{Level, Model, ModelOptions};

use crate::common::{DEVICES, engine_on, multiply, multiply_all, random_f16, random_i4, random_i8};

/// Rows of the matmuls.
const M: usize = 48;
/// Output channels and depth: neither is a multiple of its group, and each device has channels.
const N: usize = 200;
const K: usize = 620;

/// Bytes that an engine takes on each device for itself: the page at address 0.
const GUARD: u64 = 4096;

/// Most bytes that a device keeps for later; a new device has none.
const IDLE: u64 = 256 << 20;

fn engine(memory: Option<u64>) -> (Engine, Arc<Model>) {
    let model = Model::new(ModelOptions {
        level: Level::Strict,
        memory: memory.map(|bytes| bytes + GUARD * DEVICES as u64),
        ..ModelOptions::default()
    });
    // Matmuls have several steps, and waves several jobs.
    let options = PlanOptions {
        limits: JobLimits {
            buffer_bytes: 64 << 10,
            ..JobLimits::default()
        },
        ..PlanOptions::default()
    };
    (engine_on(&model.open_device(), DEVICES, options), model)
}

/// The most bytes allocated just before a job was submitted.
#[derive(Debug)]
struct Peak {
    model: Arc<Model>,
    bytes: Mutex<Vec<u64>>,
}

impl Observer for Peak {
    fn submitting(&self, _: &SubmittedJob<'_>) {
        let now = self.model.allocated_bytes();
        let mut most = self.bytes.lock().unwrap();
        let files = now.len().max(most.len());
        most.resize(files, 0);
        for (most, now) in most.iter_mut().zip(now) {
            *most = now.max(*most);
        }
    }
}

fn watched(memory: Option<u64>) -> (Engine, Arc<Model>, Arc<Peak>) {
    let (engine, model) = engine(memory);
    let peak = Arc::new(Peak {
        model: Arc::clone(&model),
        bytes: Mutex::default(),
    });
    (engine.observed_by(Arc::clone(&peak) as _), model, peak)
}

/// Floats with some large columns.
fn floats(seed: u64, rows: usize) -> Vec<f32> {
    let mut floats: Vec<f32> = random_f16(seed, rows * K)
        .iter()
        .map(|x| x.to_f32())
        .collect();
    for row in floats.chunks_mut(K) {
        for column in [3, 77, 500] {
            row[column] += 100.0;
        }
    }
    floats
}

/// All formats with different memory use.
fn formats() -> Vec<WeightFormat> {
    let quantised = Quantisation::ALL.map(WeightFormat::Quantised);
    [WeightFormat::Int8, WeightFormat::Int4, WeightFormat::Fp16]
        .into_iter()
        .chain(quantised)
        .collect()
}

fn memory(engine: &Engine, format: WeightFormat) -> WeightMemory {
    engine.weight_memory(format, N, K).unwrap()
}

fn load(engine: &Engine, format: WeightFormat) -> Result<PackedWeights, Error> {
    let nibbles = random_i4(1, N * K);
    match format {
        WeightFormat::Int8 => engine.load(Weights::i8(N, K, &random_i8(1, N * K))),
        WeightFormat::Int4 => engine.load(Weights::i4(N, K, &nibbles)),
        WeightFormat::Fp16 => engine.load(Weights::f16(N, K, &random_f16(1, N * K))),
        WeightFormat::Quantised(to) => engine.load(Weights::quantised(N, K, to, &floats(1, N))),
    }
}

fn run(engine: &Engine, weights: &PackedWeights) {
    let (mut sums, mut results) = (vec![0; M * N], vec![0.0; M * N]);
    let (nibbles, halves) = (random_i4(2, M * K), random_f16(2, M * K));
    match weights.format() {
        WeightFormat::Int8 | WeightFormat::Int4 => {
            multiply(engine, weights, M, &nibbles, &mut sums)
        }
        WeightFormat::Fp16 => multiply(engine, weights, M, &halves, &mut results),
        WeightFormat::Quantised(_) => multiply(engine, weights, M, &floats(2, M), &mut results),
    }
    .unwrap();
}

#[test]
fn weights_take_what_was_said_and_matmuls_no_more() {
    for format in formats() {
        let (engine, model, peak) = watched(None);
        let takes = memory(&engine, format);
        let mut plan = engine.ram_plan(u64::MAX);
        plan.add_memory(&takes).unwrap();
        let weights = load(&engine, format).unwrap();
        let per_device: Vec<u64> = plan.per_device().collect();
        for (device, bytes) in model.allocated_bytes().into_iter().enumerate() {
            assert!(bytes >= per_device[device] + GUARD);
            assert!(bytes <= plan.device_at_most(device) - IDLE);
        }
        assert_eq!(weights.device_bytes(), per_device.iter().sum::<u64>());
        assert_eq!(weights.host_bytes(), takes.host);
        let exact = weights.device_bytes() + weights.host_bytes();
        assert_eq!(plan.total(), exact);
        let loaded: u64 = model.allocated_bytes().iter().sum();

        run(&engine, &weights);
        let most = peak.bytes.lock().unwrap().clone();
        assert_eq!(most.len(), DEVICES);
        for (device, &bytes) in most.iter().enumerate() {
            // Working memory was needed, too, and there were no idle buffers before.
            assert!(bytes > per_device[device]);
            assert!(bytes <= plan.device_at_most(device) - IDLE);
        }
        let ram = most.iter().sum::<u64>() + weights.host_bytes();
        assert!(ram <= plan.ram_at_most() - IDLE * DEVICES as u64);
        // Only programs and idle buffers are left.
        drop(weights);
        let left: u64 = model.allocated_bytes().iter().sum();
        // A job's page, and the operands of a device's first witness, are allocated after the peak
        // was measured.
        let besides = ram - loaded + (GUARD + 10 * 4096) * DEVICES as u64;
        assert!(left <= besides, "{left} of {besides}");
    }
}

#[test]
fn matmuls_of_different_weights_at_once_take_no_more() {
    let (engine, _, peak) = watched(None);
    let formats = [Quantisation::W8A8, Quantisation::W4A8Hadamard].map(WeightFormat::Quantised);
    let mut plan = engine.ram_plan(u64::MAX);
    let mut weights = Vec::new();
    for _ in 0..8 {
        for format in formats {
            plan.add_memory(&memory(&engine, format)).unwrap();
            weights.push(load(&engine, format).unwrap());
        }
    }
    let per_device: Vec<u64> = plan.per_device().collect();
    let a = floats(2, M);
    let mut results = vec![vec![0.0; M * N]; weights.len()];
    let matmuls = weights.iter().zip(&mut results);
    let matmuls = matmuls.map(|(weights, c)| (weights, M, (&a).into(), c.into()));
    multiply_all(&engine, matmuls.collect()).unwrap();
    for (device, &bytes) in peak.bytes.lock().unwrap().iter().enumerate() {
        assert!(bytes > per_device[device]);
        assert!(bytes <= plan.device_at_most(device) - IDLE);
    }
}

#[test]
fn what_fits_loads_and_a_page_less_does_not() {
    for format in formats() {
        let (engine, model) = self::engine(None);
        let takes = memory(&engine, format);
        let loaded = load(&engine, format).unwrap();
        let all: u64 = model.allocated_bytes().iter().sum();
        let weights = all - GUARD * DEVICES as u64;
        drop(loaded);
        let (engine, _) = self::engine(Some(weights));
        drop(load(&engine, format).unwrap());
        let (engine, _) = self::engine(Some(weights - 4096));
        let error = load(&engine, format).unwrap_err();
        assert!(matches!(error, Error::Device { .. }), "{error}");

        // The RAM limit is exact, too: with a byte less the plan does not fit.
        let mut plan = engine.ram_plan(u64::MAX);
        plan.add_memory(&takes).unwrap();
        let ram = plan.ram_at_most();
        assert!(engine.ram_plan(ram).add_memory(&takes).is_ok());
        let mut small: MemoryPlan = engine.ram_plan(ram - 1);
        let before = small.clone();
        assert!(small.add_memory(&takes).is_err());
        assert_eq!(small, before);

        // On a board with this much memory matmuls run as well.
        let (engine, _) = self::engine(Some(ram));
        let weights = load(&engine, format).unwrap();
        run(&engine, &weights);
    }
}
