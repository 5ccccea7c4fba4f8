// SPDX-License-Identifier: MIT OR Apache-2.0
//! What happens when the device is wrong: a typed error, nothing lost, and the
//! next product is right.
#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests: a failed unwrap is a failed test"
)]

mod common;
#[path = "common/faults.rs"]
mod faults;

use std::sync::atomic::Ordering;

use common::{Random, random_i8};
use faults::faulty_engine;
use npu_matmul::quantise::{Operands, Outliers, QuantiseOptions};
use npu_matmul::{Engine, Error, JobFailure, Weights, reference};
use rocket_uapi::Errno;

const M: usize = 70;
const N: usize = 150;
const K: usize = 90;

struct Problem {
    weights: Weights,
    a: Vec<i8>,
    expected: Vec<i32>,
    /// Of INT4, with columns in FP16 that each call loads.
    quantised: Weights,
    floats: Vec<f32>,
}

impl Problem {
    fn new(engine: &Engine) -> Self {
        let (a, b) = (random_i8(1, M * K), random_i8(2, N * K));
        let mut floats: Vec<f32> = a.iter().map(|&x| x.into()).collect();
        for row in floats.chunks_mut(K) {
            row[7] *= 40.0;
        }
        let options = QuantiseOptions {
            operands: Operands::W4A8,
            outliers: Outliers::Above(6.0),
            ..QuantiseOptions::default()
        };
        let fill = |n: usize, row: &mut [f32]| {
            for (to, &from) in row.iter_mut().zip(&b[n * K..]) {
                *to = from.into();
            }
        };
        Self {
            weights: engine.load_i8(N, K, &b).unwrap(),
            expected: reference::multiply_i32(M, N, K, &a, &b),
            quantised: engine.load_quantised_rows(N, K, &options, fill).unwrap(),
            a,
            floats,
        }
    }

    fn run_quantised(&self, engine: &Engine) -> Result<Vec<f32>, Error> {
        let mut c = vec![f32::NAN; M * N];
        engine.multiply_quantised(&self.quantised, M, &self.floats, &mut c)?;
        Ok(c)
    }

    fn run(&self, engine: &Engine) -> Result<(), Error> {
        let mut c = vec![0; M * N];
        engine.multiply_i32(&self.weights, M, &self.a, &mut c)?;
        assert!(c == self.expected, "a product that succeeded is wrong");
        Ok(())
    }

    /// The same product three times at once, from the same activations.
    fn run_at_once(&self, engine: &Engine) -> Result<(), Error> {
        let mut results = vec![vec![0; M * N]; 3];
        let mut batch = engine.batch();
        for c in &mut results {
            batch.multiply_i32(&self.weights, M, &self.a, c)?;
        }
        batch.submit()?.wait()?;
        assert!(results.iter().all(|c| *c == self.expected));
        Ok(())
    }
}

#[test]
fn a_lost_job_is_found() {
    let (engine, faults) = faulty_engine(3);
    let problem = Problem::new(&engine);
    problem.run(&engine).unwrap();
    // Each job is tried twice; all tries are lost.
    faults.lost.store(usize::MAX, Ordering::Relaxed);
    let error = problem.run(&engine).unwrap_err();
    assert!(
        matches!(
            &error,
            Error::Job {
                source: JobFailure::Dropped,
                ..
            }
        ),
        "{error:?}"
    );
    assert!(error.to_string().starts_with("device "), "{error}");
    // One that is lost once is run by the second try.
    faults.lost.store(1, Ordering::Relaxed);
    problem.run(&engine).unwrap();
    faults.lost.store(0, Ordering::Relaxed);
    problem.run(&engine).unwrap();
}

#[test]
fn a_killed_job_is_found() {
    let (engine, faults) = faulty_engine(3);
    let problem = Problem::new(&engine);
    faults.killed.store(1, Ordering::Relaxed);
    let error = problem.run(&engine).unwrap_err();
    let Error::Job {
        source: JobFailure::Killed { errno },
        ..
    } = error
    else {
        panic!("{error:?}");
    };
    assert_eq!(errno, Errno::TIMEDOUT);
    problem.run(&engine).unwrap();
    assert_eq!(engine.counters().products, 1);
}

#[test]
fn refusals_and_lack_of_memory_are_errors() {
    let (engine, faults) = faulty_engine(2);
    let problem = Problem::new(&engine);
    faults.refused.store(1, Ordering::Relaxed);
    let error = problem.run(&engine).unwrap_err();
    assert!(matches!(error, Error::Device { .. }), "{error:?}");
    faults.no_memory.store(usize::MAX, Ordering::Relaxed);
    let error = Problem::try_load(&engine).unwrap_err();
    assert!(matches!(error, Error::Device { .. }), "{error:?}");
    faults.no_memory.store(0, Ordering::Relaxed);
    faults.fini.store(1, Ordering::Relaxed);
    let error = problem.run(&engine).unwrap_err();
    assert!(matches!(error, Error::Device { .. }), "{error:?}");
    problem.run(&engine).unwrap();
}

impl Problem {
    fn try_load(engine: &Engine) -> Result<Weights, Error> {
        // Larger than anything that was used before.
        engine.load_i8(500, 500, &vec![1; 500 * 500])
    }
}

#[test]
fn memory_kept_for_later_is_given_up_first() {
    let (engine, faults) = faulty_engine(1);
    let problem = Problem::new(&engine);
    problem.run(&engine).unwrap();
    let live = faults.live.load(Ordering::Relaxed);
    // The first try fails, and what is kept is freed for the second.
    faults.no_memory.store(1, Ordering::Relaxed);
    let weights = Problem::try_load(&engine).unwrap();
    assert!(faults.live.load(Ordering::Relaxed) < live + 1);
    drop(weights);
    problem.run(&engine).unwrap();
}

#[test]
fn whatever_fails_results_are_right_and_nothing_leaks() {
    let (engine, faults) = faulty_engine(3);
    let problem = Problem::new(&engine);
    let mut random = Random::new(99);
    let quantised = problem.run_quantised(&engine).unwrap();
    let same = |c: Vec<f32>| assert!(c == quantised);
    let mut failed = 0;
    for _ in 0..60 {
        let counts = [
            &faults.lost,
            &faults.refused,
            &faults.killed,
            &faults.no_memory,
            &faults.fini,
        ];
        let which = random.next() as usize % counts.len();
        counts[which].store(random.next() as usize % 3, Ordering::Relaxed);
        let outcome = match random.next() % 3 {
            0 => problem.run(&engine),
            1 => problem.run_quantised(&engine).map(same),
            _ => problem.run_at_once(&engine),
        };
        failed += usize::from(outcome.is_err());
        for count in counts {
            count.store(0, Ordering::Relaxed);
        }
        problem.run(&engine).unwrap();
        problem.run_at_once(&engine).unwrap();
        same(problem.run_quantised(&engine).unwrap());
    }
    assert!(failed > 5, "only {failed} products failed");
    drop(problem);
    drop(engine);
    assert_eq!(
        faults.live.load(Ordering::Relaxed),
        0,
        "buffer objects leaked"
    );
}

#[test]
fn buffers_are_used_again() {
    let (engine, faults) = faulty_engine(2);
    let problem = Problem::new(&engine);
    problem.run(&engine).unwrap();
    problem.run(&engine).unwrap();
    let made = faults.made.load(Ordering::Relaxed);
    for _ in 0..5 {
        problem.run(&engine).unwrap();
    }
    assert_eq!(faults.made.load(Ordering::Relaxed), made);
}
