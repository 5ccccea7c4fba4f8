// SPDX-License-Identifier: MIT OR Apache-2.0
//! Activations that are quantised once for several weights.

use std::sync::Arc;

use npu_matmul::quantise::Quantisation;
use npu_matmul::{Engine, PlanOptions, WeightFormat};

use crate::common::matmul::Matmul;
use crate::common::slow::{Entry, Log};
use crate::common::{DEVICES, counted, strict_engine};

const M: usize = 40;
const K: usize = 192;

fn engine() -> (Engine, Arc<Log>) {
    let log = Arc::new(Log::default());
    let (engine, _) = strict_engine(PlanOptions::default(), DEVICES);
    (engine.observed_by(Arc::clone(&log) as _), log)
}

fn quantised(log: &Log) -> usize {
    let log = log.take();
    log.iter()
        .filter(|entry| **entry == Entry::Quantised)
        .count()
}

/// Checks that matmuls at once give what each gives alone, and that their activations are quantised
/// `times` times.
fn check(engine: &Engine, log: &Log, matmuls: &[Matmul], times: usize) {
    let mut alone = Vec::new();
    let one_by_one = counted(engine, || {
        alone.extend(matmuls.iter().map(|matmul| matmul.run(engine).unwrap()));
    });
    assert_eq!(quantised(log), matmuls.len());
    let mut together = Vec::new();
    let in_one_run = counted(engine, || {
        together.extend(Matmul::run_all(engine, matmuls).unwrap());
    });
    assert!(together == alone);
    assert_eq!(quantised(log), times);
    assert!(in_one_run.submits < one_by_one.submits);
    assert_eq!(in_one_run.calls, matmuls.len() as u64);
}

#[test]
fn they_give_what_each_matmul_alone_gives() {
    let (engine, log) = engine();
    for to in Quantisation::ALL {
        let weights = [70, 33, 70].map(|n| (WeightFormat::Quantised(to), n));
        let matmuls = Matmul::of_same_rows(&engine, M, K, weights);
        check(&engine, &log, &matmuls, 1);
    }
}

/// Each kind of weights, and each matrix, has separate activations.
#[test]
fn other_weights_have_other_activations() {
    let (engine, log) = engine();
    let kinds = Quantisation::ALL.map(|to| (WeightFormat::Quantised(to), 5));
    let matmuls = Matmul::of_same_rows(&engine, M, K, kinds);
    let matmuls = matmuls.map(|matmul| [matmul.with_rows(M, 98), matmul]);
    check(&engine, &log, matmuls.as_flattened(), 4);
}
