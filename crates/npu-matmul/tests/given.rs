// SPDX-License-Identifier: MIT OR Apache-2.0
//! Products of integers with the caller's scales.
#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests: a failed unwrap is a failed test"
)]

mod common;

use common::{Random, engine};
use npu_matmul::quantise::{Operands, QuantiseOptions, Scheme};
use npu_matmul::{Engine, Error, Weights};
use proptest::prelude::*;

/// Integers from the least to the largest that the operands may have.
fn integers(seed: u64, len: usize, min: i64, max: i64) -> Vec<i8> {
    let mut random = Random::new(seed);
    let range = (max - min + 1) as u64;
    (0..len)
        .map(|_| ((random.next() >> 20) % range) as i64 + min)
        .map(|x| i8::try_from(x).unwrap())
        .collect()
}

fn scales(seed: u64, len: usize) -> Vec<f32> {
    let mut random = Random::new(seed);
    (0..len)
        .map(|_| (random.next() >> 40) as f32 / (1 << 20) as f32 - 8.0)
        .collect()
}

/// What the definition gives, and how far off a sum of `tiles` floats may be.
fn expected(terms: &[f64], tiles: usize) -> (f64, f64) {
    let sum: f64 = terms.iter().sum();
    let magnitudes: f64 = terms.iter().map(|term| term.abs()).sum();
    let tiles = tiles as f64;
    let unit = f64::from(f32::EPSILON) / 2.0;
    (sum, tiles * unit * (1.0 + 4.0 * tiles * unit) * magnitudes)
}

proptest! {
    #![proptest_config(test_support::cases(24))]

    #[test]
    fn each_integer_stands_for_itself_times_its_scale(
        [m, n, k] in [1..20_usize, 1..70, 1..300],
        which in 0..3_usize,
        scheme in prop_oneof![
            Just(Scheme::PerTensor),
            Just(Scheme::PerChannel),
            (1..12_usize).prop_map(|groups| Scheme::PerKGroup(32 * groups)),
        ],
        seed in any::<u32>(),
    ) {
        let operands = Operands::ALL[which];
        let (weight, activation) = match operands {
            Operands::W8A8 => ((-128, 127), (-128, 127)),
            Operands::W4A8 => ((-8, 7), (-128, 119)),
            Operands::W4A4 => ((-8, 7), (-8, 7)),
        };
        let group = match scheme {
            Scheme::PerKGroup(group) => group.min(k),
            Scheme::PerTensor | Scheme::PerChannel => k,
        };
        let (groups, seed) = (k.div_ceil(group), u64::from(seed));
        let b = integers(seed, n * k, weight.0, weight.1);
        let of_b = scales(seed + 1, if scheme == Scheme::PerTensor { 1 } else { groups * n });
        let a = integers(seed + 2, m * k, activation.0, activation.1);
        let of_a = scales(seed + 3, m * groups);

        let engine = engine();
        let weights = engine.load_scaled(n, k, operands, scheme, &b, &of_b).unwrap();
        let activations = weights.scaled_activations(m, &a, &of_a).unwrap();
        let mut out = vec![f32::NAN; m * n];
        engine.multiply_activations(&weights, &activations, &mut out).unwrap();

        // Groups may be several tiles, and are summed as floats; without groups
        // integers are.
        let tiles = weights.plan().k_tile_count();
        for (i, j) in (0..m).flat_map(|i| (0..n).map(move |j| (i, j))) {
            let terms: Vec<f64> = (0..groups)
                .map(|g| {
                    let channels = g * group..((g + 1) * group).min(k);
                    let sum: i64 = channels
                        .map(|x| i64::from(a[i * k + x]) * i64::from(b[j * k + x]))
                        .sum();
                    let column = of_b[if of_b.len() == 1 { 0 } else { g * n + j }];
                    sum as f64 * f64::from(of_a[i * groups + g]) * f64::from(column)
                })
                .collect();
            let value = out[i * n + j];
            if groups == 1 {
                prop_assert_eq!(value, terms[0] as f32);
                continue;
            }
            // The terms of a group's tiles are at most as large together as their
            // integers are.
            let integers: Vec<f64> = (0..k)
                .map(|x| {
                    let g = x / group;
                    let column = of_b[if of_b.len() == 1 { 0 } else { g * n + j }];
                    f64::from(a[i * k + x]) * f64::from(b[j * k + x])
                        * f64::from(of_a[i * groups + g])
                        * f64::from(column)
                })
                .collect();
            let (sum, tolerance) = expected(&integers, tiles);
            let error = (f64::from(value) - sum).abs();
            prop_assert!(error <= tolerance, "({i}, {j}): {value} for {sum}, of {tolerance}");
        }
    }
}

fn load(engine: &Engine, operands: Operands, b: &[i8], scales: &[f32]) -> Result<Weights, Error> {
    engine.load_scaled(4, 64, operands, Scheme::PerKGroup(32), b, scales)
}

#[test]
fn what_does_not_fit_is_refused() {
    let engine = engine();
    let b = [7; 4 * 64];
    let weights = load(&engine, Operands::W4A8, &b, &[1.0; 8]).unwrap();
    let wrong_length = |error| matches!(error, Error::OperandLength { .. });
    assert!(load(&engine, Operands::W4A8, &b, &[1.0; 4]).is_err_and(wrong_length));
    assert!(load(&engine, Operands::W4A8, &b[1..], &[1.0; 8]).is_err_and(wrong_length));
    let wide = [8; 4 * 64];
    let range = |error| matches!(error, Error::Int4Range { value: 8, .. });
    assert!(load(&engine, Operands::W4A4, &wide, &[1.0; 8]).is_err_and(range));
    load(&engine, Operands::W8A8, &wide, &[1.0; 8]).unwrap();

    let a = |value| [value; 64];
    let activations = |value, scales: &[f32]| weights.scaled_activations(1, &a(value), scales);
    activations(119, &[1.0; 2]).unwrap();
    let split = |error| matches!(error, Error::SplitRange { value: 120, .. });
    assert!(activations(120, &[1.0; 2]).is_err_and(split));
    assert!(activations(1, &[1.0]).is_err_and(wrong_length));
    let plain = engine.load_i8(1, 64, &a(1)).unwrap();
    let unscaled = plain.scaled_activations(1, &a(1), &[1.0]);
    assert!(unscaled.is_err_and(|error| matches!(error, Error::WrongWeights { .. })));
    let nothing = engine.load_scaled(
        usize::MAX,
        0,
        Operands::W8A8,
        Scheme::PerTensor,
        &[],
        &[1.0],
    );
    assert!(nothing.is_err_and(|error| matches!(error, Error::Plan(_))));
    // -128 squared may add up to more than 32 bits a little earlier than what is
    // quantised here.
    let deep = 132_000;
    let column = vec![1; deep];
    let too_deep = engine.load_scaled(1, deep, Operands::W8A8, Scheme::PerChannel, &column, &[1.0]);
    assert!(too_deep.is_err_and(|error| matches!(error, Error::TooDeep { k: 132_000, .. })));
}

/// The same weights, by the floats that they came from and by what those became.
#[test]
fn what_was_quantised_can_be_given() {
    let engine = engine();
    let (m, n, k) = (5, 33, 200);
    let [a, b] = [scales(1, m * k), scales(2, n * k)];
    let options = QuantiseOptions::default();
    let quantised = engine.load_quantised(n, k, &options, &b).unwrap();
    let of_b = quantised.scales().unwrap();
    let integers: Vec<i8> = b
        .chunks(k)
        .zip(of_b)
        .flat_map(|(row, scale)| {
            row.iter()
                .map(|x| (x * scale.recip()).round_ties_even() as i8)
        })
        .collect();
    let given = engine
        .load_scaled(n, k, options.operands, options.scheme, &integers, of_b)
        .unwrap();
    // Activations serve both.
    let activations = quantised.quantise_activations(m, &a).unwrap();
    let [from_floats, from_integers] = [&quantised, &given].map(|weights| {
        let mut out = vec![f32::NAN; m * n];
        engine
            .multiply_activations(weights, &activations, &mut out)
            .unwrap();
        out
    });
    assert_eq!(from_floats, from_integers);
}
