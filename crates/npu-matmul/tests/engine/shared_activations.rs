// SPDX-License-Identifier: MIT OR Apache-2.0
//! Activations that are quantised once for several weights.

use std::sync::Arc;

use npu_matmul::quantise::Quantisation;
use npu_matmul::{Engine, PackedWeights, PlanOptions, Weights};

use crate::common::slow::{Entry, Log};
use crate::common::{DEVICES, counted, multiply, multiply_all, random_f16, strict_engine};

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
    let (engine, _) = strict_engine(PlanOptions::default(), DEVICES);
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
        let mut alone = weights.each_ref().map(|w| vec![f32::NAN; M * w.n()]);
        let one_by_one = counted(&engine, || {
            for (weights, c) in weights.iter().zip(&mut alone) {
                multiply(&engine, weights, M, &a, c).unwrap();
            }
        });
        assert_eq!(quantised(&log), 3);
        let mut together = weights.each_ref().map(|w| vec![0.0; M * w.n()]);
        let at_once = counted(&engine, || {
            let matmuls = weights.iter().zip(&mut together);
            let matmuls = matmuls.map(|(weights, c)| (weights, M, (&a).into(), c.into()));
            multiply_all(&engine, matmuls.collect()).unwrap();
        });
        assert!(together == alone, "{to:?}");
        assert_eq!(quantised(&log), 1);
        assert!(at_once.submits < one_by_one.submits);
        assert_eq!(at_once.matmuls, 3);
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
