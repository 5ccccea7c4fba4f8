// SPDX-License-Identifier: MIT OR Apache-2.0
//! A device that fails: calls return a typed error, nothing leaks, and the next matmul is right.
//! If it disappears, the current and all later calls fail at once.

use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use npu_matmul::{Engine, Error, JobFailure, PackedWeights, Weights};
use proptest::prelude::*;

use crate::common::Random;
use crate::common::faults::{Faults, faulty_engine, is_gone};
use crate::common::matmul::Results;
use crate::common::problem::Problem;

/// Loads weights larger than all before.
fn try_load(engine: &Engine) -> Result<PackedWeights, Error> {
    // Each device needs a separate buffer object for them.
    engine.load(Weights::i8(4000, 500, &vec![1; 4000 * 500]))
}

fn is_dropped(error: &Error) -> bool {
    let dropped = |source: &JobFailure| matches!(source, JobFailure::Dropped);
    matches!(error, Error::Job { source, .. } if dropped(source))
}

#[test]
fn a_lost_job_is_found() {
    let (engine, faults) = faulty_engine(3);
    let problem = Problem::new(&engine);
    problem.run(&engine).unwrap();
    faults.lost.store(usize::MAX, Ordering::Relaxed);
    let error = problem.run(&engine).unwrap_err();
    assert!(is_dropped(&error), "{error:?}");
    assert!(error.to_string().starts_with("device "), "{error}");
    faults.lost.store(0, Ordering::Relaxed);
    problem.run(&engine).unwrap();
}

/// Matmuls share jobs. What became of each is not known, so all have failed.
#[test]
fn a_lost_job_of_several_matmuls_is_found() {
    let (engine, faults) = faulty_engine(3);
    let problem = Problem::new(&engine);
    problem.run(&engine).unwrap();
    let alone = engine.counters().jobs;
    problem.run_at_once(&engine).unwrap();
    let together = engine.counters().jobs - alone;
    assert!(together < 3 * alone, "{together} of 3 x {alone}");
    faults.lost.store(usize::MAX, Ordering::Relaxed);
    let error = problem.run_at_once(&engine).unwrap_err();
    assert!(is_dropped(&error), "{error:?}");
    faults.lost.store(0, Ordering::Relaxed);
    problem.run_at_once(&engine).unwrap();
}

#[test]
fn a_killed_job_is_found() {
    let (engine, faults) = faulty_engine(3);
    let problem = Problem::new(&engine);
    faults.killed.store(1, Ordering::Relaxed);
    let error = problem.run(&engine).unwrap_err();
    let killed = JobFailure::Killed;
    assert!(
        matches!(&error, Error::Job { source, .. } if source.to_string() == killed.to_string()),
        "{error:?}"
    );
    problem.run(&engine).unwrap();
    assert_eq!(engine.counters().matmuls, 1);
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

#[test]
fn refusals_and_lack_of_memory_are_errors() {
    let (engine, faults) = faulty_engine(2);
    let problem = Problem::new(&engine);
    faults.refused.store(1, Ordering::Relaxed);
    let error = problem.run(&engine).unwrap_err();
    assert!(matches!(error, Error::Device { .. }), "{error:?}");
    faults.no_memory.store(usize::MAX, Ordering::Relaxed);
    let error = try_load(&engine).unwrap_err();
    assert!(matches!(error, Error::Device { .. }), "{error:?}");
    faults.no_memory.store(0, Ordering::Relaxed);
    faults.fini.store(1, Ordering::Relaxed);
    let error = problem.run(&engine).unwrap_err();
    assert!(matches!(error, Error::Device { .. }), "{error:?}");
    problem.run(&engine).unwrap();
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
}

#[test]
fn whatever_fails_results_are_right_and_nothing_leaks() {
    let (engine, faults) = faulty_engine(3);
    let problem = Problem::new(&engine);
    let mut random = Random::new(99);
    let quantised = problem.run_quantised(&engine).unwrap();
    let same = |c: Results| assert!(c == quantised);
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

/// A way to use a device.
type Use = fn(&Engine, &Problem) -> Result<(), Error>;

/// Uses of a device, in order.
const USES: [Use; 4] = [
    |engine, problem| problem.run(engine),
    |engine, problem| problem.run_quantised(engine).map(drop),
    |engine, problem| problem.run_at_once(engine),
    |engine, problem| problem.run(engine),
];

/// Loads weights and uses them. Calls fail only because the device is gone, and then all later
/// calls fail.
fn load_and_use(engine: &Engine, faults: &Faults) {
    let loaded = typed(faults, Problem::load(engine));
    let Some(problem) = loaded else {
        return;
    };
    for of in USES {
        let failed_before = faults.is_gone();
        let done = typed(faults, of(engine, &problem));
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
