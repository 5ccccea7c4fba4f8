// SPDX-License-Identifier: MIT OR Apache-2.0
//! Threads with a common engine or with separate ones, on one device.

use std::sync::{Arc, Barrier};
use std::thread;

use npu_matmul::{Engine, Error, PackedWeights, PlanOptions, Weights};
use rocket_uapi::DevicePool;

use crate::common::matmul::Matmul;
use crate::common::{DEVICES, Lint, Shape, engine, multiply, random_i8, strict_model};

const THREADS: u64 = 4;
const ROUNDS: u64 = 4;
const N: usize = 96;
const K: usize = 200;

fn engine_on(pool: DevicePool) -> Engine {
    let engine = Engine::with_options(pool, PlanOptions::default()).unwrap();
    engine.observed_by(Arc::new(Lint))
}

/// The rows of a thread.
const fn rows(thread: u64) -> usize {
    1 + 13 * thread as usize
}

/// Each thread makes an engine on a pool; all compute at once.
fn compute_at_once(pool: impl Fn() -> DevicePool + Sync) {
    let ready = Barrier::new(THREADS as usize);
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (pool, ready) = (&pool, &ready);
            scope.spawn(move || {
                let engine = engine_on(pool());
                ready.wait();
                let shape = Shape::new(rows(thread), N, K);
                let load = |format| Matmul::new(&engine, format, shape, 100 + thread).unwrap();
                let matmuls = Matmul::PLAIN.map(load);
                for round in 0..ROUNDS {
                    for matmul in &matmuls {
                        let other = matmul.with_rows(shape.m, 10 * thread + round);
                        other.check(&engine).unwrap();
                    }
                }
                let checked = matmuls.len() as u64 * ROUNDS;
                assert_eq!(engine.counters().calls, checked);
            });
        }
    });
}

#[test]
fn engines_with_files_of_their_own_share_a_device() {
    let model = strict_model();
    let device = model.open_device();
    compute_at_once(|| DevicePool::open(&device.reopen().unwrap(), DEVICES).unwrap());
    assert_eq!(model.events(), []);
}

#[test]
fn engines_share_files() {
    let model = strict_model();
    let pool = DevicePool::open(&model.open_device(), DEVICES).unwrap();
    compute_at_once(|| pool.clone());
    assert_eq!(model.events(), []);
}

#[test]
fn threads_share_an_engine_and_weights() {
    let engine = engine();
    let load = |format| Matmul::new(&engine, format, Shape::new(1, N, K), 7).unwrap();
    let loaded: Vec<_> = Matmul::formats().map(load).collect();
    // Each thread has other rows.
    let mut cases = [(); THREADS as usize].map(|()| Vec::new());
    for (thread, cases) in (0..).zip(&mut cases) {
        for matmul in &loaded {
            let matmul = matmul.with_rows(rows(thread), thread);
            let alone = matmul.run(&engine).unwrap();
            if Matmul::PLAIN.contains(&matmul.weights.format()) {
                matmul.compare(&alone);
            }
            cases.push((matmul, alone));
        }
    }
    thread::scope(|scope| {
        for cases in &cases {
            let engine = &engine;
            scope.spawn(move || {
                for (matmul, alone) in cases {
                    assert!(matmul.run(engine).unwrap() == *alone);
                }
            });
        }
    });
    let counters = engine.counters();
    let matmuls = 2 * loaded.len();
    let rows: usize = matmuls * (0..THREADS).map(rows).sum::<usize>();
    let weights: u64 = loaded
        .iter()
        .map(|matmul| matmul.weights.device_bytes())
        .sum();
    assert_eq!(counters.calls, THREADS * matmuls as u64);
    assert_eq!(counters.macs, (rows * N * K) as u64);
    assert!(counters.jobs >= counters.calls && counters.tasks >= counters.jobs);
    assert!(counters.bytes_from_device >= (2 * rows * N) as u64);
    assert!(counters.bytes_to_device > weights);
}

/// Even on the same files and with the same plan, another engine rejects them.
#[test]
fn weights_stay_with_their_engine() {
    let pool = DevicePool::open(&strict_model().open_device(), DEVICES).unwrap();
    let engines = [engine_on(pool.clone()), engine_on(pool)];
    let (m, a, b) = (3, random_i8(1, 3 * K), random_i8(2, N * K));
    let load = |engine: &Engine| engine.load(Weights::i8(N, K, &b)).unwrap();
    let weights = engines.each_ref().map(load);
    let matmul = |engine: &Engine, weights: &PackedWeights| {
        let mut c = vec![0; m * N];
        multiply(engine, weights, m, &a, &mut c)?;
        Ok::<_, Error>(c)
    };
    let refused = matmul(&engines[1], &weights[0]).unwrap_err();
    assert!(matches!(refused, Error::ForeignWeights), "{refused}");
    // An engine also rejects matmuls that another one has prepared.
    let gemm = engines[0].prepare(&weights[0], m).unwrap();
    let mut c = vec![0; m * N];
    let refused = engines[1].run([gemm.call(&a, &mut c)]).unwrap_err();
    assert_eq!(refused.call, 0);
    assert!(matches!(refused.source, Error::ForeignWeights), "{refused}");
    let [one, other] = [0, 1].map(|at| matmul(&engines[at], &weights[at]).unwrap());
    assert!(one == other);
}
