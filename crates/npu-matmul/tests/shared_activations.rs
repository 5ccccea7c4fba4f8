// SPDX-License-Identifier: MIT OR Apache-2.0
//! Activations that are quantised once for several weights.
#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests: a failed unwrap is a failed test"
)]

mod common;

use common::{engine, random_f16};
use npu_matmul::quantise::rotate::Rotation;
use npu_matmul::quantise::{Operands, Outliers, QuantiseOptions, Scheme, outlier_columns};
use npu_matmul::{Engine, Error, Weights};

const M: usize = 40;
const K: usize = 192;
const LARGE: [usize; 2] = [3, 77];

fn floats(seed: u64, len: usize) -> Vec<f32> {
    let halves = random_f16(seed, len);
    halves.into_iter().map(f32::from).collect()
}

/// Rows with two columns far above the others.
fn activations(seed: u64) -> Vec<f32> {
    let mut a = floats(seed, M * K);
    for row in a.chunks_mut(K) {
        row[LARGE[0]] *= 60.0;
        row[LARGE[1]] *= 90.0;
    }
    a
}

fn load(engine: &Engine, n: usize, options: &QuantiseOptions) -> Weights {
    let b = floats(n as u64, n * K);
    engine.load_quantised(n, K, options, &b).unwrap()
}

/// Options that differ in what activations see of them.
fn kinds() -> Vec<QuantiseOptions> {
    let rotations = [None, Rotation::new(K, 1), Rotation::new(K, 2)];
    let schemes = [Scheme::PerChannel, Scheme::PerKGroup(64)];
    let outliers = [
        Outliers::Quantised,
        Outliers::Columns(vec![]),
        Outliers::Columns(vec![LARGE[1], 9, LARGE[0], 9]),
        Outliers::Columns(vec![190]),
        Outliers::Above(12.0),
        // What no activations have.
        Outliers::Above(1e9),
    ];
    let mut all = Vec::new();
    for operands in Operands::ALL {
        for scheme in schemes {
            for rotation in &rotations {
                for outliers in &outliers {
                    all.push(QuantiseOptions {
                        operands,
                        scheme,
                        rotation: rotation.clone(),
                        outliers: outliers.clone(),
                        ..QuantiseOptions::default()
                    });
                }
            }
        }
    }
    all
}

#[test]
fn they_give_what_each_product_alone_gives() {
    let engine = engine();
    let a = activations(99);
    assert_eq!(outlier_columns(&a, K, 12.0), LARGE);
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
        // Those of outliers are part of them.
        assert_eq!(after.products - between.products, 3);

        let mut c = vec![0.0; M * 33];
        engine
            .multiply_activations(&weights[1], &activations, &mut c)
            .unwrap();
        assert!(c == alone[1]);
    }
}

#[test]
fn outliers_share_submits_and_what_waits_may_be_lost() {
    let engine = engine();
    let a = activations(99);
    let options = QuantiseOptions {
        outliers: Outliers::Columns(LARGE.to_vec()),
        ..QuantiseOptions::default()
    };
    let weights = [load(&engine, 70, &options), load(&engine, 33, &options)];
    let activations = weights[0].quantise_activations(M, &a).unwrap();
    let submits = |products: &[&Weights]| {
        let before = engine.counters().submits;
        let mut out: Vec<Vec<f32>> = products.iter().map(|w| vec![0.0; M * w.n()]).collect();
        let mut batch = engine.batch();
        for (weights, out) in products.iter().zip(&mut out) {
            batch
                .multiply_activations(weights, &activations, out)
                .unwrap();
        }
        batch.submit().unwrap().wait().unwrap();
        engine.counters().submits - before
    };
    assert_eq!(
        submits(&[&weights[0]]),
        submits(&[&weights[0], &weights[0]])
    );
    assert_eq!(
        submits(&[&weights[1]]),
        submits(&[&weights[1], &weights[1]])
    );

    // Who loses interest before the outliers' turn loses nothing else.
    let mut lost = vec![0.0; M * 70];
    let mut batch = engine.batch();
    batch
        .multiply_activations(&weights[0], &activations, &mut lost)
        .unwrap();
    drop(batch.submit().unwrap());
    submits(&[&weights[0], &weights[1]]);
}

#[test]
fn those_of_other_weights_are_refused() {
    let engine = engine();
    let a = activations(99);
    // Without outliers is without outliers, however it was said.
    let said = |kind: &QuantiseOptions| match &kind.outliers {
        Outliers::Columns(columns) if columns.is_empty() => Outliers::Quantised,
        other => other.clone(),
    };
    let kinds = kinds();
    let all: Vec<_> = kinds.iter().map(|kind| load(&engine, 5, kind)).collect();
    let mut c = vec![0.0; M * 5];
    for (of, weights) in all.iter().enumerate() {
        let activations = weights.quantise_activations(M, &a).unwrap();
        for (with, weights) in all.iter().enumerate() {
            let (one, other) = (&kinds[of], &kinds[with]);
            let alike = one.operands == other.operands
                && one.scheme == other.scheme
                && one.rotation == other.rotation
                && said(one) == said(other);
            let result = engine
                .batch()
                .multiply_activations(weights, &activations, &mut c);
            match result {
                Ok(()) => assert!(alike, "{one:?}, {other:?}"),
                Err(Error::WrongActivations) => assert!(!alike, "{one:?}, {other:?}"),
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
    // Weights of integers take none.
    let weights = engine.load_i8(5, K, &[1; 5 * K]).unwrap();
    for result in [
        weights.quantise_activations(M, &a).map(|_| ()),
        engine.multiply_activations(&weights, &activations, &mut c),
    ] {
        assert!(matches!(result, Err(Error::WrongWeights { .. })));
    }
}
