// SPDX-License-Identifier: MIT OR Apache-2.0
//! Steady state: repeated matmuls make no buffer object and start no thread. The file has one test,
//! since it checks all threads of the process.
#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests: a failed unwrap is a failed test"
)]

#[allow(dead_code, reason = "this binary uses a part")]
#[path = "engine/common/mod.rs"]
mod common;

use std::collections::BTreeSet;
use std::fs;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use common::faults::{faulty_pool_on, small_jobs};
use common::{DEVICES, multiply, multiply_all, random_f16, random_i4, random_i8};
use half::f16;
use npu_matmul::quantise::Quantisation;
use npu_matmul::{Done, Engine, Observer, PackedWeights, PlanOptions, SubmittedJob, Weights};
use npu_model::{Model, ModelOptions};

const M: usize = 70;
const N: usize = 150;
const K: usize = 256;

/// The threads of this process after each activity.
#[derive(Debug, Default)]
struct Threads(Mutex<BTreeSet<String>>);

impl Threads {
    fn look(&self) {
        let tasks = fs::read_dir("/proc/self/task").unwrap();
        let names = tasks.map(|task| task.unwrap().file_name().into_string().unwrap());
        self.0.lock().unwrap().extend(names);
    }

    fn seen(&self) -> BTreeSet<String> {
        self.look();
        self.0.lock().unwrap().clone()
    }
}

impl Observer for Threads {
    fn submitting(&self, _: &SubmittedJob<'_>) {
        self.look();
    }

    fn done(&self, _: &Done) {
        self.look();
    }
}

/// Weights of all kinds, and activations for them.
struct Matmuls {
    int8: PackedWeights,
    int4: PackedWeights,
    fp16: PackedWeights,
    quantised: [PackedWeights; 3],
    bytes: Vec<i8>,
    nibbles: Vec<i8>,
    halves: Vec<f16>,
    floats: Vec<f32>,
}

impl Matmuls {
    fn load(engine: &Engine) -> Self {
        let floats = |seed, len| -> Vec<f32> {
            let integers = random_i8(seed, len).into_iter();
            integers.map(f32::from).collect()
        };
        let quantised = Quantisation::ALL.map(|to| {
            let weights = engine.load(Weights::quantised(N, K, to, &floats(1, N * K)));
            weights.unwrap()
        });
        Self {
            int8: engine
                .load(Weights::i8(N, K, &random_i8(2, N * K)))
                .unwrap(),
            int4: engine
                .load(Weights::i4(N, K, &random_i4(3, N * K)))
                .unwrap(),
            fp16: engine
                .load(Weights::f16(N, K, &random_f16(4, N * K)))
                .unwrap(),
            quantised,
            bytes: random_i8(5, M * K),
            nibbles: random_i4(6, M * K),
            halves: random_f16(7, M * K),
            floats: floats(8, M * K),
        }
    }

    /// Runs each once, then several at once.
    fn run(&self, engine: &Engine) {
        let (mut c, mut c32, mut c16) = (vec![0; M * N], vec![0.0; M * N], vec![f16::ZERO; M * N]);
        multiply(engine, &self.int8, M, &self.bytes, &mut c).unwrap();
        multiply(engine, &self.int4, M, &self.nibbles, &mut c).unwrap();
        multiply(engine, &self.fp16, M, &self.halves, &mut c32).unwrap();
        multiply(engine, &self.fp16, M, &self.halves, &mut c16).unwrap();
        for weights in &self.quantised {
            multiply(engine, weights, M, &self.floats, &mut c32).unwrap();
        }
        let mut others = vec![0; M * N];
        let matmuls = vec![
            (&self.int8, M, (&self.bytes).into(), (&mut c).into()),
            (&self.int4, M, (&self.nibbles).into(), (&mut others).into()),
            (&self.fp16, M, (&self.halves).into(), (&mut c16).into()),
        ];
        multiply_all(engine, matmuls).unwrap();
    }
}

#[test]
fn nothing_is_made_in_steady_state() {
    // K in one tile; K divided; many jobs and several waves.
    let cut = PlanOptions {
        k_tile: Some(128),
        ..PlanOptions::default()
    };
    let mut waves = small_jobs();
    waves.limits.buffer_bytes = 8 << 10;
    for options in [PlanOptions::default(), cut, waves] {
        let threads = Arc::new(Threads::default());
        // The model starts a thread for each core with its first job; with several cores the time
        // of this depends on the load.
        let one_core = ModelOptions {
            cores: 1,
            ..ModelOptions::default()
        };
        let (pool, faults) = faulty_pool_on(&Model::new(one_core), DEVICES);
        let engine = Engine::with_options(pool, options).unwrap();
        let engine = engine.observed_by(Arc::clone(&threads) as _);
        let matmuls = Matmuls::load(&engine);
        // First with new buffers, then with the kept ones, whose roles may differ.
        for _ in 0..2 {
            matmuls.run(&engine);
        }
        let (made, seen) = (faults.made.load(Ordering::Relaxed), threads.seen());
        for _ in 0..3 {
            matmuls.run(&engine);
        }
        assert_eq!(faults.made.load(Ordering::Relaxed), made);
        assert_eq!(threads.seen(), seen);
    }
}
