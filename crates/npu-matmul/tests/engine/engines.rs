// SPDX-License-Identifier: MIT OR Apache-2.0
//! Threads with separate engines and separate weights, on one device.

use std::sync::{Arc, Barrier};
use std::thread;

use npu_matmul::{Engine, Error, Output, PackedWeights, PlanOptions, Weights};
use npu_model::{Level, Model, ModelOptions};
use rocket_uapi::DevicePool;

use crate::common::{
    DEVICES, Lint, check_halves, check_integers, multiply, random_f16, random_i4, random_i8,
};

const ENGINES: u64 = 4;
const ROUNDS: u64 = 4;
const N: usize = 96;
const K: usize = 200;

fn strict_model() -> Arc<Model> {
    Model::new(ModelOptions {
        level: Level::Strict,
        ..ModelOptions::default()
    })
}

fn engine_on(pool: DevicePool) -> Engine {
    let engine = Engine::with_options(pool, PlanOptions::default()).unwrap();
    engine.observed_by(Arc::new(Lint))
}

/// Computes and checks matmuls of several precisions.
fn compute(engine: &Engine, seed: u64) {
    let m = 1 + 13 * seed as usize;
    let b = random_i8(seed, N * K);
    let weights = engine.load(Weights::i8(N, K, &b)).unwrap();
    let nibbles = random_i4(seed + 100, N * K);
    let nibble_weights = engine.load(Weights::i4(N, K, &nibbles)).unwrap();
    let halves = random_f16(seed + 200, N * K);
    let half_weights = engine.load(Weights::f16(N, K, &halves)).unwrap();
    for round in 0..ROUNDS {
        let a = random_i8(seed + 300 + round, m * K);
        check_integers(engine, &weights, &a, &b);
        let a: Vec<i8> = a.into_iter().map(|x| x >> 4).collect();
        check_integers(engine, &nibble_weights, &a, &nibbles);
        let a = random_f16(seed + 400 + round, m * K);
        check_halves(engine, &half_weights, &a, &halves);
    }
    assert_eq!(engine.counters().matmuls, 4 * ROUNDS);
}

/// Each thread makes an engine on a pool; all compute at once.
fn compute_at_once(pool: impl Fn() -> DevicePool + Sync) {
    let ready = Barrier::new(ENGINES as usize);
    thread::scope(|scope| {
        for seed in 0..ENGINES {
            let (pool, ready) = (&pool, &ready);
            scope.spawn(move || {
                let engine = engine_on(pool());
                ready.wait();
                compute(&engine, seed);
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
    let gemm = engines[0].prepare(&weights[0], m, Output::I32).unwrap();
    let mut c = vec![0; m * N];
    let refused = engines[1].run([gemm.call(&a, &mut c)]).unwrap_err();
    assert_eq!(refused.call, 0);
    assert!(matches!(refused.source, Error::ForeignWeights), "{refused}");
    let [one, other] = [0, 1].map(|at| matmul(&engines[at], &weights[at]).unwrap());
    assert!(one == other);
}
