// SPDX-License-Identifier: MIT OR Apache-2.0
//! Jobs that the driver killed or dropped run a second time, and the results are those of a healthy
//! device.

use std::sync::atomic::{AtomicUsize, Ordering};

use npu_matmul::{Engine, Error, ErrorKind, JobFailure, Output, PlanOptions, Weights};
use npu_model::driver::Caches;
use npu_model::event::Event;
use npu_model::{Model, ModelOptions};

use crate::common::attention::{CASE, Operands};
use crate::common::faults::{Faults, faulty_engine, faulty_pool_on, small_jobs};
use crate::common::lying::lying_engine;
use crate::common::problem::Problem;

/// Kinds of failures after which a job runs again, each for one job or SUBMIT.
const FAULTS: [fn(&Faults) -> &AtomicUsize; 2] = [|faults| &faults.killed, |faults| &faults.lost];

fn fail_once(faults: &Faults) {
    for fault in FAULTS {
        fault(faults).store(1, Ordering::Relaxed);
    }
}

/// Also if the caches are not coherent.
#[test]
fn a_job_that_fails_once_is_right_the_second_time() {
    let model = Model::new(ModelOptions {
        caches: Caches::Manual,
        ..ModelOptions::default()
    });
    let (pool, faults) = faulty_pool_on(&model, 3);
    let engine = Engine::with_options(pool, small_jobs()).unwrap();
    let problem = Problem::new(&engine);
    for of in Problem::USES {
        let before = engine.counters();
        fail_once(&faults);
        of(&problem, &engine).unwrap();
        assert!(
            FAULTS
                .iter()
                .all(|fault| fault(&faults).load(Ordering::Relaxed) == 0)
        );
        let after = engine.counters();
        let again = after.jobs_run_again - before.jobs_run_again;
        // The killed job may be one of the lost SUBMIT.
        assert!(again >= 1);
        assert_eq!(after.jobs_recovered - before.jobs_recovered, again);
    }
    let events = model.take_events();
    let missed = |event: &&Event| matches!(event, Event::MissedCall { .. });
    assert_eq!(events.iter().find(missed), None);
}

#[test]
fn a_job_that_fails_twice_is_an_error_that_says_so() {
    let (engine, faults) = faulty_engine(1);
    let problem = Problem::new(&engine);
    // What is lost or killed is not known.
    faults.lost.store(usize::MAX, Ordering::Relaxed);
    faults.late.store(usize::MAX, Ordering::Relaxed);
    let error = problem.run(&engine).unwrap_err();
    let source = JobFailure::DroppedOrKilled;
    assert!(
        matches!(&error, Error::Job { source: found, runs: 2, .. }
            if std::mem::discriminant(found) == std::mem::discriminant(&source)),
        "{error:?}"
    );
    assert!(error.to_string().ends_with("(it ran twice)"), "{error}");
    assert_eq!(error.kind(), ErrorKind::JobEnded);
    let counters = engine.counters();
    assert_eq!((counters.jobs_run_again, counters.jobs_recovered), (1, 0));
}

/// The caller is asked once for each job, before it runs again.
#[test]
fn an_aborted_call_runs_no_job_again() {
    let (engine, faults) = faulty_engine(3);
    let problem = Problem::new(&engine);
    let weights = engine.load(Weights::i8(2, 3, &[1, 2, 3, 4, 5, 6])).unwrap();
    let gemm = engine.prepare(&weights, 1, Output::I32).unwrap();
    for is_aborted in [true, false] {
        let asked = AtomicUsize::new(0);
        let answer = || {
            asked.fetch_add(1, Ordering::Relaxed);
            is_aborted
        };
        let mut c = [0; 2];
        faults.killed.store(1, Ordering::Relaxed);
        let mut matmul = || engine.run_abortable([gemm.call(&[1_i8, 0, -1], &mut c)], &answer);
        let multiplied = matmul();
        faults.killed.store(1, Ordering::Relaxed);
        let mut operands = Operands::new(&CASE, 1);
        let attended = engine.attend_abortable([operands.call()], &answer);
        for done in [multiplied, attended] {
            let error = done.err().map(Error::from);
            let kind = error.map(|error| error.kind());
            assert_eq!(kind, is_aborted.then_some(ErrorKind::Aborted));
        }
        assert_eq!(asked.into_inner(), 2);
        if is_aborted {
            assert_eq!(engine.counters().jobs_run_again, 0);
            problem.run_all(&engine);
        } else {
            assert_eq!((c, engine.counters().jobs_recovered), ([-2, -2], 2));
            assert!(operands.nmse() <= 1e-5);
        }
    }
}

#[test]
fn a_probe_finds_devices_that_fail_or_compute_wrong_results() {
    let (engine, faults) = faulty_engine(3);
    engine.probe().unwrap();
    let jobs = faults.jobs.load(Ordering::Relaxed);
    assert_eq!(jobs, 3, "one on each device");
    faults.killed.store(1, Ordering::Relaxed);
    let error = engine.probe().unwrap_err();
    assert!(matches!(error, Error::Job { runs: 1, .. }), "{error:?}");
    assert_eq!(
        faults.jobs.load(Ordering::Relaxed),
        2 * jobs,
        "none ran again"
    );
    engine.probe().unwrap();
    let options = PlanOptions {
        check_first: Some(false),
        ..PlanOptions::default()
    };
    let liar = lying_engine(options, |_, _, _| Some([0, 3]));
    let error = liar.probe().unwrap_err();
    assert!(
        matches!(error, Error::WrongProbe { column: 3, .. }),
        "{error:?}"
    );
    assert_eq!(error.kind(), ErrorKind::WrongResult);
}
