// SPDX-License-Identifier: MIT OR Apache-2.0
//! Engines that use only tiles of a board's profile.
#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests: a failed unwrap is a failed test"
)]

mod common;

use common::{DEVICES, multiply, random_i4, strict_engine};
use npu_matmul::{Dtype, PlanOptions, Weights, reference};

/// Matmuls of tiles that have run on silicon are exact, too.
#[test]
fn tiles_within_the_envelope_give_the_same_integers() {
    let within = PlanOptions {
        unmeasured_tiles: Some(false),
        ..PlanOptions::default()
    };
    for (m, k, n) in [
        (300, 800, 300),
        (20, 5000, 100),
        (130, 1100, 2100),
        (3, 9000, 33),
    ] {
        let (a, b) = (random_i4(1, m * k), random_i4(2, n * k));
        let want = reference::multiply_i32(m, n, k, &a, &b);
        let (engine, model) = strict_engine(within.clone(), DEVICES);
        for dtype in [Dtype::Int8, Dtype::Int4] {
            let weights = match dtype {
                Dtype::Int4 => engine.load(Weights::i4(n, k, &b)).unwrap(),
                _ => engine.load(Weights::i8(n, k, &b)).unwrap(),
            };
            let mut c = vec![0x5a5a_5a5a; m * n];
            multiply(&engine, &weights, m, &a, &mut c).unwrap();
            assert!(c == want, "{dtype} {m} {k} {n}");
        }
        assert!(model.events().is_empty(), "{:?}", model.events());
    }
}
