// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the result of a wait, for jobs with every fate.
#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

mod common;

use common::{Event, Fate, Mock, RESULT, ends, in_place_job, job, soon, submit};
use rocket_uapi::{Deadline, Device, Error, FinishedJob, Job, WaitError};

fn run(mock: &Mock, make: impl Fn(&Device) -> Job) -> Result<FinishedJob, WaitError> {
    let device = mock.device();
    let pending = submit(make(&device), &device);
    pending.wait(soon())
}

/// One job with separate inputs and outputs, and one that works in place.
const KINDS: [fn(&Device) -> Job; 2] = [job, |device| in_place_job(device, 0)];

/// The witness is the proof, however quick or late the job was, and no job runs twice.
#[test]
fn a_job_whose_witness_ran_ran() {
    for make in KINDS {
        for fate in [Fate::Runs, Fate::RunsAtOnce, Fate::RunsLate] {
            let mock = Mock::new(&[fate]);
            let done = run(&mock, make).unwrap();
            assert_eq!(ends(&done.writes[0]), (RESULT, RESULT), "{fate:?}");
            assert_eq!(mock.lock().submissions, 1, "{fate:?}");
            assert_eq!(mock.lock().exports, 0);
        }
    }
}

/// The error says what is known of the end, whether the output is intact or fully written,
/// and returns the job.
#[test]
fn a_job_that_did_not_run_is_dropped_or_killed() {
    type Check = fn(&WaitError) -> bool;
    let is_dropped: Check = |error| matches!(error, WaitError::Dropped { .. });
    let is_killed: Check = |error| matches!(error, WaitError::Killed { .. });
    let is_unknown: Check = |error| matches!(error, WaitError::DroppedOrKilled { .. });
    for (fate, is_expected) in [
        (Fate::IsDropped, is_dropped),
        (Fate::IsKilled, is_killed),
        (Fate::IsKilledAtItsEnd, is_killed),
        (Fate::IsKilledForSure, is_killed),
        (Fate::IsDroppedUnseen, is_unknown),
        (Fate::IsKilledUnseen, is_unknown),
    ] {
        for make in KINDS {
            let error = run(&Mock::new(&[fate]), make).unwrap_err();
            assert!(is_expected(&error), "{fate:?}: {error}");
            let (reads, writes) = error.into_failed().unwrap().job.into_bos();
            assert_eq!(writes.len(), 1);
            // The job in place reads no other buffer.
            assert!(reads.len() <= 1);
        }
    }
}

/// Later jobs reuse a page and the operands of its witness.
#[test]
fn a_page_serves_again() {
    let mock = Mock::new(&[Fate::RunsAtOnce, Fate::IsDropped]);
    let device = mock.device();
    let jobs = [(); 2].map(|()| job(&device));
    let creations = || {
        let is_create = |event: &Event| matches!(event, Event::Create(_));
        mock.events().into_iter().filter(is_create).count()
    };
    let before = creations();
    let mut results = jobs.into_iter().map(|job| {
        let pending = submit(job, &device);
        pending.wait(soon())
    });
    assert!(results.next().unwrap().is_ok());
    assert_eq!(creations(), before + 2);
    // The witness's result of the first job proves nothing about this one.
    assert!(matches!(
        results.next().unwrap(),
        Err(WaitError::Dropped { .. })
    ));
    assert_eq!(creations(), before + 2);
    drop(results);
    drop(device);
    mock.assert_all_gone("pages too");
}

/// Runs a job, and makes call number `after` after SUBMIT fail.
fn with_failure(after: usize, fates: &[Fate]) -> (Mock, Result<FinishedJob, WaitError>) {
    let mock = Mock::new(fates);
    let device = mock.device();
    let job = job(&device);
    // The first 5 calls are CREATE and FINI of the witness's operands and of the page, and
    // SUBMIT.
    mock.fail_at(5 + after);
    let pending = submit(job, &device);
    let result = pending.wait(soon());
    (mock, result)
}

#[test]
fn a_look_that_fails_proves_nothing() {
    let (_, result) = with_failure(0, &[Fate::Runs]);
    assert_eq!(ends(&result.unwrap().writes[0]), (RESULT, RESULT));
    let (_, result) = with_failure(0, &[Fate::IsDropped]);
    assert!(matches!(result, Err(WaitError::Dropped { .. })));
}

#[test]
fn a_deadline_gives_the_job_back() {
    let mock = Mock::new(&[Fate::Hangs]);
    let device = mock.device();
    let pending = submit(job(&device), &device);
    let WaitError::TimedOut { job } = pending.wait(Deadline::NOW).unwrap_err() else {
        panic!("expected a timeout");
    };
    // End the job, as the driver's timeout does.
    mock.release();
    assert!(matches!(job.wait(soon()), Err(WaitError::Killed { .. })));
}

#[test]
fn a_wait_that_fails_can_be_repeated() {
    // The calls are the look, PREP of the output, and PREP of the page.
    for after in [1, 2] {
        let (_, result) = with_failure(after, &[Fate::RunsLate]);
        let error = result.unwrap_err();
        let WaitError::Device { source, job } = error else {
            panic!("{error:?}");
        };
        assert!(
            matches!(source, Error::Refused { call, .. } if call == "PREP_BO"),
            "{source}"
        );
        assert_eq!(ends(&job.wait(soon()).unwrap().writes[0]), (RESULT, RESULT));
    }
}
