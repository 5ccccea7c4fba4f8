// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the memory planner answers is what the model's driver has allocated.
#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests: a failed unwrap is a failed test"
)]

mod common;

use std::sync::{Arc, Mutex};

use common::{DEVICES, random_f16, random_i4, random_i8};
use npu_matmul::plan::{JobLimits, MemoryPlan, WeightMemory};
use npu_matmul::quantise::rotate::Rotation;
use npu_matmul::quantise::{Operands, Outliers, QuantiseOptions, Scheme};
use npu_matmul::{Dtype, Engine, Error, Observer, PlanOptions, SubmittedJob, Weights};
use npu_model::{Level, Model, ModelOptions};
use rocket_uapi::DevicePool;

/// Rows of the products.
const M: usize = 48;
/// Output channels and depth: neither is whole groups, and each device has some.
const N: usize = 200;
const K: usize = 620;

/// What a device keeps for later at most, and has none of when it is new.
const IDLE: u64 = 256 << 20;

fn engine(memory: Option<u64>) -> (Engine, Arc<Model>) {
    let model = Model::new(ModelOptions {
        level: Level::Strict,
        memory,
        ..ModelOptions::default()
    });
    let pool = DevicePool::open(&model.open_device(), DEVICES).unwrap();
    // Several steps, of several jobs a wave.
    let options = PlanOptions {
        limits: JobLimits {
            buffer_bytes: 64 << 10,
            ..JobLimits::default()
        },
        ..PlanOptions::default()
    };
    (Engine::with_options(pool, options).unwrap(), model)
}

/// The most that was allocated when a job was about to be submitted.
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

/// Floats of which some columns are large.
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

/// A way to load and multiply, and what the planner says of it.
enum Kind {
    Plain(Dtype),
    Quantised(QuantiseOptions),
}

impl Kind {
    fn all() -> Vec<Self> {
        let mut all: Vec<_> = Dtype::ALL.into_iter().map(Self::Plain).collect();
        for operands in Operands::ALL {
            for outliers in [
                Outliers::Quantised,
                Outliers::Columns(vec![500, 3, 77, 3]),
                Outliers::Above(6.0),
            ] {
                for scheme in [
                    Scheme::PerTensor,
                    Scheme::PerChannel,
                    Scheme::PerKGroup(128),
                ] {
                    all.push(Self::Quantised(QuantiseOptions {
                        operands,
                        scheme,
                        outliers: outliers.clone(),
                        rotation: Rotation::new(K, 1),
                        ..QuantiseOptions::default()
                    }));
                }
            }
        }
        all
    }

    fn memory(&self, engine: &Engine) -> WeightMemory {
        match self {
            Self::Plain(dtype) => engine.weight_memory(*dtype, N, K),
            Self::Quantised(options) => engine.quantised_weight_memory(N, K, options),
        }
        .unwrap()
    }

    fn load(&self, engine: &Engine) -> Result<Weights, Error> {
        match self {
            Self::Plain(Dtype::Int8) => engine.load_i8(N, K, &random_i8(1, N * K)),
            Self::Plain(Dtype::Int4) => engine.load_i4(N, K, &random_i4(1, N * K)),
            Self::Plain(Dtype::Fp16) => engine.load_f16(N, K, &random_f16(1, N * K)),
            Self::Quantised(options) => engine.load_quantised(N, K, options, &floats(1, N)),
        }
    }

    fn multiply(&self, engine: &Engine, weights: &Weights) {
        let mut sums = vec![0; M * N];
        let mut results = vec![0.0; M * N];
        match self {
            Self::Plain(Dtype::Int8) => {
                engine.multiply_i32(weights, M, &random_i8(2, M * K), &mut sums)
            }
            Self::Plain(Dtype::Int4) => {
                engine.multiply_i32(weights, M, &random_i4(2, M * K), &mut sums)
            }
            Self::Plain(Dtype::Fp16) => {
                engine.multiply_f32(weights, M, &random_f16(2, M * K), &mut results)
            }
            Self::Quantised(_) => {
                engine.multiply_quantised(weights, M, &floats(2, M), &mut results)
            }
        }
        .unwrap();
    }
}

#[test]
fn weights_take_what_was_said_and_products_no_more() {
    for kind in Kind::all() {
        let (engine, model, peak) = watched(None);
        let memory = kind.memory(&engine);
        let mut plan = engine.ram_plan(u64::MAX);
        plan.add_memory(&memory).unwrap();
        let weights = kind.load(&engine).unwrap();
        assert_eq!(model.allocated_bytes(), plan.per_device());
        assert_eq!(weights.host_bytes(), memory.host);
        let exact = plan.per_device().iter().sum::<u64>() + weights.host_bytes();
        assert_eq!(plan.total(), exact);

        kind.multiply(&engine, &weights);
        let most = peak.bytes.lock().unwrap().clone();
        assert_eq!(most.len(), DEVICES);
        for (device, &bytes) in most.iter().enumerate() {
            // Something was needed besides, and nothing was idle before.
            assert!(bytes > plan.per_device()[device]);
            assert!(bytes <= plan.device_at_most(device) - IDLE);
        }
        let ram = most.iter().sum::<u64>() + weights.host_bytes();
        assert!(ram <= plan.ram_at_most() - IDLE * DEVICES as u64);
        // Only programs and idle buffers are left of it.
        drop(weights);
        let left: u64 = model.allocated_bytes().iter().sum();
        assert!(left < ram - exact, "{left} of {ram}");
    }
}

#[test]
fn batches_of_different_weights_take_no_more() {
    let (engine, _, peak) = watched(None);
    let kinds = [Operands::W8A8, Operands::W4A8].map(|operands| {
        Kind::Quantised(QuantiseOptions {
            operands,
            outliers: Outliers::Columns(vec![3, 77, 500]),
            ..QuantiseOptions::default()
        })
    });
    let mut plan = engine.ram_plan(u64::MAX);
    let mut weights = Vec::new();
    for _ in 0..8 {
        for kind in &kinds {
            plan.add_memory(&kind.memory(&engine)).unwrap();
            weights.push(kind.load(&engine).unwrap());
        }
    }
    let a = floats(2, M);
    let mut results = vec![vec![0.0; M * N]; weights.len()];
    let activations: Vec<_> = (weights.iter())
        .map(|weights| weights.quantise_activations(M, &a).unwrap())
        .collect();
    let mut batch = engine.batch();
    for ((weights, activations), out) in weights.iter().zip(&activations).zip(&mut results) {
        batch
            .multiply_activations(weights, activations, out)
            .unwrap();
    }
    batch.run().unwrap();
    for (device, &bytes) in peak.bytes.lock().unwrap().iter().enumerate() {
        assert!(bytes > plan.per_device()[device]);
        assert!(bytes <= plan.device_at_most(device) - IDLE);
    }
}

#[test]
fn what_fits_loads_and_a_page_less_does_not() {
    for kind in Kind::all() {
        let (engine, _) = self::engine(None);
        let memory = kind.memory(&engine);
        let weights: u64 = memory.devices.iter().sum();
        let (engine, _) = self::engine(Some(weights));
        drop(kind.load(&engine).unwrap());
        let (engine, _) = self::engine(Some(weights - 4096));
        let error = kind.load(&engine).unwrap_err();
        assert!(matches!(error, Error::Device { .. }), "{error}");

        // The limit of everything is exact, too, and refused by a byte less.
        let mut plan = engine.ram_plan(u64::MAX);
        plan.add_memory(&memory).unwrap();
        let ram = plan.ram_at_most();
        assert!(engine.ram_plan(ram).add_memory(&memory).is_ok());
        let mut small: MemoryPlan = engine.ram_plan(ram - 1);
        let before = small.clone();
        assert!(small.add_memory(&memory).is_err());
        assert_eq!(small, before);

        // On a board with that much, products run as well.
        let (engine, _) = self::engine(Some(ram));
        let weights = kind.load(&engine).unwrap();
        kind.multiply(&engine, &weights);
    }
}
