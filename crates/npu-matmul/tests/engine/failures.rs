// SPDX-License-Identifier: MIT OR Apache-2.0
//! A device that fails: calls return a typed error, nothing leaks, and the next matmul is right.
//! If it disappears, the current and all later calls fail at once.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use npu_matmul::{Engine, Error, JobFailure, PackedWeights, Weights};
use proptest::prelude::*;

use crate::common::Random;
use crate::common::faults::{Faults, faulty_engine, is_gone};
use crate::common::problem::{Problem, Use, attend};

/// Loads weights larger than all before.
fn try_load(engine: &Engine) -> Result<PackedWeights, Error> {
    // Each device needs a separate buffer object for them.
    engine.load(Weights::i8(4000, 500, &vec![1; 4000 * 500]))
}

fn job_failure(error: &Error) -> Option<&JobFailure> {
    match error {
        Error::Job { source, .. } => Some(source),
        _ => None,
    }
}

fn is_dropped(error: &Error) -> bool {
    matches!(job_failure(error), Some(JobFailure::Dropped))
}

fn is_killed(error: &Error) -> bool {
    matches!(job_failure(error), Some(JobFailure::Killed))
}

fn is_of_device(error: &Error) -> bool {
    matches!(error, Error::Device { .. })
}

/// A kind of failure, and whether an error is the right one for it.
type Fault = (fn(&Faults) -> &AtomicUsize, fn(&Error) -> bool);

/// The kinds that fail a call.
const FAULTS: [Fault; 5] = [
    (|faults| &faults.lost, is_dropped),
    (|faults| &faults.refused, is_of_device),
    (|faults| &faults.killed, is_killed),
    (|faults| &faults.no_memory, is_of_device),
    (|faults| &faults.fini, is_of_device),
];

/// Also if matmuls share jobs: what became of each is not known, so all have failed.
#[test]
fn failures_are_errors_and_the_next_call_is_right() {
    for (fault, is_right) in FAULTS {
        for of in Problem::USES {
            let (engine, faults) = faulty_engine(3);
            let problem = Problem::new(&engine);
            fault(&faults).store(usize::MAX, Ordering::Relaxed);
            let error = of(&problem, &engine).unwrap_err();
            assert!(is_right(&error), "{error:?}");
            assert!(error.to_string().starts_with("device "), "{error}");
            fault(&faults).store(0, Ordering::Relaxed);
            assert_eq!(engine.counters().calls, 0);
            problem.run_all(&engine);
        }
    }
}

/// A busy machine that sees the end of jobs late does not run them twice. No matmul exports a
/// buffer object as a descriptor, which can trigger a use after free in current kernels.
#[test]
fn jobs_that_are_looked_at_late_run_once_and_nothing_is_exported() {
    let (engine, faults) = faulty_engine(3);
    let problem = Problem::new(&engine);
    let jobs = || {
        let before = faults.jobs.load(Ordering::Relaxed);
        problem.run(&engine).unwrap();
        faults.jobs.load(Ordering::Relaxed) - before
    };
    let plain = jobs();
    for late in [1, 2, plain] {
        faults.late.store(late, Ordering::Relaxed);
        assert_eq!(jobs(), plain);
        assert_eq!(faults.late.load(Ordering::Relaxed), 0);
    }
    assert_eq!(faults.exports.load(Ordering::Relaxed), 0);
}

/// Also if other jobs of the call, whose end is seen late, do not count as killed.
#[test]
fn a_killed_job_of_attention_runs_again() {
    let (engine, faults) = faulty_engine(3);
    for skipped in [0, 5, 11] {
        faults.late.store(skipped, Ordering::Relaxed);
        let before = engine.counters().jobs_recovered;
        faults.killed.store(1, Ordering::Relaxed);
        attend(&engine).unwrap();
        assert_eq!(engine.counters().jobs_recovered, before + 1);
    }
}

#[test]
fn memory_kept_for_later_is_given_up_first() {
    let (engine, faults) = faulty_engine(1);
    let problem = Problem::new(&engine);
    problem.run(&engine).unwrap();
    let live = faults.live.load(Ordering::Relaxed);
    // The first try fails; idle buffers are freed for the second.
    faults.no_memory.store(1, Ordering::Relaxed);
    let weights = try_load(&engine).unwrap();
    assert!(faults.live.load(Ordering::Relaxed) < live + 1);
    drop(weights);
    problem.run(&engine).unwrap();
    faults.no_memory.store(usize::MAX, Ordering::Relaxed);
    let error = try_load(&engine).unwrap_err();
    assert!(is_of_device(&error), "{error:?}");
}

#[test]
fn whatever_fails_results_are_right_and_nothing_leaks() {
    let (engine, faults) = faulty_engine(3);
    let problem = Problem::new(&engine);
    let mut random = Random::new(99);
    let mut below = |count: usize| random.next() as usize % count;
    problem.run_all(&engine);
    let mut failed = 0;
    for _ in 0..60 {
        let (fault, _) = FAULTS[below(FAULTS.len())];
        fault(&faults).store(below(3), Ordering::Relaxed);
        let of = Problem::USES[below(Problem::USES.len())];
        failed += usize::from(of(&problem, &engine).is_err());
        fault(&faults).store(0, Ordering::Relaxed);
        problem.run_all(&engine);
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

/// Loads weights and uses them. Calls fail only because the device is gone, and then all later
/// calls fail.
fn load_and_use(engine: &Engine, faults: &Faults) {
    let loaded = typed(faults, Problem::load(engine));
    let Some(problem) = loaded else {
        return;
    };
    for of in Problem::USES.into_iter().chain([Problem::run as Use]) {
        let failed_before = faults.is_gone();
        let done = typed(faults, of(&problem, engine));
        assert!(
            done.is_none() || !failed_before,
            "a product of a device that is gone"
        );
    }
}

/// Returns the result, or checks the error.
fn typed<T>(faults: &Faults, result: Result<T, Error>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(error) => {
            assert!(faults.is_gone(), "{error}");
            assert!(is_gone(&error), "{error:?}");
            None
        }
    }
}

/// Number of calls to a device that does not disappear.
fn calls() -> usize {
    static CALLS: OnceLock<usize> = OnceLock::new();
    *CALLS.get_or_init(|| {
        let (engine, faults) = faulty_engine(3);
        load_and_use(&engine, &faults);
        drop(engine);
        faults.calls.load(Ordering::Relaxed)
    })
}

proptest! {
    #![proptest_config(test_support::cases(32))]

    #[test]
    fn a_device_that_disappears_is_an_error_and_no_leak(at in 0.0..1.0_f64) {
        let (engine, faults) = faulty_engine(3);
        let at = 1 + (at * calls() as f64) as usize;
        faults.until_gone.store(at, Ordering::Relaxed);
        load_and_use(&engine, &faults);
        drop(engine);
        prop_assert_eq!(faults.live.load(Ordering::Relaxed), 0);
    }
}
