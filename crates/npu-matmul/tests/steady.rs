// SPDX-License-Identifier: MIT OR Apache-2.0
//! Steady state: repeated matmuls make no buffer object and start no thread. The file has one test,
//! since it checks all threads of the process.
#![allow(
    clippy::panic,
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
use common::matmul::Matmul;
use common::problem::attend;
use common::{DEVICES, Shape};
use npu_matmul::{Done, Engine, JobEvent, Observer, PlanOptions};
use npu_model::{Model, ModelOptions};

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
    fn submitting(&self, _: &JobEvent<'_>) {
        self.look();
    }

    fn done(&self, _: &Done) {
        self.look();
    }
}

/// A matmul of each format.
fn matmuls(engine: &Engine) -> Vec<Matmul> {
    let load = |format| Matmul::new(engine, format, Shape::new(70, 150, 256), 1).unwrap();
    Matmul::formats().map(load).collect()
}

/// Runs each once, then all at once; then attention, if its keys fit a job.
fn run(engine: &Engine, matmuls: &[Matmul], attends: bool) {
    for matmul in matmuls {
        matmul.run(engine).unwrap();
    }
    Matmul::run_all(engine, matmuls).unwrap();
    if attends {
        attend(engine).unwrap();
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
    for (options, attends) in [(PlanOptions::default(), true), (cut, true), (waves, false)] {
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
        let matmuls = matmuls(&engine);
        // First with new buffers, then with the kept ones, whose roles may differ.
        for _ in 0..2 {
            run(&engine, &matmuls, attends);
        }
        let (made, seen) = (faults.made.load(Ordering::Relaxed), threads.seen());
        for _ in 0..3 {
            run(&engine, &matmuls, attends);
        }
        assert_eq!(faults.made.load(Ordering::Relaxed), made);
        assert_eq!(threads.seen(), seen);
    }
}
