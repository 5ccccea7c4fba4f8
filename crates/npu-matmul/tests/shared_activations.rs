// SPDX-License-Identifier: MIT OR Apache-2.0
//! Activations that are quantised once for several weights.
#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests: a failed unwrap is a failed test"
)]

mod common;

use common::{engine, random_f16};
use npu_matmul::quantise::rotate::Rotation;
use npu_matmul::quantise::{Operands, Outliers, QuantiseOptions, Scheme};
use npu_matmul::{Engine, Error, Weights};

const M: usize = 40;
const K: usize = 192;

fn floats(seed: u64, len: usize) -> Vec<f32> {
    let halves = random_f16(seed, len);
    halves.into_iter().map(f32::from).collect()
}

fn load(engine: &Engine, n: usize, options: &QuantiseOptions) -> Weights {
    let b = floats(n as u64, n * K);
    engine.load_quantised(n, K, options, &b).unwrap()
}

/// Options that differ in what activations see of them.
fn kinds() -> Vec<QuantiseOptions> {
    let rotations = [None, Rotation::new(K, 1), Rotation::new(K, 2)];
    let schemes = [Scheme::PerChannel, Scheme::PerKGroup(64)];
    let mut all = Vec::new();
    for operands in Operands::ALL {
        for scheme in schemes {
            for rotation in &rotations {
                all.push(QuantiseOptions {
                    operands,
                    scheme,
                    rotation: rotation.clone(),
                    ..QuantiseOptions::default()
                });
            }
        }
    }
    all
}

#[test]
fn they_give_what_each_product_alone_gives() {
    let engine = engine();
    let a = floats(99, M * K);
    for options in kinds() {
        let weights: Vec<_> = [70, 33, 70]
            .map(|n| load(&engine, n, &options))
            .into_iter()
            .collect();
        let before = engine.counters();
        let alone: Vec<Vec<f32>> = weights
            .iter()
            .map(|weights| {
                let mut c = vec![f32::NAN; M * weights.n()];
                engine.multiply_quantised(weights, M, &a, &mut c).unwrap();
                c
            })
            .collect();
        let between = engine.counters();

        let activations = weights[0].quantise_activations(M, &a).unwrap();
        assert_eq!(activations.rows(), M);
        let mut together: Vec<Vec<f32>> = weights.iter().map(|w| vec![0.0; M * w.n()]).collect();
        let mut batch = engine.batch();
        for (weights, c) in weights.iter().zip(&mut together) {
            batch
                .multiply_activations(weights, &activations, c)
                .unwrap();
        }
        batch.run().unwrap();
        assert!(together == alone, "{options:?}");
        let after = engine.counters();
        assert!(after.submits - between.submits < between.submits - before.submits);

        let mut c = vec![0.0; M * 33];
        engine
            .multiply_activations(&weights[1], &activations, &mut c)
            .unwrap();
        assert!(c == alone[1]);
    }
}

#[test]
fn those_of_other_weights_are_refused() {
    let engine = engine();
    let a = floats(99, M * K);
    let all: Vec<_> = kinds().iter().map(|kind| load(&engine, 5, kind)).collect();
    let mut c = vec![0.0; M * 5];
    for (of, weights) in all.iter().enumerate() {
        let activations = weights.quantise_activations(M, &a).unwrap();
        for (with, weights) in all.iter().enumerate() {
            let result = engine.multiply_activations(weights, &activations, &mut c);
            match result {
                Ok(()) => assert_eq!(of, with),
                Err(Error::WrongActivations) => assert_ne!(of, with),
                Err(error) => panic!("{error:?}"),
            }
        }
    }
    // Schemes that activations do not see.
    let per_tensor = QuantiseOptions {
        scheme: Scheme::PerTensor,
        ..QuantiseOptions::default()
    };
    let activations = all[0].quantise_activations(M, &a).unwrap();
    let weights = load(&engine, 5, &per_tensor);
    engine
        .multiply_activations(&weights, &activations, &mut c)
        .unwrap();
    assert!(matches!(
        engine.multiply_activations(&weights, &activations, &mut c[1..]),
        Err(Error::OperandLength { operand: "C", .. })
    ));
    assert!(matches!(
        weights.quantise_activations(M, &a[1..]),
        Err(Error::OperandLength { operand: "A", .. })
    ));
    // Outlier columns belong to one product.
    let beside = QuantiseOptions {
        outliers: Outliers::Columns(vec![3]),
        ..QuantiseOptions::default()
    };
    let weights = load(&engine, 5, &beside);
    for result in [
        weights.quantise_activations(M, &a).map(|_| ()),
        engine.multiply_activations(&weights, &activations, &mut c),
    ] {
        assert!(matches!(result, Err(Error::WrongWeights { .. })));
    }
}
