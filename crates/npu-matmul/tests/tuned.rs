// SPDX-License-Identifier: MIT OR Apache-2.0
//! Engines with measured plans: what they use of them, and that results are the
//! same.
#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests: a failed unwrap is a failed test"
)]

mod common;

use std::sync::Arc;

use common::{DEVICES, engine_with, multiply, random_i4, random_i8, strict_engine};
use npu_matmul::plan::{
    Alternative, PlanSizes, TunedFor, TunedKey, TunedPlan, TunedPlans, alternatives, int4_depth,
};
use npu_matmul::{Dtype, Engine, PlanOptions, Results, WeightFormat, Weights, reference};

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

fn table(conditions: TunedFor, of: &Alternative) -> Arc<TunedPlans> {
    let mut table = TunedPlans::new(conditions);
    table
        .insert(TunedPlan {
            key: TunedKey::of(&of.candidate.weights, M, Results::Sums),
            choice: of.choice,
            predicted_ns: 2,
            measured_ns: 1,
        })
        .unwrap();
    Arc::new(table)
}

fn chosen(engine: &Engine, weights: &npu_matmul::PackedWeights, m: usize) -> PlanSizes {
    PlanSizes::of(&common::plan(engine, weights, m))
}

#[test]
fn any_measured_plan_is_used_and_gives_the_same_integers() {
    let (a, b) = (random_i8(1, M * K), random_i8(2, N * K));
    let want = reference::multiply_i32(M, N, K, &a, &b);
    for other in others(Dtype::Int8, &options()) {
        let (engine, model) = strict_engine(options(), DEVICES);
        let table = table(engine.tuned_for(), &other);
        let measured = other.choice;
        let engine = engine.with_plans(table);
        let weights = engine.load(Weights::i8(N, K, &b)).unwrap();
        assert_eq!(chosen(&engine, &weights, M), measured);
        let mut c = vec![0x5a5a_5a5a; M * N];
        multiply(&engine, &weights, M, &a, &mut c).unwrap();
        assert!(c == want, "{measured:?}");
        // Other rows with the same weights.
        let mut c = vec![0x5a5a_5a5a; (M - 3) * N];
        let rows = &a[..(M - 3) * K];
        multiply(&engine, &weights, M - 3, rows, &mut c).unwrap();
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
    let copies = engine
        .weight_plan(WeightFormat::Int4, N, K)
        .unwrap()
        .replicas;
    let options = PlanOptions {
        int4_depth: Some(int4_depth(K, &b)),
        replicate: Some(copies > 1),
        ..options()
    };
    for other in others(Dtype::Int4, &options) {
        let engine = engine_with(self::options(), DEVICES);
        let table = table(engine.tuned_for(), &other);
        let measured = other.choice;
        let engine = engine.with_plans(table);
        let weights = engine.load(Weights::i4(N, K, &b)).unwrap();
        assert_eq!(chosen(&engine, &weights, M), measured);
        let mut c = vec![0x5a5a_5a5a; M * N];
        multiply(&engine, &weights, M, &a, &mut c).unwrap();
        assert!(c == want, "{measured:?}");
    }
}

#[test]
fn plans_of_other_conditions_are_not_used() {
    let b = random_i8(2, N * K);
    let predicted = {
        let engine = engine_with(options(), DEVICES);
        let weights = engine.load(Weights::i8(N, K, &b)).unwrap();
        chosen(&engine, &weights, M)
    };
    let other = &others(Dtype::Int8, &options())[0];
    let engine = engine_with(options(), DEVICES);
    let elsewhere = TunedFor {
        clock_hz: engine.tuned_for().clock_hz / 3,
        ..engine.tuned_for()
    };
    let table = table(elsewhere, other);
    let engine = engine.with_plans(table);
    let weights = engine.load(Weights::i8(N, K, &b)).unwrap();
    assert_eq!(chosen(&engine, &weights, M), predicted);
}
