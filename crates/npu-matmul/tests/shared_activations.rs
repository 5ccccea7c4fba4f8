// SPDX-License-Identifier: MIT OR Apache-2.0
//! Activations that are quantised once for several weights.
#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests: a failed unwrap is a failed test"
)]

mod common;
#[path = "common/slow.rs"]
mod slow;

use std::sync::Arc;

use common::{DEVICES, multiply, multiply_all, random_f16};
use npu_matmul::quantise::Quantisation;
use npu_matmul::{Engine, PackedWeights, Weights};
use npu_model::{Model, ModelOptions};
use rocket_uapi::DevicePool;
use slow::{Entry, Log};

const M: usize = 40;
const K: usize = 192;

fn floats(seed: u64, len: usize) -> Vec<f32> {
    let halves = random_f16(seed, len);
    halves.into_iter().map(f32::from).collect()
}

fn load(engine: &Engine, n: usize, to: Quantisation) -> PackedWeights {
    let b = floats(n as u64, n * K);
    engine.load(Weights::quantised(n, K, to, &b)).unwrap()
}

fn engine() -> (Engine, Arc<Log>) {
    let log = Arc::new(Log::default());
    let device = Model::new(ModelOptions::default()).open_device();
    let engine = Engine::open(DevicePool::open(&device, DEVICES).unwrap()).unwrap();
    (engine.observed_by(Arc::clone(&log) as _), log)
}

fn quantised(log: &Log) -> usize {
    let log = log.take();
    log.iter()
        .filter(|entry| **entry == Entry::Quantised)
        .count()
}

#[test]
fn they_give_what_each_matmul_alone_gives() {
    let (engine, log) = engine();
    let a = floats(99, M * K);
    for to in Quantisation::ALL {
        let weights = [70, 33, 70].map(|n| load(&engine, n, to));
        let before = engine.counters();
        let alone = weights.each_ref().map(|weights| {
            let mut c = vec![f32::NAN; M * weights.n()];
            multiply(&engine, weights, M, &a, &mut c).unwrap();
            c
        });
        let between = engine.counters();
        assert_eq!(quantised(&log), 3);
        let mut together = weights.each_ref().map(|w| vec![0.0; M * w.n()]);
        let matmuls = weights.iter().zip(&mut together);
        let matmuls = matmuls.map(|(weights, c)| (weights, M, (&a).into(), c.into()));
        multiply_all(&engine, matmuls.collect()).unwrap();
        assert!(together == alone, "{to:?}");
        assert_eq!(quantised(&log), 1);
        let after = engine.counters();
        assert!(after.submits - between.submits < between.submits - before.submits);
        assert_eq!(after.matmuls - between.matmuls, 3);
    }
}

/// Each kind of weights, and each matrix, has separate activations.
#[test]
fn those_of_other_weights_are_others() {
    let (engine, log) = engine();
    let (a, other) = (floats(99, M * K), floats(98, M * K));
    let weights: Vec<_> = (Quantisation::ALL.into_iter())
        .map(|kind| load(&engine, 5, kind))
        .collect();
    let alone = |weights: &PackedWeights, a: &Vec<f32>| {
        let mut c = vec![f32::NAN; M * 5];
        multiply(&engine, weights, M, a, &mut c).unwrap();
        c
    };
    let expected: Vec<_> = (weights.iter())
        .flat_map(|weights| [alone(weights, &a), alone(weights, &other)])
        .collect();
    log.take();
    let mut together = vec![vec![0.0; M * 5]; expected.len()];
    let operands = weights.iter().flat_map(|w| [(w, &a), (w, &other)]);
    let matmuls = operands.zip(&mut together);
    let matmuls = matmuls.map(|((weights, a), c)| (weights, M, a.into(), c.into()));
    multiply_all(&engine, matmuls.collect()).unwrap();
    assert!(together == expected);
    assert_eq!(quantised(&log), expected.len());
}
