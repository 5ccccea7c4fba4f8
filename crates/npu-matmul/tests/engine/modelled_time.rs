// SPDX-License-Identifier: MIT OR Apache-2.0
//! The modelled time of matmuls does not depend on the host, whose threads run late and in any
//! order.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use npu_matmul::{Engine, PlanOptions, WeightFormat};
use npu_model::{Model, ModelOptions};
use rknpu_regcmd::timing::JobTime;

use crate::common::Shape;
use crate::common::faults::faulty_pool_on;
use crate::common::matmul::Matmul;

/// Times of the jobs of two matmuls, by file and in order. With a seed, threads are delayed around
/// each call that orders jobs.
fn times(files: usize, seed: u64) -> BTreeMap<u64, Vec<JobTime>> {
    let model = Model::new(ModelOptions {
        timeline: true,
        ..ModelOptions::default()
    });
    let (pool, faults) = faulty_pool_on(&model, files);
    faults.pauses.store(seed, Ordering::Relaxed);
    let engine = Engine::with_options(pool, PlanOptions::default()).unwrap();
    let shape = Shape::new(64, 512 * files, 96);
    let matmul = Matmul::new(&engine, WeightFormat::Int8, shape, 1).unwrap();
    for _ in 0..2 {
        matmul.run(&engine).unwrap();
    }
    Matmul::run_all(&engine, [&matmul; 3]).unwrap();
    let mut times: BTreeMap<u64, Vec<JobTime>> = BTreeMap::new();
    for (job, &time) in model.timeline().unwrap().jobs() {
        times.entry(job.file).or_default().push(time);
    }
    times
}

#[test]
fn the_same_matmuls_take_the_same_modelled_time() {
    for files in [3, 4] {
        let usual = times(files, 0);
        assert_eq!(usual.len(), files);
        assert!(usual.values().all(|jobs| jobs.len() >= 4), "{usual:?}");
        for seed in 1..5 {
            assert_eq!(times(files, seed), usual, "{files} files");
        }
    }
}
