// SPDX-License-Identifier: MIT OR Apache-2.0
//! Engines with a board's profile: what they use of it, and that results are the
//! same.
#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests: a failed unwrap is a failed test"
)]

mod common;

use std::sync::Arc;

use common::{DEVICES, engine_with, random_i4, random_i8, strict_engine};
use npu_matmul::plan::{Alternative, PlanSizes, alternatives, int4_depth};
use npu_matmul::profile::FastestPlan;
use npu_matmul::{Dtype, Engine, PlanOptions, Profile, Results, reference};

const M: usize = 40;
const K: usize = 2048;
const N: usize = 160;

fn options() -> PlanOptions {
    let mut options = PlanOptions::default();
    options.conditions.rows = M;
    options
}

/// Every choice that is not the one of least modelled time.
fn others(dtype: Dtype, options: &PlanOptions) -> Vec<Alternative> {
    let mut all = alternatives(dtype, N, K, DEVICES, options, usize::MAX).unwrap();
    all.remove(0);
    assert!(!all.is_empty());
    all
}

/// The options with a profile that has this plan.
fn with(of: &Alternative) -> PlanOptions {
    let mut profile = Profile::clone(&Profile::built_in());
    let weights = &of.candidate.weights;
    let plan = FastestPlan::of(weights, M, Results::Sums, of.choice, 1);
    profile.insert(plan).unwrap();
    PlanOptions {
        profile: Arc::new(profile),
        ..options()
    }
}

fn chosen(engine: &Engine, weights: &npu_matmul::Weights, m: usize) -> PlanSizes {
    PlanSizes::of(&engine.plan(weights, m).unwrap())
}

#[test]
fn any_measured_plan_is_used_and_gives_the_same_integers() {
    let (a, b) = (random_i8(1, M * K), random_i8(2, N * K));
    let want = reference::multiply_i32(M, N, K, &a, &b);
    for other in others(Dtype::Int8, &options()) {
        let (engine, model) = strict_engine(with(&other), DEVICES);
        let measured = other.choice;
        let weights = engine.load_i8(N, K, &b).unwrap();
        assert_eq!(chosen(&engine, &weights, M), measured);
        let mut c = vec![0x5a5a_5a5a; M * N];
        engine.multiply_i32(&weights, M, &a, &mut c).unwrap();
        assert!(c == want, "{measured:?}");
        // Other rows with the same weights.
        let mut c = vec![0x5a5a_5a5a; (M - 3) * N];
        let rows = &a[..(M - 3) * K];
        engine.multiply_i32(&weights, M - 3, rows, &mut c).unwrap();
        assert!(c == want[..(M - 3) * N], "{measured:?}");
        assert!(model.events().is_empty(), "{:?}", model.events());
    }
}

/// INT4 weights are cut in as many copies as memory was planned for, before
/// their values are known.
#[test]
fn measured_int4_plans_are_used_where_memory_was_planned_so() {
    let (a, b) = (random_i4(1, M * K), random_i4(2, N * K));
    let want = reference::multiply_i32(M, N, K, &a, &b);
    let engine = engine_with(options(), DEVICES);
    let copies = engine.weight_plan(Dtype::Int4, N, K).unwrap().replicas;
    let options = PlanOptions {
        int4_depth: Some(int4_depth(K, &b)),
        replicate: Some(copies > 1),
        ..options()
    };
    for other in others(Dtype::Int4, &options) {
        let engine = engine_with(with(&other), DEVICES);
        let measured = other.choice;
        let weights = engine.load_i4(N, K, &b).unwrap();
        assert_eq!(chosen(&engine, &weights, M), measured);
        let mut c = vec![0x5a5a_5a5a; M * N];
        engine.multiply_i32(&weights, M, &a, &mut c).unwrap();
        assert!(c == want, "{measured:?}");
    }
}

/// Products of tiles that have all run on silicon are exact, too.
#[test]
fn tiles_within_the_envelope_give_the_same_integers() {
    let within = PlanOptions {
        unmeasured_tiles: Some(false),
        ..options()
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
                Dtype::Int4 => engine.load_i4(n, k, &b).unwrap(),
                _ => engine.load_i8(n, k, &b).unwrap(),
            };
            let mut c = vec![0x5a5a_5a5a; m * n];
            engine.multiply_i32(&weights, m, &a, &mut c).unwrap();
            assert!(c == want, "{dtype} {m} {k} {n}");
        }
        assert!(model.events().is_empty(), "{:?}", model.events());
    }
}
