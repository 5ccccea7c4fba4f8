// SPDX-License-Identifier: MIT OR Apache-2.0
//! Attention on a device that is slow, wrong, or gone.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use npu_matmul::{Engine, Error, JobFailure, PlanOptions};
use proptest::prelude::*;
use rknpu_regcmd::MatmulType;

use crate::common::attention::{CASE, Case, Operands};
use crate::common::faults::{Faults, faulty_engine, is_gone};
use crate::common::lying::lying_engine;
use crate::common::slow::{Entry, slow_engine};

/// Each of three devices has several tiles; jobs have at most two tasks.
const LONG: Case = Case {
    heads: 8,
    kv_heads: 8,
    rows: 40,
    keys: 700,
    head_dim: 32,
    value_dim: 32,
    ..CASE
};

fn run(engine: &Engine) -> Result<(), Error> {
    let mut operands = Operands::new(&LONG, 1);
    engine.attend([operands.call()])?;
    assert!(operands.nmse() <= 1e-5);
    Ok(())
}

#[test]
fn failures_are_errors_and_the_next_call_is_right() {
    let all: [fn(&Faults) -> &AtomicUsize; 5] = [
        |faults| &faults.lost,
        |faults| &faults.refused,
        |faults| &faults.killed,
        |faults| &faults.no_memory,
        |faults| &faults.fini,
    ];
    for fault in all {
        let (engine, faults) = faulty_engine(3);
        fault(&faults).store(usize::MAX, Ordering::Relaxed);
        let error = run(&engine).unwrap_err();
        let is_typed = matches!(error, Error::Device { .. } | Error::Job { .. });
        assert!(is_typed, "{error:?}");
        fault(&faults).store(0, Ordering::Relaxed);
        run(&engine).unwrap();
        assert_eq!(engine.counters().matmuls, 1);
        drop(engine);
        assert_eq!(faults.live.load(Ordering::Relaxed), 0);
    }
}

#[test]
fn a_killed_job_is_told_of() {
    let (engine, faults) = faulty_engine(3);
    for skipped in [0, 5, 11] {
        // Jobs whose end is seen late do not count as killed.
        faults.late.store(skipped, Ordering::Relaxed);
        faults.killed.store(1, Ordering::Relaxed);
        let error = run(&engine).unwrap_err();
        let source = JobFailure::Killed.to_string();
        assert!(error.to_string().ends_with(&source), "{error}");
        faults.late.store(0, Ordering::Relaxed);
        run(&engine).unwrap();
    }
}

/// Number of calls to a device that does not disappear.
fn calls() -> usize {
    static CALLS: OnceLock<usize> = OnceLock::new();
    *CALLS.get_or_init(|| {
        let (engine, faults) = faulty_engine(3);
        run(&engine).unwrap();
        faults.calls.load(Ordering::Relaxed)
    })
}

proptest! {
    #![proptest_config(test_support::cases(24))]

    #[test]
    fn a_device_that_disappears_is_an_error_and_no_leak(at in 0.0..1.0_f64) {
        let calls = calls();
        let (engine, faults) = faulty_engine(3);
        faults.until_gone.store(1 + (at * calls as f64) as usize, Ordering::Relaxed);
        if let Err(error) = run(&engine) {
            prop_assert!(is_gone(&error), "{:?}", error);
        }
        drop(engine);
        prop_assert_eq!(faults.live.load(Ordering::Relaxed), 0);
    }
}

#[test]
fn the_second_time_no_buffer_is_made() {
    let (engine, faults) = faulty_engine(3);
    let made = || {
        run(&engine).unwrap();
        faults.made.load(Ordering::Relaxed)
    };
    let first = made();
    assert_eq!([made(), made()], [first; 2]);
}

/// On an uncalibrated NPU the first task of each kind is checked.
#[test]
fn wrong_scores_and_wrong_values_are_found() {
    let options = || PlanOptions::uncalibrated(600_000_000);
    let engine = lying_engine(options(), |_, _, _| None);
    run(&engine).unwrap();
    let checked = engine.counters().checked_tasks;
    assert!(checked >= 2, "{checked}");
    run(&engine).unwrap();
    assert_eq!(engine.counters().checked_tasks, checked);

    let scores = lying_engine(options(), |submission, _, _| {
        (submission.job.ty == MatmulType::Fp16ToFp16).then_some([0, 3])
    });
    let values = lying_engine(options(), |submission, _, _| {
        (submission.job.ty == MatmulType::Fp16ToFp32).then_some([0, 3])
    });
    for engine in [scores, values] {
        // Every workaround gives a wrong result, too.
        let mut errors = std::iter::from_fn(|| run(&engine).err()).take(9);
        assert!(matches!(errors.next(), Some(Error::WrongResult { .. })));
        assert!(matches!(errors.last(), Some(Error::Distrusted { .. })));
    }
}

/// On one device whose jobs end when a thread waits for them.
#[test]
fn the_next_scores_are_submitted_before_the_last_are_waited_for() {
    let (engine, log) = slow_engine(PlanOptions::default());
    run(&engine).unwrap();
    let log = log.take();
    let mut running = 0;
    let mut most = 0;
    let waits = log.iter().filter(|entry| **entry == Entry::Ended).count();
    let mut waited = 0;
    for entry in &log {
        match entry {
            Entry::Submitted(jobs) => running += jobs,
            Entry::Ended => {
                running -= 1;
                waited += 1;
                // Except for the last tile, the device has more work.
                assert!(running > 0 || waited + 1 >= waits, "{log:?}");
            }
            _ => {}
        }
        most = most.max(running);
    }
    // Scores of two tiles and values of one, or the other way round.
    assert_eq!((running, most), (0, 3), "{log:?}");
}
