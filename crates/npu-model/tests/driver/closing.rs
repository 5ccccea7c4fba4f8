// SPDX-License-Identifier: MIT OR Apache-2.0
//! What closing a file, and the end of its process, wait for and drop.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use npu_model::driver::{DriverBugs, DriverProfile, FenceState, JobCounts};
use npu_model::event::{Event, KillCause};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

use crate::client::*;
use crate::script::Step;

const GATE: u32 = 1;

/// A kernel whose processes wait so long for their queue when they end.
fn patient(exit_wait: Duration) -> Bench {
    let profile = DriverProfile {
        exit_wait,
        ..DriverProfile::default()
    };
    Bench::with_profile(1, profile, DriverBugs::NONE)
}

/// Jobs 1 to `count`, the first of which stops at the gate. They list their
/// programs: closing a file closes its handles before it waits.
fn queue(client: &Client, count: u32) -> Vec<Bo> {
    (1..=count)
        .map(|number| {
            let out = client.create(4096).unwrap();
            let mut script = vec![Step::Log { number }];
            if number == 1 {
                script.insert(0, Step::Wait { gate: GATE });
            }
            let program = client.program(&script);
            client
                .submit(&[JobSpec::new(&program, &[program.bo], &[out])])
                .unwrap();
            out
        })
        .collect()
}

fn numbers(bench: &Bench) -> Vec<u32> {
    bench
        .stage
        .log()
        .iter()
        .map(|(number, _)| *number)
        .collect()
}

#[test]
fn closing_waits_for_the_queue() {
    let bench = Bench::new(1);
    let client = bench.client();
    queue(&client, 3);
    bench.stage.await_arrival(GATE);
    std::thread::scope(|scope| {
        let closing = scope.spawn(move || drop(client));
        assert!(!closing.is_finished());
        bench.stage.open_gate(GATE);
        closing.join().unwrap();
    });
    // The last may still be in flight; another file's job is behind it.
    let other = bench.client();
    let out = other.create(4096).unwrap();
    other.run(&[Step::Log { number: 9 }], &[], &[out]);
    other.prep(out.handle, FOREVER).unwrap();
    assert_eq!(numbers(&bench), [1, 2, 3, 9]);
}

#[test]
fn a_process_that_ends_drops_its_queue_but_not_the_job_in_flight() {
    let bench = patient(Duration::ZERO);
    let client = bench.client();
    let outs = queue(&client, 3);
    let fences: Vec<_> = outs
        .iter()
        .map(|out| client.0.write_fence(out.handle).unwrap())
        .collect();
    bench.stage.await_arrival(GATE);
    client.kill();
    let state = |index: usize| fences[index].state();
    assert_eq!(state(1), FenceState::Active, "behind the one in flight");
    bench.stage.open_gate(GATE);

    let other = bench.client();
    let out = other.create(4096).unwrap();
    other.run(&[Step::Log { number: 9 }], &[], &[out]);
    other.prep(out.handle, FOREVER).unwrap();
    assert_eq!(numbers(&bench), [1, 9], "2 and 3 never ran");
    assert_eq!(state(0), FenceState::Signaled);
    for dropped in [1, 2] {
        assert_eq!(state(dropped), FenceState::Failed(Errno::SRCH));
    }
}

#[test]
fn a_process_that_ends_lets_its_queue_run_within_the_wait() {
    let bench = patient(Duration::from_secs(3600));
    let client = bench.client();
    queue(&client, 3);
    bench.stage.await_arrival(GATE);
    std::thread::scope(|scope| {
        let dying = scope.spawn(move || client.kill());
        assert!(!dying.is_finished());
        bench.stage.open_gate(GATE);
        dying.join().unwrap();
    });
    let other = bench.client();
    let out = other.create(4096).unwrap();
    other.run(&[Step::Log { number: 9 }], &[], &[out]);
    other.prep(out.handle, FOREVER).unwrap();
    assert_eq!(numbers(&bench), [1, 2, 3, 9]);
}

/// One that is killed while it waits for its queue waits no longer.
#[test]
fn a_process_that_is_killed_in_close_drops_its_queue() {
    let bench = patient(Duration::MAX);
    let client = bench.client();
    queue(&client, 3);
    bench.stage.await_arrival(GATE);
    // Alive at first, and then not: with the gate closed nothing else ends it.
    let asked = AtomicUsize::new(0);
    client.close_file(&|| asked.fetch_add(1, Ordering::Relaxed) > 2);
    bench.stage.open_gate(GATE);
    let other = bench.client();
    let out = other.create(4096).unwrap();
    other.run(&[Step::Log { number: 9 }], &[], &[out]);
    other.prep(out.handle, FOREVER).unwrap();
    assert_eq!(numbers(&bench), [1, 9]);
}

/// Its memory has gone with it: nothing is said of its programs.
#[test]
fn of_a_process_that_dies_in_a_job_only_that_is_told() {
    let hangs = |died: bool| {
        let bench = patient(Duration::ZERO);
        let client = bench.client();
        let out = client.create(4096).unwrap();
        // The first job ends, so that there is one that does not count.
        for last in [Step::Log { number: 1 }, Step::Hang, Step::Hang] {
            let nowhere = Step::Write {
                iova: 0x1000_0000,
                value: 1,
            };
            let wait = Step::Wait { gate: GATE };
            let script = match last {
                Step::Hang => vec![wait, nowhere, last],
                _ => vec![last],
            };
            let program = client.program(&script);
            client
                .submit(&[JobSpec::new(&program, &[program.bo], &[out])])
                .unwrap();
        }
        bench.stage.await_arrival(GATE);
        let before = bench.driver.jobs();
        assert_eq!((before.completed, before.unfinished), (1, 2));
        if died {
            assert_eq!(client.close_file(&|| true), 2);
            bench.stage.open_gate(GATE);
        } else {
            bench.stage.open_gate(GATE);
            assert_eq!(client.close_file(&|| false), 0);
        }
        bench.driver.wait_until_idle(Duration::MAX);
        (bench.driver.jobs(), bench.driver.take_events())
    };
    let ended = JobCounts {
        completed: 1,
        ..JobCounts::default()
    };
    let (jobs, events) = hangs(true);
    assert_eq!(
        jobs,
        JobCounts {
            killed: 1,
            lost: 1,
            ..ended
        }
    );
    let told: Vec<_> = events
        .iter()
        .filter(|event| !matches!(event, Event::KernelBug { .. }))
        .collect();
    let [
        Event::JobKilled {
            cause: KillCause::ClientDied,
            diagnosis,
            ..
        },
    ] = told[..]
    else {
        unreachable!("{told:?}");
    };
    assert_eq!(diagnosis, &[]);
    // And of one that lives all is told.
    let (jobs, events) = hangs(false);
    assert_eq!(jobs, JobCounts { killed: 2, ..ended });
    assert!(
        events
            .iter()
            .any(|event| matches!(event, Event::Fault { .. }))
    );
    let diagnosed = |event: &Event| matches!(event, Event::JobKilled { cause: KillCause::Hang, diagnosis, .. } if !diagnosis.is_empty());
    assert_eq!(events.iter().filter(|event| diagnosed(event)).count(), 2);
}

/// What depends on a dropped job runs.
#[cfg(not(miri))]
#[test]
fn a_dropped_job_does_not_block_others() {
    use std::os::fd::AsRawFd;
    let bench = patient(Duration::ZERO);
    let (client, other) = (bench.client(), bench.client());
    let outs = queue(&client, 2);
    let dma_buf = client.0.prime_export(outs[1].handle).unwrap();
    let shared = other.0.prime_import(dma_buf.as_raw_fd()).unwrap();
    bench.stage.await_arrival(GATE);
    let out = other.create(4096).unwrap();
    let program = other.program(&[Step::Log { number: 9 }]);
    let mut job = JobSpec::new(&program, &[], &[out]);
    job.reads.push(shared);
    other.submit(&[job]).unwrap();
    client.kill();
    bench.stage.open_gate(GATE);
    other.prep(out.handle, FOREVER).unwrap();
    assert_eq!(numbers(&bench), [1, 9]);
}

/// close() leaves the file open behind its mappings.
#[test]
fn a_mapping_keeps_the_file() {
    let bench = Bench::new(1);
    let client = bench.client();
    let kept = client.create(4096).unwrap();
    let flags = (ProtFlags::READ, MapFlags::SHARED);
    let mapping = client.0.mmap(kept.offset, 4096, flags.0, flags.1).unwrap();
    let other_bo = client.create(4096).unwrap();
    drop(client);
    let other = bench.client();
    let next = other.create(4096).unwrap();
    assert!(next.offset > other_bo.offset, "nothing was released");
    drop(mapping);
    let again = other.create(4096).unwrap();
    assert!([kept.offset, other_bo.offset].contains(&again.offset));
}

/// GEM_CLOSE leaves everything but the handle until munmap.
#[test]
fn a_mapping_keeps_its_object() {
    let bench = Bench::new(1);
    let client = bench.client();
    let bo = client.create(4096).unwrap();
    let mapping = client.map(bo);
    client.close(bo.handle).unwrap();
    let next = client.create(4096).unwrap();
    assert_eq!(next.handle, bo.handle);
    assert_ne!((next.iova, next.offset), (bo.iova, bo.offset));
    client.run(
        &[Step::Write {
            iova: bo.iova,
            value: 5,
        }],
        &[],
        &[next],
    );
    client.prep(next.handle, FOREVER).unwrap();
    let mut bytes = [0; 4];
    read(&mapping, 0, &mut bytes);
    assert_eq!(bytes, 5u32.to_le_bytes(), "the NPU still sees it");
    drop(mapping);
    let last = client.create(4096).unwrap();
    assert_eq!((last.iova, last.offset), (bo.iova, bo.offset));
}
