// SPDX-License-Identifier: MIT OR Apache-2.0
//! Jobs that hang, take too long, or end oddly.

use std::time::Duration;

use npu_model::driver::FenceState;
use npu_model::event::{Event, KillCause};
use rustix::io::Errno;

use crate::client::*;
use crate::script::Step;

fn kills(bench: &Bench) -> Vec<KillCause> {
    let cause = |event: &Event| match event {
        Event::JobKilled { cause, .. } => Some(*cause),
        _ => None,
    };
    bench.driver.events().iter().filter_map(cause).collect()
}

#[test]
fn a_hang_ends_in_a_reset_and_prep_returns_zero() {
    let bench = Bench::new(1);
    let client = bench.client();
    let out = client.create(4096).unwrap();
    client.run(&[Step::Hang], &[], &[out]);
    let fence = client.0.write_fence(out.handle).unwrap();
    assert_eq!(client.prep(out.handle, FOREVER), Ok(()));
    assert_eq!(client.value(out), 0);
    assert_eq!(fence.state(), FenceState::Failed(Errno::CANCELED));
    assert_eq!(bench.stage.resets(), [0]);
    let events = bench.driver.events();
    let [
        Event::JobKilled {
            diagnosis, place, ..
        },
    ] = &events[..]
    else {
        panic!("{events:?}");
    };
    assert_eq!(diagnosis[0].trap, "script-hang");
    assert_eq!((place.job, place.core, place.task), (1, 0, 0));
    assert!(
        events[0].to_string().contains("script-hang"),
        "{}",
        events[0]
    );
}

#[test]
fn a_kill_is_visible_to_a_late_export_once() {
    let bench = Bench::new(1);
    let client = bench.client();
    let out = client.create(4096).unwrap();
    client.run(&[Step::Hang], &[], &[out]);
    client.prep(out.handle, FOREVER).unwrap();
    let late = client.0.write_fence(out.handle).unwrap();
    assert_eq!(late.state(), FenceState::Failed(Errno::CANCELED));
    let later = client.0.write_fence(out.handle).unwrap();
    assert_eq!(later.state(), FenceState::Signaled);
}

#[test]
fn a_hang_holds_its_core_until_the_time_limit() {
    let bench = Bench::with_hang_timeout(1, Duration::from_secs(3600));
    let client = bench.client();
    let out = client.create(4096).unwrap();
    client.run(&[Step::Hang], &[], &[out]);
    assert_eq!(client.prep_a_moment(out.handle), Err(Errno::TIMEDOUT));
}

#[test]
fn what_waits_for_a_hung_job_runs_as_if_nothing_had_been() {
    let bench = Bench::new(1);
    let client = bench.client();
    let (out, dependent) = (client.create(4096).unwrap(), client.create(4096).unwrap());
    client.run(&[Step::Hang], &[], &[out]);
    let write = Step::Write {
        iova: dependent.iova,
        value: 4,
    };
    client.run(&[write], &[out], &[dependent]);
    client.prep(dependent.handle, FOREVER).unwrap();
    assert_eq!(client.value(dependent), 4);
    assert_eq!(client.prep(out.handle, 0), Ok(()));
}

#[test]
fn the_time_limit_is_for_the_whole_job_in_device_time() {
    let bench = Bench::new(1);
    let client = bench.client();
    let run = |tasks: &[u32]| {
        let out = client.create(4096).unwrap();
        let programs: Vec<_> = tasks
            .iter()
            .enumerate()
            .map(|(index, &millis)| {
                let value = index as u32 + 1;
                let iova = out.iova;
                client.program(&[Step::Takes { millis }, Step::Write { iova, value }])
            })
            .collect();
        let job = JobSpec {
            tasks: programs.iter().map(Program::task).collect(),
            reads: vec![],
            writes: vec![out.handle],
        };
        client.submit(&[job]).unwrap();
        let fence = client.0.write_fence(out.handle).unwrap();
        assert_eq!(client.prep(out.handle, FOREVER), Ok(()));
        (client.value(out), fence.state() == FenceState::Signaled)
    };
    assert_eq!(run(&[450]), (1, true));
    let (_, completed) = run(&[600]);
    assert!(!completed);
    let (last, completed) = run(&[250, 250, 250, 1]);
    assert!(!completed);
    assert!(last < 4, "the last task never started");
    assert_eq!(run(&[250, 250]), (2, true));
    let device_time = |millis| Duration::from_millis(millis);
    assert_eq!(
        kills(&bench),
        [
            KillCause::TooLong {
                device_time: device_time(600)
            },
            KillCause::TooLong {
                device_time: device_time(750)
            }
        ]
    );
}

#[test]
fn what_counts_as_the_interrupt_of_a_task() {
    let bench = Bench::new(1);
    let client = bench.client();
    let completes = |status: u32| {
        let out = client.create(4096).unwrap();
        client.run(&[Step::Raise { status }], &[], &[out]);
        client.prep(out.handle, FOREVER).unwrap();
        let events = bench.driver.take_events();
        let killed = events.iter().any(|e| matches!(e, Event::JobKilled { .. }));
        let warned = events
            .iter()
            .any(|e| matches!(e, Event::DmaErrorInterrupt { .. }));
        (!killed, warned)
    };
    assert_eq!(completes(0x100), (true, false), "DPU_0");
    assert_eq!(completes(0x200), (true, false), "DPU_1");
    assert_eq!(completes(0x1000), (false, true), "DMA_READ_ERROR alone");
    assert_eq!(completes(0x3100), (true, true), "DPU_0 and DMA errors");
    assert_eq!(completes(0xff), (false, false), "all the other blocks");
}

#[test]
fn a_fault_names_address_direction_and_place() {
    let bench = Bench::new(1);
    let client = bench.client();
    let out = client.create(4096).unwrap();
    let wild = 0x7000_0000;
    client.run(
        &[Step::Write {
            iova: wild,
            value: 1,
        }],
        &[],
        &[out],
    );
    client.prep(out.handle, FOREVER).unwrap();
    let text = bench.driver.events()[0].to_string();
    for part in ["0x70000000", "Write", "DpuWrite", "core 0", "job 1"] {
        assert!(text.contains(part), "{part} in {text}");
    }
}

/// Another file's buffer objects are out of reach.
#[test]
fn a_program_sees_only_its_own_file() {
    let bench = Bench::new(1);
    let (client, victim) = (bench.client(), bench.client());
    let secret = victim.create(4096).unwrap();
    for _ in 0..4 {
        victim.create(4096).unwrap();
    }
    let target = victim.create(4096).unwrap();
    let out = client.create(4096).unwrap();
    let write = Step::Write {
        iova: target.iova,
        value: 0xbad,
    };
    client.run(&[write], &[], &[out]);
    client.prep(out.handle, FOREVER).unwrap();
    assert!(matches!(bench.driver.events()[..], [Event::Fault { .. }]));
    assert_eq!((victim.value(target), victim.value(secret)), (0, 0));
}

#[test]
fn a_failure_of_the_model_kills_only_the_job() {
    let bench = Bench::new(1);
    let client = bench.client();
    let out = client.create(4096).unwrap();
    client.run(&[Step::Panic], &[], &[out]);
    assert_eq!(client.prep(out.handle, FOREVER), Ok(()));
    assert_eq!(kills(&bench), [KillCause::ModelFailure]);
    let write = Step::Write {
        iova: out.iova,
        value: 6,
    };
    client.run(&[write], &[], &[out]);
    client.prep(out.handle, FOREVER).unwrap();
    assert_eq!(client.value(out), 6);
}

#[test]
fn dropping_the_device_does_not_wait_for_a_hang() {
    let bench = Bench::with_hang_timeout(1, Duration::MAX);
    let client = bench.client();
    client.run(&[Step::Hang], &[], &[]);
    drop(client);
    drop(bench);
}
