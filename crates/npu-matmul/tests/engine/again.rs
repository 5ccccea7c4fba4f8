// SPDX-License-Identifier: MIT OR Apache-2.0
//! Jobs that the driver killed or dropped run a second time, and the results are those of a healthy
//! device.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use npu_matmul::{Engine, Error, ErrorKind, JobFailure, PlanOptions, WeightFormat, Weights};
use npu_model::driver::{Caches, DriverProfile};
use npu_model::event::Event;
use npu_model::{Damage, Model, ModelOptions};
use proptest::prelude::*;
use rknpu_chip::Level;

use crate::common::attention::{CASE, Operands};
use crate::common::faults::{Faults, faulty_engine, faulty_pool_on, small_jobs};
use crate::common::lying::lying_engine;
use crate::common::matmul::{Matmul, Results};
use crate::common::problem::Problem;
use crate::common::{Random, Shape, engine_on};

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
    check_caches(&model);
}

/// Checks that no call was missed that caches need.
fn check_caches(model: &Model) {
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
    assert!(is_job(&error, &JobFailure::DroppedOrKilled, 2), "{error:?}");
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
    let gemm = engine.prepare(&weights, 1).unwrap();
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

/// An engine with many small jobs on a damaged board whose caches are not coherent.
fn damaged_engine(damage: Damage) -> (Engine, Arc<Model>) {
    let model = Model::new(ModelOptions {
        caches: Caches::Manual,
        // A killed job takes no time of the host.
        level: Level::Strict,
        damage,
        ..ModelOptions::default()
    });
    (engine_on(&model.open_device(), 3, small_jobs()), model)
}

fn stalling(every: u64) -> Damage {
    Damage {
        stall: NonZeroU64::new(every),
        ..Damage::default()
    }
}

/// Results of lists of matmuls and of attention, all at the same time: matmuls of any type, and of
/// the same rows, which share jobs.
fn all_results(engine: &Engine, seed: u64, threads: u64) -> Vec<(Vec<Results>, Vec<f32>)> {
    let results = |seed: u64| {
        let mut random = Random::new(seed);
        let mut size = |most: u64| (random.next() % most + 1) as usize;
        let mut matmuls = Vec::from(Matmul::of_same_rows(
            engine,
            size(30),
            size(200),
            [50, 20, 9].map(|n| (WeightFormat::Int8, n)),
        ));
        for format in Matmul::formats() {
            let shape = Shape::new(size(30), size(90), size(200));
            matmuls.push(Matmul::new(engine, format, shape, seed).unwrap());
        }
        let results = Matmul::run_all(engine, &matmuls).unwrap();
        let mut operands = Operands::new(&CASE, seed);
        engine.attend([operands.call()]).unwrap();
        (results, operands.out)
    };
    thread::scope(|scope| {
        let threads = (0..threads).map(|thread| scope.spawn(move || results(seed + thread)));
        let threads: Vec<_> = threads.collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    })
}

proptest! {
    #![proptest_config(test_support::cases(8))]

    #[test]
    fn results_do_not_depend_on_jobs_that_never_start(
        seed in any::<u32>(),
        every in 2..8_u64,
        threads in 1..4_u64,
    ) {
        let (healthy, _) = damaged_engine(Damage::default());
        let (engine, model) = damaged_engine(stalling(every));
        let seed = u64::from(seed);
        let expected = all_results(&healthy, seed, threads);
        prop_assert!(all_results(&engine, seed, threads) == expected);
        let counters = engine.counters();
        let killed = model.jobs().killed;
        prop_assert!(killed > 0);
        prop_assert_eq!([counters.jobs_run_again, counters.jobs_recovered], [killed; 2]);
        prop_assert_eq!(counters.jobs, healthy.counters().jobs);
        // The driver's limit for each, in modelled time.
        let limit = DriverProfile::default().job_limit;
        prop_assert_eq!(engine.times().jobs_failed, limit * u32::try_from(killed).unwrap());
        prop_assert_eq!(engine.times().jobs_ran, healthy.times().jobs_ran);
        prop_assert_eq!(healthy.times().jobs_failed, Duration::ZERO);
        check_caches(&model);
    }
}

#[test]
fn if_no_job_ever_starts_the_error_says_that_one_ran_twice() {
    let no_power = Damage {
        power_fails: true,
        ..Damage::default()
    };
    for damage in [stalling(1), no_power] {
        let (engine, model) = damaged_engine(damage);
        let problem = Problem::new(&engine);
        let error = problem.run(&engine).unwrap_err();
        let source = JobFailure::Killed;
        assert!(is_job(&error, &source, 2), "{error:?}");
        assert_eq!(error.kind(), ErrorKind::JobEnded);
        assert_eq!(engine.counters().jobs_recovered, 0);
        let error = engine.probe().unwrap_err();
        assert!(is_job(&error, &source, 1), "{error:?}");
        check_caches(&model);
    }
}

/// Whether a job failed like this, after so many runs.
fn is_job(error: &Error, expected: &JobFailure, after: u32) -> bool {
    matches!(error, Error::Job { source, runs, .. }
        if std::mem::discriminant(source) == std::mem::discriminant(expected) && *runs == after)
}
