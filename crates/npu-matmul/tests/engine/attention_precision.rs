// SPDX-License-Identifier: MIT OR Apache-2.0
//! Attention whose scores have a large part in common, as in models with biases of queries and keys.

use std::ops::Range;

use half::f16;
use npu_matmul::PlanOptions;
use npu_model::Model;

use crate::common::attention::{CASE, Case, Mask, Operands};
use crate::common::{DEVICES, engine_on, strict_engine};

/// 8 heads of 128 elements, 256 keys.
const BIASED: Case = Case {
    heads: 8,
    kv_heads: 2,
    rows: 24,
    keys: 256,
    head_dim: 128,
    value_dim: 128,
    ..CASE
};

fn options() -> PlanOptions {
    PlanOptions::uncalibrated(600_000_000)
}

/// Computes attention of changed operands; asserts that the squared error is at most `bar`, and each
/// element within the bound of docs/attention.md. Returns the squared error.
fn check(name: &str, case: &Case, bar: f64, change: impl FnOnce(&mut Operands)) -> f64 {
    let (engine, model) = strict_engine(options(), DEVICES);
    let mut operands = Operands::new(case, 11);
    change(&mut operands);
    engine.attend([operands.call()]).unwrap();
    let nmse = operands.nmse();
    println!("NMSE {nmse:.1e}, at most {bar:.0e}: {name}");
    assert!(nmse <= bar, "NMSE {nmse:e}: {name}");
    operands.check_bound();
    assert_eq!(model.events(), []);
    nmse
}

/// Sets two elements of all queries and keys to a constant, which adds this to all scores.
fn add_offset(operands: &mut Operands, head_dim: usize, offset: f32) {
    let constant = (offset * (head_dim as f32).sqrt() / 2.0).sqrt();
    for q in operands.q.chunks_mut(head_dim) {
        q[..2].fill(constant);
    }
    for k in operands.k.chunks_mut(head_dim) {
        k[..2].fill(f16::from_f32(constant));
    }
}

#[test]
fn offsets_of_all_scores() {
    let dim = BIASED.head_dim;
    for (offset, bar) in [
        (0.0, 2e-6),
        (44.0, 2e-6),
        (177.0, 2e-6),
        (707.0, 2e-6),
        (1414.0, 2e-6),
        (3536.0, 2e-6),
        (7071.0, 1e-5),
    ] {
        check(&format!("offset {offset}"), &BIASED, bar, |operands| {
            add_offset(operands, dim, offset);
        });
    }
    for head_dim in [64, 256] {
        let case = Case {
            head_dim,
            value_dim: head_dim,
            ..BIASED
        };
        check(&format!("head size {head_dim}"), &case, 2e-6, |operands| {
            add_offset(operands, head_dim, 1414.0);
        });
    }
}

/// Adds a bias of this norm to vectors of Q or K, in these pairs, rotated by the position of each
/// vector (RoPE with base 10,000). `position` is that of a vector's index.
fn add_rotated<T: Copy>(
    vectors: &mut [T],
    (head_dim, pairs, norm): (usize, Range<usize>, f32),
    position: impl Fn(usize) -> usize,
    add: impl Fn(T, f64) -> T,
) {
    let each = f64::from(norm) / (pairs.len() as f64).sqrt();
    for (at, vector) in vectors.chunks_mut(head_dim).enumerate() {
        for pair in pairs.clone() {
            let frequency = 1e4_f64.powf(-2.0 * pair as f64 / head_dim as f64);
            // Each pair's bias has a different direction.
            let angle = position(at) as f64 * frequency + pair as f64;
            let halves = [pair, pair + head_dim / 2];
            for (half, part) in halves.into_iter().zip([angle.cos(), angle.sin()]) {
                vector[half] = add(vector[half], each * part);
            }
        }
    }
}

#[test]
fn biases_that_turn_with_the_position() {
    let dim = BIASED.head_dim;
    for norm in [605.0, 921.0] {
        // The fastest pair turns by nearly whole turns in 44 positions: keys at such distances share
        // the weight of a row. With several fast pairs one key would have all of it, and no error.
        for (name, pairs, bar) in [
            ("slow pairs", 56..64, 1e-5),
            ("middle pairs", 28..36, 1e-5),
            ("the fastest pair", 0..1, 1e-4),
        ] {
            let name = format!("biases of {norm} and 60 in {name}");
            let nmse = check(&name, &BIASED, bar, |operands| {
                let key = |at| at / BIASED.kv_heads;
                add_rotated(
                    &mut operands.k,
                    (dim, pairs.clone(), norm),
                    key,
                    |k, bias| f16::from_f64(k.to_f64() + bias),
                );
                let row = |at| BIASED.keys - BIASED.rows + at / BIASED.heads;
                add_rotated(&mut operands.q, (dim, pairs, 60.0), row, |q, bias| {
                    (f64::from(q) + bias) as f32
                });
            });
            assert!(nmse > 1e-9, "one key has all the weight: {name}");
        }
    }
}

#[test]
fn offsets_with_caps_sinks_and_slopes() {
    let dim = BIASED.head_dim;
    let capped = Case {
        softcap: 500.0,
        ..BIASED
    };
    check("softcap 500", &capped, 2e-6, |operands| {
        add_offset(operands, dim, 400.0);
    });
    let with_sinks = Case {
        sinks: true,
        ..BIASED
    };
    check("sinks near 1144", &with_sinks, 1e-5, |operands| {
        add_offset(operands, dim, 1144.0);
        operands.sinks.iter_mut().for_each(|sink| *sink += 1144.0);
    });
    let with_slopes = Case {
        alibi: true,
        mask: Mask::AnyOfHeads,
        ..BIASED
    };
    check("ALiBi", &with_slopes, 2e-6, |operands| {
        add_offset(operands, dim, 1414.0);
    });
}

#[test]
fn many_keys() {
    let case = Case {
        heads: 2,
        kv_heads: 1,
        rows: 4,
        keys: 32_768,
        head_dim: 64,
        value_dim: 64,
        ..CASE
    };
    check("32,768 keys", &case, 2e-6, |operands| {
        add_offset(operands, 64, 1414.0);
    });
}

/// Queries of any magnitude are scaled to binary16's range and back.
#[test]
fn queries_of_any_magnitude() {
    for power in [-100, -30, -10, 10, 30, 60] {
        let factor = 2_f32.powi(power);
        let case = Case {
            logits: CASE.logits / factor,
            ..CASE
        };
        check(
            &format!("queries times {factor:e}"),
            &case,
            1e-6,
            |operands| {
                operands.q.iter_mut().for_each(|q| *q *= factor);
            },
        );
    }
}

/// A chip that takes fp16 operands below 2^-14 for 0 computes attention as exactly: no query and no
/// probability is that small.
#[test]
fn a_chip_that_flushes_subnormals() {
    let facts = "fp16-subnormals=flushed".parse().unwrap();
    let device = Model::new(facts).open_device();
    let engine = engine_on(&device, DEVICES, options());
    for (keys, offset) in [(256, 0.0), (256, 707.0), (2048, 0.0)] {
        let mut operands = Operands::new(&Case { keys, ..BIASED }, 11);
        add_offset(&mut operands, BIASED.head_dim, offset);
        engine.attend([operands.call()]).unwrap();
        let nmse = operands.nmse();
        println!("NMSE {nmse:.1e}: {keys} keys, offset {offset}");
        assert!(nmse <= 1e-6, "NMSE {nmse:e}: {keys} keys, offset {offset}");
    }
}
