// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a wait says of jobs with every fate.
#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

mod common;

use common::{Event, Fate, Mock, RESULT, ends, in_place_job, job, soon};
use rocket_uapi::{Call, Deadline, Device, Error, FinishedJob, Job, WaitError};

fn run(mock: &Mock, make: impl Fn(&Device) -> Job) -> Result<FinishedJob, WaitError> {
    let device = mock.device();
    let pending = device.submit(vec![make(&device)]).unwrap().remove(0);
    pending.wait(soon())
}

/// A job that reads other buffers than it writes, and one that works in place.
const KINDS: [fn(&Device) -> Job; 2] = [job, |device| in_place_job(device, 0)];

/// However quick or late it was: the witness is the proof, and no job runs twice.
#[test]
fn a_job_whose_witness_ran_ran() {
    for make in KINDS {
        for fate in [Fate::Runs, Fate::RunsAtOnce, Fate::RunsLate] {
            let mock = Mock::new(&[fate]);
            let done = run(&mock, make).unwrap();
            assert_eq!(ends(&done.writes[0]), (RESULT, RESULT), "{fate:?}");
            assert_eq!(mock.submissions(), 1, "{fate:?}");
            assert_eq!(mock.exports(), 0);
        }
    }
}

#[test]
fn a_dropped_job_is_dropped() {
    for make in KINDS {
        let mock = Mock::new(&[Fate::IsDropped]);
        let WaitError::Dropped { job } = run(&mock, make).unwrap_err() else {
            panic!("it never ran");
        };
        assert_eq!(job.writes.len(), 1);
        // Only in place there is not more that it reads.
        assert!(job.reads.len() <= 1);
    }
}

/// Neither intact output nor one that is all written hides a kill.
#[test]
fn a_killed_job_is_killed_however_far_it_came() {
    for fate in [Fate::IsKilled, Fate::IsKilledAtItsEnd] {
        for make in KINDS {
            let mock = Mock::new(&[fate]);
            let error = run(&mock, make).unwrap_err();
            assert!(matches!(error, WaitError::Killed { .. }), "{error}");
            assert_eq!(error.into_finished().unwrap().writes.len(), 1);
        }
    }
}

#[test]
fn a_kill_that_the_backend_knows_of_is_a_kill() {
    for make in KINDS {
        let mock = Mock::new(&[Fate::IsKilledForSure]);
        let error = run(&mock, make).unwrap_err();
        assert!(matches!(error, WaitError::Killed { .. }), "{error}");
    }
}

#[test]
fn dropped_or_killed_is_told_where_no_more_is_known() {
    for fate in [Fate::IsDroppedUnseen, Fate::IsKilledUnseen] {
        for make in KINDS {
            let mock = Mock::new(&[fate]);
            let error = run(&mock, make).unwrap_err();
            assert!(
                matches!(error, WaitError::DroppedOrKilled { .. }),
                "{error}"
            );
            assert_eq!(error.into_finished().unwrap().writes.len(), 1);
        }
    }
}

/// A page serves many jobs, and so do the operands of its witness.
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
        let pending = device.submit(vec![job]).unwrap().remove(0);
        pending.wait(soon())
    });
    assert!(results.next().unwrap().is_ok());
    assert_eq!(creations(), before + 2);
    // What the witness left there in the first job proves nothing of this one.
    assert!(matches!(
        results.next().unwrap(),
        Err(WaitError::Dropped { .. })
    ));
    assert_eq!(creations(), before + 2);
    drop(results);
    drop(device);
    mock.assert_all_gone("pages too");
}

/// Fails the call that comes `after` calls after SUBMIT.
fn with_failure(after: usize, fates: &[Fate]) -> (Mock, Result<FinishedJob, WaitError>) {
    let mock = Mock::new(fates);
    let device = mock.device();
    let job = job(&device);
    // CREATE and FINI of the witness's operands and of the page, SUBMIT.
    mock.fail_at(5 + after);
    let pending = device.submit(vec![job]).unwrap().remove(0);
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
    let pending = device.submit(vec![job(&device)]).unwrap().remove(0);
    let WaitError::TimedOut { job } = pending.wait(Deadline::NOW).unwrap_err() else {
        panic!("expected a timeout");
    };
    // As the driver's timeout does.
    mock.release();
    assert!(matches!(job.wait(soon()), Err(WaitError::Killed { .. })));
}

#[test]
fn a_wait_that_fails_can_be_repeated() {
    // The look, PREP of the output, PREP of the page.
    for after in [1, 2] {
        let (_, result) = with_failure(after, &[Fate::RunsLate]);
        let error = result.unwrap_err();
        let WaitError::Device { source, job } = error else {
            panic!("{error:?}");
        };
        assert!(
            matches!(source, Error::Refused { call, .. } if call == Call::PrepBo),
            "{source}"
        );
        assert_eq!(ends(&job.wait(soon()).unwrap().writes[0]), (RESULT, RESULT));
    }
}
