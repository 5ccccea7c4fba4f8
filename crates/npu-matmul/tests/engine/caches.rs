// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cache maintenance of matmuls: it processes the planned bytes, little more than the needed ones.
//! Results are right on a device whose caches need it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use npu_matmul::{Counters, Engine, PlanOptions, Profile, WeightFormat};
use npu_model::driver::Caches;
use npu_model::event::Event;
use npu_model::{Model, ModelOptions};

use crate::common::faults::faulty_engine;
use crate::common::matmul::Matmul;
use crate::common::slow::slow;
use crate::common::{self, DEVICES, Shape, engine_on};

/// An engine on a device whose caches are not coherent. Each job is seen running, however late this
/// process checks.
fn manual_caches_engine(options: PlanOptions) -> (Engine, Arc<Model>) {
    let model = Model::new(ModelOptions {
        caches: Caches::Manual,
        ..ModelOptions::default()
    });
    let device = slow(model.open(), &Arc::default());
    (engine_on(&device, DEVICES, options), model)
}

/// Counters of one matmul, once the engine has its buffers and programs; its planned bytes, needed
/// and processed; and its number of steps.
fn counters_of(engine: &Engine, shape: Shape) -> (Counters, [u64; 2], usize) {
    let matmul = Matmul::new(engine, WeightFormat::Int8, shape, 1).unwrap();
    let plan = common::plan(engine, &matmul.weights, shape.m);
    let multiply = || matmul.check(engine).unwrap();
    multiply();
    let counters = common::counted(engine, multiply);
    (
        counters,
        plan.cache_bytes(&Profile::built_in().choices),
        plan.steps().len(),
    )
}

/// Shapes, and whether little more is processed than needed.
const SHAPES: [(Shape, bool); 4] = [
    (Shape::new(1, 1024, 512), false),
    (Shape::new(200, 1200, 256), true),
    // Several K tiles.
    (Shape::new(256, 384, 1500), false),
    // Two devices use the same rows.
    (Shape::new(600, 64, 576), false),
];

#[test]
fn matmuls_pass_what_their_plan_says() {
    for (shape, is_near) in SHAPES {
        // A new engine has no larger buffers to reuse.
        let (engine, model) = manual_caches_engine(PlanOptions::default());
        let (counters, [needed, planned], steps) = counters_of(&engine, shape);
        let passed = counters.prep_bytes + counters.fini_bytes;
        assert_eq!(passed, planned, "{shape:?}");
        // At most one for each part and core.
        let most = (steps * DEVICES) as u64;
        assert!((1..=most).contains(&counters.submits), "{shape:?}");
        // At most half more than needed.
        if is_near {
            let range = needed..=needed / 2 * 3;
            assert!(range.contains(&passed), "{needed} {passed}");
        }
        let events = model.take_events();
        let missed = |event: &&Event| matches!(event, Event::MissedCall { .. });
        assert_eq!(events.iter().find(missed), None);
    }
}

/// The last batch of a prompt has any number of rows.
#[test]
fn a_little_fewer_rows_need_no_new_operand_buffers() {
    for format in Matmul::formats() {
        let (engine, faults) = faulty_engine(DEVICES);
        let matmul = Matmul::new(&engine, format, Shape::new(240, 130, 320), 1).unwrap();
        matmul.run(&engine).unwrap();
        let count = || {
            let counts = [&faults.made, &faults.jobs];
            counts.map(|count| count.load(Ordering::Relaxed))
        };
        for m in [236, 220, 204] {
            let before = count();
            matmul.with_rows(m, 2).run(&engine).unwrap();
            let after = count();
            let [made, jobs] = [0, 1].map(|at| after[at] - before[at]);
            // Each job has new programs, in a buffer object of their own.
            assert_eq!(made, jobs, "{format:?} {m}");
        }
    }
}
