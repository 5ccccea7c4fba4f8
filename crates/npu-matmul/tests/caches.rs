// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cache maintenance of matmuls: it processes the planned bytes, little more than the needed ones.
//! Results are right on a device whose caches need it.
#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests: a failed unwrap is a failed test"
)]

mod common;
#[path = "common/slow.rs"]
mod slow;

use std::sync::Arc;

use common::{DEVICES, Shape, multiply, random_i8};
use npu_matmul::{Counters, Engine, PlanOptions, Profile, Weights, reference};
use npu_model::driver::Caches;
use npu_model::event::Event;
use npu_model::{Model, ModelOptions};
use rocket_uapi::DevicePool;
use slow::slow;

/// An engine on a device whose caches are not coherent. Each job is seen running, however late this
/// process checks.
fn slow_engine(options: PlanOptions) -> (Engine, Arc<Model>) {
    let model = Model::new(ModelOptions {
        caches: Caches::Manual,
        ..ModelOptions::default()
    });
    let device = slow(model.open(), &Arc::default());
    let pool = DevicePool::open(&device, DEVICES).unwrap();
    (Engine::with_options(pool, options).unwrap(), model)
}

/// Counters of one matmul, once the engine has its buffers and programs; its planned bytes, needed
/// and processed; and its number of steps.
fn counted(engine: &Engine, Shape { m, n, k }: Shape) -> (Counters, [u64; 2], usize) {
    let (a, b) = (random_i8(1, m * k), random_i8(2, n * k));
    let expected = reference::multiply_i32(m, n, k, &a, &b);
    let weights = engine.load(Weights::i8(n, k, &b)).unwrap();
    let plan = common::plan(engine, &weights, m);
    let multiply = || {
        let mut c = vec![0; m * n];
        multiply(engine, &weights, m, &a, &mut c).unwrap();
        assert!(c == expected, "{m} x {k} x {n}");
    };
    multiply();
    let before = engine.counters();
    multiply();
    let after = engine.counters();
    let counters = Counters {
        submits: after.submits - before.submits,
        prep_bytes: after.prep_bytes - before.prep_bytes,
        fini_bytes: after.fini_bytes - before.fini_bytes,
        ..Counters::default()
    };
    (
        counters,
        plan.cache_bytes(&Profile::built_in().choices),
        plan.steps().len(),
    )
}

const SHAPES: [Shape; 4] = [
    Shape {
        m: 1,
        n: 1024,
        k: 512,
    },
    Shape {
        m: 200,
        n: 1200,
        k: 256,
    },
    // Several K tiles.
    Shape {
        m: 256,
        n: 384,
        k: 1500,
    },
    // Two devices use the same rows.
    Shape {
        m: 600,
        n: 64,
        k: 576,
    },
];

#[test]
fn matmuls_pass_what_their_plan_says() {
    let (engine, model) = slow_engine(PlanOptions::default());
    for shape in SHAPES {
        let (counters, [_, planned], steps) = counted(&engine, shape);
        let passed = counters.prep_bytes + counters.fini_bytes;
        assert_eq!(passed, planned, "{shape:?}");
        // At most one for each part and core.
        assert!(
            (1..=(steps * DEVICES) as u64).contains(&counters.submits),
            "{shape:?}"
        );
    }
    let events = model.take_events();
    let missed = |event: &&Event| matches!(event, Event::MissedCall { .. });
    assert_eq!(events.iter().find(missed), None);
}

/// The limit is half more than needed, as `cargo xtask docs` checks for the shapes of
/// docs/matmul-figures.md.
#[test]
fn matmuls_of_some_size_pass_little_more_than_they_need() {
    let (engine, _) = slow_engine(PlanOptions::default());
    let (_, [needed, passed], _) = counted(&engine, SHAPES[1]);
    assert!(
        (needed..=needed / 2 * 3).contains(&passed),
        "{needed} {passed}"
    );
}
