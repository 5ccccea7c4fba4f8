// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compares the memory planner with the allocations of the model's driver.

use std::sync::{Arc, Mutex};

use npu_matmul::memory::{DoesNotFit, MemoryPlan, MemoryShares};
use npu_matmul::plan::JobLimits;
use npu_matmul::quantise::Quantisation;
use npu_matmul::{Engine, Error, JobEvent, Observer, PlanOptions, WeightFormat};
use npu_model::{Level, Model, ModelOptions};

use crate::common::attention::{CASE, Case, Operands};
use crate::common::matmul::Matmul;
use crate::common::{DEVICES, Shape, engine_on};

/// Rows of the matmuls.
const M: usize = 48;
/// Output channels and depth: neither is a multiple of its group, and each device has channels.
const N: usize = 200;
const K: usize = 620;

/// Bytes that an engine takes on each device for itself: the page at address 0.
const GUARD: u64 = 4096;

/// Most bytes that a device keeps for later; a new device has none.
const IDLE: u64 = (512 << 20) / DEVICES as u64;

fn engine(memory: Option<u64>) -> (Engine, Arc<Model>) {
    let model = Model::new(ModelOptions {
        level: Level::Strict,
        memory: memory.map(|bytes| bytes + GUARD * DEVICES as u64),
        ..ModelOptions::default()
    });
    (engine_on(&model.open_device(), DEVICES, options()), model)
}

/// With these, matmuls have several steps, and waves several jobs.
fn options() -> PlanOptions {
    PlanOptions {
        limits: JobLimits {
            buffer_bytes: 64 << 10,
            ..JobLimits::default()
        },
        ..PlanOptions::default()
    }
}

/// The most bytes allocated just before a job was submitted.
#[derive(Debug)]
struct Peak {
    model: Arc<Model>,
    bytes: Mutex<Vec<u64>>,
}

impl Observer for Peak {
    fn submitting(&self, _: &JobEvent<'_>) {
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

/// Adds the memory of weights to a plan.
fn add(plan: &mut MemoryPlan, engine: &Engine, format: WeightFormat) -> Result<(), DoesNotFit> {
    plan.add(&engine.weight_plan(format, N, K).unwrap())
}

fn load(engine: &Engine, format: WeightFormat) -> Result<Matmul, Error> {
    Matmul::new(engine, format, Shape::new(M, N, K), 1)
}

#[test]
fn weights_take_what_was_said_and_matmuls_no_more() {
    for format in Matmul::formats() {
        let (engine, model, peak) = watched(None);
        let mut plan = engine.memory_plan();
        add(&mut plan, &engine, format).unwrap();
        let matmul = load(&engine, format).unwrap();
        let weights = &matmul.weights;
        let per_device: Vec<u64> = plan.per_device().collect();
        for (device, bytes) in model.allocated_bytes().into_iter().enumerate() {
            assert!(bytes >= per_device[device] + GUARD);
            assert!(bytes <= plan.device_at_most(device) - IDLE);
        }
        assert_eq!(weights.device_bytes(), per_device.iter().sum::<u64>());
        assert_eq!(plan.total(), weights.device_bytes());
        let loaded: u64 = model.allocated_bytes().iter().sum();

        matmul.run(&engine).unwrap();
        let most = peak.bytes.lock().unwrap().clone();
        assert_eq!(most.len(), DEVICES);
        for (device, &bytes) in most.iter().enumerate() {
            // Working memory was needed, too, and there were no idle buffers before.
            assert!(bytes > per_device[device]);
            assert!(bytes <= plan.device_at_most(device) - IDLE);
        }
        let ram = most.iter().sum::<u64>();
        // Only programs and idle buffers are left.
        drop(matmul);
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
    let formats = [
        WeightFormat::Quantised(Quantisation::W8A8),
        WeightFormat::Int4,
    ];
    let mut plan = engine.memory_plan();
    let mut matmuls = Vec::new();
    for _ in 0..8 {
        for format in formats {
            add(&mut plan, &engine, format).unwrap();
            matmuls.push(load(&engine, format).unwrap());
        }
    }
    let per_device: Vec<u64> = plan.per_device().collect();
    Matmul::run_all(&engine, &matmuls).unwrap();
    for (device, &bytes) in peak.bytes.lock().unwrap().iter().enumerate() {
        assert!(bytes > per_device[device]);
        assert!(bytes <= plan.device_at_most(device) - IDLE);
    }
}

/// Keys, values, queries, scores, probabilities and results of the tiles in flight.
#[test]
fn attention_takes_no_more() {
    let (engine, _, peak) = watched(None);
    let case = Case {
        heads: 12,
        kv_heads: 6,
        rows: 64,
        keys: 128,
        ..CASE
    };
    let mut calls = [1, 2, 3].map(|seed| Operands::new(&case, seed));
    let plan = engine.memory_plan();
    engine.attend(calls.each_mut().map(Operands::call)).unwrap();
    // Of a tile, which has the rows of two heads.
    let [scores, probabilities] = [4, 2].map(|bytes| bytes * 2 * 64 * 128);
    for (device, &bytes) in peak.bytes.lock().unwrap().iter().enumerate() {
        assert!(bytes > 2 * scores + probabilities, "{bytes}");
        assert!(bytes <= plan.device_at_most(device) - IDLE);
    }
}

#[test]
fn weights_load_unless_a_page_is_missing() {
    for format in Matmul::formats() {
        let (engine, model) = self::engine(None);
        let loaded = load(&engine, format).unwrap();
        let all: u64 = model.allocated_bytes().iter().sum();
        let weights = all - GUARD * DEVICES as u64;
        drop(loaded);
        let (engine, _) = self::engine(Some(weights));
        drop(load(&engine, format).unwrap());
        let (engine, _) = self::engine(Some(weights - 4096));
        let error = load(&engine, format).err().unwrap();
        assert!(matches!(error, Error::Device { .. }), "{error}");

        // The plan's limit is exact, too: with a byte less the weights do not fit.
        let mut plan = engine.memory_plan();
        add(&mut plan, &engine, format).unwrap();
        let within = |bytes| {
            let shares = MemoryShares::for_weights(bytes);
            MemoryPlan::new(DEVICES, shares, &options())
        };
        let mut small = within(GUARD);
        let before = small.clone();
        let refused = add(&mut small, &engine, format).unwrap_err();
        assert_eq!(small, before);
        let DoesNotFit::Memory { bytes, .. } = refused else {
            panic!("{refused}");
        };
        assert!(bytes >= plan.total());
        add(&mut within(bytes), &engine, format).unwrap();
        assert!(add(&mut within(bytes - 1), &engine, format).is_err());

        // On a board with this much memory matmuls run as well.
        let ram = (0..DEVICES).map(|device| plan.device_at_most(device)).sum();
        let (engine, _) = self::engine(Some(ram));
        load(&engine, format).unwrap().run(&engine).unwrap();
    }
}
