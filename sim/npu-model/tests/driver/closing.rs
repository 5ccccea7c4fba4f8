// SPDX-License-Identifier: MIT OR Apache-2.0
//! Closing a file, and the end of its process: what they wait for and drop.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use npu_model::driver::JobCounts;
use npu_model::event::{Event, KillCause};
use rocket_uapi::{FenceStatus, write_fence};
use rustix::io::Errno;

use crate::client::*;
use crate::script::Step;

const GATE: u32 = 1;

/// A kernel in which an ending process waits `exit_wait` for its queue.
fn patient(exit_wait: Duration) -> Bench {
    Bench::with(1, |options| options.driver.exit_wait = exit_wait)
}

/// Queues jobs 1 to 3. The first waits at the gate.
fn queue(bench: &Bench, client: &Client) -> [Bo; 3] {
    let outs = [1, 2, 3].map(|number| {
        let out = client.page();
        let script = [Step::Wait(GATE), Step::Log(number)];
        let skipped = usize::from(number > 1);
        client.run(&script[skipped..], &[], &[out]);
        out
    });
    bench.stage.await_arrival(GATE);
    outs
}

#[test]
fn the_queue_of_a_process_that_lives_is_waited_for() {
    for (exit_wait, lives_for, ran) in [
        (Duration::ZERO, usize::MAX, 3),
        // It is ending: its queue has `exit_wait`.
        (Duration::from_secs(3600), 0, 3),
        (Duration::ZERO, 0, 1),
        // It is killed while it waits. The gate is closed, so nothing else ends the
        // wait.
        (Duration::MAX, 3, 1),
    ] {
        let bench = patient(exit_wait);
        let client = bench.client();
        let outs = queue(&bench, &client);
        let fences = outs.map(|out| write_fence(&client.file, out.handle).unwrap());
        let asked = AtomicUsize::new(0);
        let is_ending = || asked.fetch_add(1, Ordering::Relaxed) >= lives_for;
        thread::scope(|scope| {
            let closing = scope.spawn(|| client.end(&is_ending));
            if ran == 3 {
                assert!(!closing.is_finished());
            } else {
                closing.join().unwrap();
                // The fences fail in order, after the job in flight.
                assert_eq!(fences[1].status().unwrap(), FenceStatus::Active);
            }
            bench.stage.open_gate(GATE);
        });
        bench.log_behind(9);
        assert_eq!(bench.stage.order(), [&[1, 2, 3][..ran], &[9]].concat());
        for (index, fence) in fences.iter().enumerate() {
            let expected = if index < ran {
                FenceStatus::Signaled
            } else {
                FenceStatus::Failed(Errno::SRCH)
            };
            assert_eq!(fence.status().unwrap(), expected, "{index}");
        }
    }
}

/// The job's memory is gone with the process, so no fault is reported.
#[test]
fn a_process_that_dies_in_a_job_is_one_event() {
    for died in [true, false] {
        let bench = patient(Duration::ZERO);
        let client = bench.client();
        client.finish(&[Step::Log(1)]);
        for _ in 0..2 {
            let nowhere = Step::Write(0x1000_0000, 1);
            client.run(&[Step::Wait(GATE), nowhere, Step::Hang], &[], &[]);
        }
        bench.stage.await_arrival(GATE);
        let before = bench.model.jobs();
        assert_eq!((before.completed, before.unfinished), (1, 2));
        if died {
            assert_eq!(client.end(&|| true), 2);
            bench.stage.open_gate(GATE);
        } else {
            bench.stage.open_gate(GATE);
            assert_eq!(client.end(&|| false), 0);
        }
        bench.model.wait_until_idle(Duration::MAX);
        let (killed, lost) = if died { (1, 1) } else { (2, 0) };
        let counts = JobCounts {
            completed: 1,
            killed,
            lost,
            unfinished: 0,
        };
        assert_eq!(bench.model.jobs(), counts);
        let told = events_of!(
            bench,
            Event::JobKilled { cause, diagnosis, .. } => (Some(cause), diagnosis.len()),
            Event::Fault { .. } => (None, 0)
        );
        let expected = if died {
            vec![(Some(KillCause::ClientDied), 0)]
        } else {
            [(None, 0), (Some(KillCause::Hang), 1)].repeat(2)
        };
        assert_eq!(told, expected);
    }
}

/// A job that depends on a dropped job runs.
#[test]
fn a_dropped_job_does_not_block_others() {
    let bench = patient(Duration::ZERO);
    let (client, other) = (bench.client(), bench.client());
    let [_, second, _] = queue(&bench, &client);
    let shared = other.imported(&client.dma_buf(second));
    let out = other.page();
    other.run(&[Step::Log(9)], &[shared], &[out]);
    client.end(&|| true);
    bench.stage.open_gate(GATE);
    other.wait(out);
    assert_eq!(bench.stage.order(), [1, 9]);
}
