// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a wait says of jobs with every fate.
#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

mod common;

use common::{Event, Fate, Mock, RESULT, ends, in_place_job, job, long_job, soon};
use rocket_uapi::{Call, Deadline, Device, Error, FinishedJob, Job, WaitError};

fn run(mock: &Mock, make: impl Fn(&Device) -> Job) -> Result<FinishedJob, WaitError> {
    let device = mock.device();
    let pending = device.submit(vec![make(&device)]).unwrap().remove(0);
    pending.wait(soon())
}

/// A short job that may run twice, one that may not, and a long one.
fn short(device: &Device) -> Job {
    job(device)
}

fn in_place(device: &Device) -> Job {
    in_place_job(device, 0)
}

const KINDS: [fn(&Device) -> Job; 3] = [short, in_place, long_job];

/// The same where extents of long jobs take an interpreter too long.
fn kinds() -> &'static [fn(&Device) -> Job] {
    if cfg!(miri) { &KINDS[..2] } else { &KINDS }
}

#[test]
fn a_job_that_was_seen_and_ended_in_time_ran() {
    for make in kinds() {
        let mock = Mock::new(&[Fate::Runs]);
        let done = run(&mock, make).unwrap();
        assert_eq!(ends(&done.writes[0]), (RESULT, RESULT));
        assert_eq!(mock.submissions().len(), 1);
        assert_eq!(mock.exports(), 0);
    }
}

#[test]
fn a_short_job_has_the_witness_in_a_second_run_only() {
    for first in [Fate::RunsAtOnce, Fate::RunsLate, Fate::IsDropped] {
        for second in [Fate::Runs, Fate::RunsAtOnce, Fate::RunsLate] {
            let mock = Mock::new(&[first, second]);
            let done = run(&mock, short).unwrap();
            assert_eq!(ends(&done.writes[0]), (RESULT, RESULT));
            assert_eq!(mock.submissions(), [false, true], "{first:?}, {second:?}");
            assert_eq!(mock.exports(), 0);
        }
    }
}

#[test]
fn other_jobs_have_it_from_the_start_and_run_once() {
    for make in &kinds()[1..] {
        for fate in [Fate::Runs, Fate::RunsAtOnce, Fate::RunsLate] {
            let mock = Mock::new(&[fate]);
            let done = run(&mock, make).unwrap();
            assert_eq!(ends(&done.writes[0]), (RESULT, RESULT));
            assert_eq!(mock.submissions(), [true], "{fate:?}");
        }
    }
}

#[test]
fn a_dropped_job_is_dropped() {
    for make in kinds() {
        let mock = Mock::new(&[Fate::IsDropped; 2]);
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
        for make in kinds() {
            let mock = Mock::new(&[fate, fate]);
            let error = run(&mock, make).unwrap_err();
            assert!(matches!(error, WaitError::Killed { .. }), "{error}");
            assert_eq!(error.into_finished().unwrap().writes.len(), 1);
        }
        let mock = Mock::new(&[fate, Fate::Runs]);
        assert!(run(&mock, short).is_ok(), "the second run counts");
    }
}

#[test]
fn what_the_backend_knows_needs_no_second_run() {
    for make in kinds() {
        let mock = Mock::new(&[Fate::IsKilledForSure]);
        let error = run(&mock, make).unwrap_err();
        assert!(matches!(error, WaitError::Killed { .. }), "{error}");
        assert_eq!(mock.submissions().len(), 1);
    }
}

#[test]
fn dropped_or_killed_is_told_where_no_more_is_known() {
    for fate in [Fate::IsDroppedUnseen, Fate::IsKilledUnseen] {
        for make in kinds() {
            let mock = Mock::new(&[fate, fate]);
            let error = run(&mock, make).unwrap_err();
            assert!(
                matches!(error, WaitError::DroppedOrKilled { .. }),
                "{error}"
            );
            assert_eq!(error.into_finished().unwrap().writes.len(), 1);
        }
    }
}

/// A page serves many jobs, whether the witness ran in it or not.
#[test]
fn a_page_serves_again() {
    let mock = Mock::new(&[
        Fate::RunsAtOnce,
        Fate::RunsAtOnce,
        Fate::RunsAtOnce,
        Fate::IsDropped,
    ]);
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
    assert_eq!(creations(), before + 1);
    // What the witness left there in the first job proves nothing of this one.
    assert!(matches!(
        results.next().unwrap(),
        Err(WaitError::Dropped { .. })
    ));
    assert_eq!(creations(), before + 1);
    drop(results);
    drop(device);
    mock.assert_all_gone("pages too");
}

/// Fails the call that comes `after` calls after SUBMIT.
fn with_failure(after: usize, fates: &[Fate]) -> (Mock, Result<FinishedJob, WaitError>) {
    let mock = Mock::new(fates);
    let device = mock.device();
    let job = job(&device);
    // CREATE and FINI of the page, SUBMIT.
    mock.fail_at(3 + after);
    let pending = device.submit(vec![job]).unwrap().remove(0);
    let result = pending.wait(soon());
    (mock, result)
}

#[test]
fn a_look_that_fails_proves_nothing() {
    let (mock, result) = with_failure(0, &[Fate::Runs, Fate::Runs]);
    assert_eq!(ends(&result.unwrap().writes[0]), (RESULT, RESULT));
    assert_eq!(mock.submissions(), [false, true]);
}

#[test]
fn a_deadline_gives_the_job_back() {
    let mock = Mock::new(&[Fate::Hangs]);
    let device = mock.device();
    let pending = device.submit(vec![job(&device)]).unwrap().remove(0);
    let WaitError::TimedOut { job } = pending.wait(Deadline::NOW).unwrap_err() else {
        panic!("expected a timeout");
    };
    mock.release();
    assert_eq!(job.wait(soon()).unwrap().writes.len(), 1);
}

#[test]
fn a_second_run_that_fails_can_be_waited_for_again() {
    // The first look, PREP of the output; then FINI of the page, SUBMIT, the
    // second look, PREP of the output, PREP of the page.
    let calls = [
        (2, Call::FiniBo),
        (3, Call::Submit),
        (5, Call::PrepBo),
        (6, Call::PrepBo),
    ];
    for (after, failing) in calls {
        let (mock, result) = with_failure(after, &[Fate::RunsLate, Fate::Runs]);
        let error = result.unwrap_err();
        let WaitError::Device { source, job } = error else {
            panic!("{error:?}");
        };
        assert!(
            matches!(source, Error::Refused { call, .. } if call == failing),
            "{source}"
        );
        assert_eq!(ends(&job.wait(soon()).unwrap().writes[0]), (RESULT, RESULT));
        assert_eq!(mock.submissions(), [false, true], "{failing:?}");
    }
}
