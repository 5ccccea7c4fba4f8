// SPDX-License-Identifier: MIT OR Apache-2.0
//! The modelled time of matmuls does not depend on the host, whose threads run late and in any
//! order.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use crate::common::faults::faulty_pool_on;
use crate::common::{multiply, multiply_all, random_i8};
use npu_matmul::{Engine, PlanOptions, Weights};
use npu_model::{Model, ModelOptions};
use rknpu_regcmd::timing::JobTime;

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
    let (m, n, k) = (64, 512 * files, 96);
    let (a, b) = (random_i8(1, m * k), random_i8(2, n * k));
    let weights = engine.load(Weights::i8(n, k, &b)).unwrap();
    let mut c = vec![0; m * n];
    for _ in 0..2 {
        multiply(&engine, &weights, m, &a, &mut c).unwrap();
    }
    let mut results = vec![vec![0; m * n]; 3];
    let matmuls = results
        .iter_mut()
        .map(|c| (&weights, m, (&a).into(), c.into()));
    multiply_all(&engine, matmuls.collect()).unwrap();
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
