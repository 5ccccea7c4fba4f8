// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a wait says of jobs with every fate.
#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

mod common;

use common::{C_BYTES, Fate, Mock, RESULT, ends, in_place_job, job, long_job, soon};
use rocket_uapi::{Call, Deadline, Device, Doubt, Errno, Error, FinishedJob, Job, WaitError};

fn run(mock: &Mock, make: impl Fn(&Device) -> Job) -> Result<FinishedJob, WaitError> {
    let device = mock.device();
    let pending = device.submit(vec![make(&device)]).unwrap().remove(0);
    pending.wait(soon())
}

#[test]
fn a_job_seen_running_ran() {
    let mock = Mock::new(&[Fate::Runs]);
    let done = run(&mock, job).unwrap();
    assert_eq!((done.reads.len(), done.writes.len()), (1, 1));
    assert_eq!(ends(&done.writes[0]), (RESULT, RESULT));
    assert_eq!(mock.submissions(), 1);
}

#[test]
fn a_quick_job_is_known_by_its_canary() {
    let mock = Mock::new(&[Fate::RunsAtOnce]);
    let done = run(&mock, job).unwrap();
    assert_eq!(ends(&done.writes[0]), (RESULT, RESULT));
    assert_eq!(mock.submissions(), 1);
    let found = mock.seen(0);
    assert_ne!(found[C_BYTES - 16..C_BYTES], [0x11; 16], "the canary");
    assert_eq!(found[..C_BYTES - 16], [0x11; C_BYTES - 16]);
}

#[test]
fn a_result_that_equals_the_canary_is_told_by_the_second() {
    let fate = Fate::RunsAtOnceAndLeavesTheFirstCanary;
    let mock = Mock::new(&[fate, fate]);
    let done = run(&mock, job).unwrap();
    assert_eq!(mock.submissions(), 2);
    let (first, second) = (mock.seen(0), mock.seen(1));
    let atom = C_BYTES - 16..C_BYTES;
    let differ = |(a, b): (&u8, &u8)| a != b;
    assert!(
        first[atom.clone()]
            .iter()
            .zip(&second[atom.clone()])
            .all(differ)
    );
    let bytes = done.writes[0].read(soon()).unwrap();
    assert_eq!(bytes[atom.clone()], first[atom]);
}

#[test]
fn a_dropped_job_is_run_again_and_its_second_run_counts() {
    let mock = Mock::new(&[Fate::IsDropped, Fate::RunsAtOnce]);
    assert_eq!(ends(&run(&mock, job).unwrap().writes[0]), (RESULT, RESULT));
    assert_eq!(mock.submissions(), 2);
}

#[test]
fn a_job_dropped_twice_is_dropped() {
    let mock = Mock::new(&[Fate::IsDropped, Fate::IsDropped]);
    let error = run(&mock, job).unwrap_err();
    assert!(error.to_string().contains("canary"), "{error}");
    let WaitError::Dropped { job } = error else {
        panic!("{error:?}");
    };
    assert_eq!(ends(&job.writes[0]), (0x11, 0x11), "no canary is left");
    assert_eq!((job.reads.len(), mock.submissions()), (1, 2));
}

/// A canary costs a pass over the output's caches, and long jobs are seen
/// running.
#[test]
#[cfg_attr(miri, ignore = "the extents of a long job take an interpreter minutes")]
fn a_long_job_has_a_canary_only_if_it_looks_dropped() {
    let mock = Mock::new(&[Fate::Runs]);
    let done = run(&mock, long_job).unwrap();
    assert_eq!(ends(&done.writes[0]), (RESULT, RESULT));
    assert!(mock.seen(0).iter().all(|&byte| byte == 0x11));

    // A backend that knows of the job saves the second run.
    let mock = Mock::new(&[Fate::RunsAtOnceAndIsNew]);
    let done = run(&mock, long_job).unwrap();
    assert_eq!(ends(&done.writes[0]), (RESULT, RESULT));
    assert_eq!(mock.submissions(), 1);

    for first in [Fate::RunsAtOnce, Fate::IsDropped] {
        let mock = Mock::new(&[first, Fate::RunsAtOnce]);
        let done = run(&mock, long_job).unwrap();
        assert_eq!(ends(&done.writes[0]), (RESULT, RESULT));
        assert_eq!(mock.submissions(), 2, "{first:?}");
        assert!(mock.seen(0).iter().all(|&byte| byte == mock.seen(0)[0]));
        assert_ne!(mock.seen(1)[C_BYTES - 16], mock.seen(1)[0], "a canary");
    }
}

#[test]
#[cfg_attr(miri, ignore = "the extents of a long job take an interpreter minutes")]
fn a_long_job_that_is_dropped_each_time_is_dropped() {
    let mock = Mock::new(&[Fate::IsDropped; 3]);
    let WaitError::Dropped { job } = run(&mock, long_job).unwrap_err() else {
        panic!("it never ran");
    };
    assert_eq!(ends(&job.writes[0]), (0x11, 0x11), "no canary is left");
    assert_eq!(mock.submissions(), 3);
    let atom = |run| mock.seen(run)[C_BYTES - 16..C_BYTES].to_vec();
    assert!(atom(1) != atom(0) && atom(2) != atom(0) && atom(1) != atom(2));
}

#[test]
fn a_killed_job_is_known_by_its_fence() {
    for fates in [
        &[Fate::IsKilled][..],
        &[Fate::IsDropped, Fate::IsKilled],
        // Its fence had gone by the time of the export: the second run tells.
        &[Fate::IsKilledUnseen, Fate::IsKilled],
    ] {
        for make in [job, long_job] {
            let mock = Mock::new(fates);
            let WaitError::Killed { errno, job } = run(&mock, make).unwrap_err() else {
                panic!("{fates:?}");
            };
            assert_eq!(errno, Errno::CANCELED);
            assert_eq!(ends(&job.writes[0]), (0x11, 0x11));
            assert_eq!(mock.submissions(), fates.len());
        }
    }
}

#[test]
fn work_in_place_is_never_run_twice() {
    let mock = Mock::new(&[Fate::IsDropped]);
    let error = run(&mock, |device| in_place_job(device, 0)).unwrap_err();
    let WaitError::Undecided { doubt, job } = error else {
        panic!("{error:?}");
    };
    assert_eq!(doubt, Doubt::NotRepeatable);
    assert_eq!((job.writes.len(), mock.submissions()), (1, 1));
    assert!(run(&Mock::new(&[Fate::RunsAtOnce]), |d| in_place_job(d, 0)).is_ok());
    assert!(run(&Mock::new(&[Fate::Runs]), |d| in_place_job(d, 0)).is_ok());
}

/// The last atom of the output is input: a canary there would be computed with.
#[test]
fn input_is_never_replaced_by_a_canary() {
    let last = (C_BYTES - common::A_BYTES) as u32;
    let mock = Mock::new(&[Fate::RunsAtOnce]);
    let error = run(&mock, |device| in_place_job(device, last)).unwrap_err();
    let WaitError::Undecided { doubt, .. } = error else {
        panic!("{error:?}");
    };
    assert_eq!(doubt, Doubt::NoCanary);
    assert_eq!(
        mock.seen(0)[..C_BYTES],
        [0x11; C_BYTES],
        "as the CPU left it"
    );
    assert!(run(&Mock::new(&[Fate::Runs]), |d| in_place_job(d, last)).is_ok());
}

/// Fails the call that comes `after` calls after SUBMIT.
fn with_failure(after: usize, fates: &[Fate], in_place: bool) -> Result<FinishedJob, WaitError> {
    let mock = Mock::new(fates);
    let device = mock.device();
    let job = if in_place {
        in_place_job(&device, 0)
    } else {
        job(&device)
    };
    // FINI of the canary, SUBMIT.
    mock.fail_at(2 + after);
    let pending = device.submit(vec![job]).unwrap().remove(0);
    pending.wait(soon())
}

#[test]
fn a_fence_that_cannot_be_had_is_no_end_of_the_job() {
    // 0: the export fails, 1: the fence does not answer.
    for after in 0..2 {
        let done = with_failure(after, &[Fate::RunsAtOnce, Fate::RunsAtOnce], false);
        assert_eq!(ends(&done.unwrap().writes[0]), (RESULT, RESULT));
        let error = with_failure(after, &[Fate::RunsAtOnce], true).unwrap_err();
        let WaitError::Undecided { doubt, job } = error else {
            panic!("{error:?}");
        };
        assert!(
            matches!(doubt, Doubt::NoFence(Error::Refused { .. })),
            "{doubt}"
        );
        assert_eq!(job.writes.len(), 1);
    }
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
fn a_second_run_that_is_refused_can_be_waited_for_again() {
    for make in [job, long_job] {
        let mock = Mock::new(&[Fate::IsDropped, Fate::RunsAtOnce]);
        let device = mock.device();
        let pending = device.submit(vec![make(&device)]).unwrap().remove(0);
        // PREP, status, the next canary's FINI, SUBMIT.
        mock.fail_at(3);
        let error = pending.wait(soon()).unwrap_err();
        let WaitError::Device { source, job } = error else {
            panic!("{error:?}");
        };
        assert!(
            matches!(
                source,
                Error::Refused {
                    call: Call::Submit,
                    ..
                }
            ),
            "{source}"
        );
        assert_eq!(ends(&job.wait(soon()).unwrap().writes[0]), (RESULT, RESULT));
    }
}
