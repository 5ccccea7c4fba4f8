// SPDX-License-Identifier: MIT OR Apache-2.0
//! Events for jobs that the driver drops or kills silently, and the register
//! writes to cores.

use std::time::Duration;

use npu_model::driver::Arena;
use npu_model::event::{Event, KillCause};
use rocket_uapi::sys;
use zerocopy::IntoBytes;

use crate::client::*;
use crate::script::Step;

fn kills(bench: &Bench) -> Vec<KillCause> {
    events_of!(bench, Event::JobKilled { cause, .. } => cause)
}

#[test]
fn a_dropped_job_has_its_reason() {
    type Spoil = fn(&mut sys::Job, &Arena);
    let cases: [(&str, Spoil); 11] = [
        ("no tasks", |job, _| job.task_count = 0),
        ("task_struct_size 7", |job, _| job.task_struct_size = 7),
        ("words", |job, arena| job.tasks = arena.push(&[0; 8])),
        ("task array", |job, _| job.tasks = 0),
        ("count", |job, _| job.task_count = u32::MAX),
        ("count", |job, _| job.in_bo_handle_count = u32::MAX),
        ("count", |job, _| job.out_bo_handle_count = u32::MAX),
        ("handles", |job, _| job.in_bo_handles = 0),
        ("handles", |job, _| job.out_bo_handles = 0),
        ("handle 77", |job, arena| {
            job.in_bo_handles = arena.push(77_u32.as_bytes());
        }),
        ("twice", |job, _| job.in_bo_handles = job.out_bo_handles),
    ];
    let (bench, client) = bench_and_client();
    for (reason, spoil) in cases {
        let arena = Arena::new();
        let outs = [client.page(), client.page()];
        let mut jobs = outs.map(|out| {
            let write = Step::Write(out.dma_address, 1);
            client.job(&[write], &[], &[out]).place(&arena)
        });
        spoil(&mut jobs[0], &arena);
        client.submit_placed(&jobs, &arena).unwrap();
        outs.iter().for_each(|&out| client.wait(out));
        let values = outs.map(|out| client.value(out, 0));
        assert_eq!(values, [0, 1], "{reason}: the next job runs");
        let drops = events_of!(bench, Event::JobDropped { index: 0, reason } => reason);
        assert!(drops.len() == 1 && drops[0].contains(reason), "{drops:?}");
    }
}

#[test]
fn dropping_the_device_does_not_wait_for_a_hang() {
    let bench = Bench::with(1, |options| options.hang_timeout = Duration::MAX);
    let client = bench.client();
    client.run(&[Step::Hang], &[], &[]);
    drop(client);
}

#[test]
fn the_time_limit_is_for_the_whole_job_in_device_time() {
    for (tasks, started, too_long) in [
        (&[450][..], 1, None),
        (&[250, 250], 2, None),
        (&[600], 1, Some(600)),
        (&[250, 250, 250, 1], 3, Some(750)),
    ] {
        let (bench, client) = bench_and_client();
        let out = client.page();
        let mut job = client.job(&[], &[], &[out]);
        let task = |&millis| client.job(&[Step::Takes(millis)], &[], &[]).tasks[0];
        job.tasks = tasks.iter().map(task).collect();
        client.submit(&[job]).unwrap();
        client.wait(out);
        assert_eq!(bench.stage.kicks().len(), started);
        let cause = too_long.map(|millis| KillCause::TooLong {
            device_time: Duration::from_millis(millis),
        });
        assert_eq!(kills(&bench), Vec::from_iter(cause));
    }
}

#[test]
fn interrupts_that_end_a_task() {
    let (bench, client) = bench_and_client();
    for (what, status, expected) in [
        ("DPU_0", 0x100, ""),
        ("DPU_1", 0x200, ""),
        ("DMA_READ_ERROR alone", 0x1000, "warned killed "),
        ("DPU_0 and DMA errors", 0x3100, "warned "),
        ("all the other blocks", 0xff, "killed "),
    ] {
        client.finish(&[Step::Raise(status)]);
        let told = events_of!(
            bench,
            Event::JobKilled { .. } => "killed ",
            Event::DmaErrorInterrupt { .. } => "warned "
        );
        assert_eq!(told.concat(), expected, "{what}");
    }
}

/// A program reaches only its own file.
#[test]
fn faults_and_hangs_have_their_place() {
    let bench = Bench::new(1);
    let (client, victim) = (bench.client(), bench.client());
    let target = [(); 8].map(|()| victim.page())[7];
    client.finish(&[Step::Write(target.dma_address, 0xbad)]);
    assert_eq!(victim.value(target, 0), 0);
    client.finish(&[Step::Hang]);
    assert_eq!(bench.stage.resets(), 1);
    let [fault, hang] = bench.model.events().try_into().unwrap();
    let write = "job 1, task 0, core 0: IOMMU fault: Write by DpuWrite at IOVA 0x00007000";
    assert_eq!(fault.to_string(), write);
    let killed = "job 2, task 0, core 0: killed, no interrupt; script-hang";
    assert!(hang.to_string().starts_with(killed), "{hang}");
}

#[test]
fn a_failure_of_the_model_kills_only_the_job() {
    let (bench, client) = bench_and_client();
    client.finish(&[Step::Panic]);
    assert_eq!(kills(&bench), [KillCause::ModelFailure]);
    client.finish(&[Step::Log(1)]);
    assert_eq!(bench.stage.order(), [1]);
}

#[test]
fn the_register_sequence_of_each_task() {
    let bench = Bench::new(2);
    let client = bench.client();
    let out = client.page();
    let mut job = client.job(&[], &[], &[out]);
    let regcmd = job.tasks[0].regcmd;
    job.tasks.push(sys::Task {
        regcmd,
        regcmd_count: 3,
    });
    // A lone file takes the other core each time.
    for _ in 0..2 {
        client.submit(std::slice::from_ref(&job)).unwrap();
        client.wait(out);
    }
    let kick = |core: u32, amount: u32| {
        vec![
            (0x0010, 1),
            (0x1004, 0xe | core << 28),
            (0x3004, 0xe | core << 28),
            (0x0010, regcmd),
            (0x0014, amount),
            (0x0020, 0x300),
            (0x0024, 0x300),
            (0x0030, 0x7001),
            (0x0034, 0),
            (0x0008, 1),
        ]
    };
    // Written at the interrupt of the task before: mask off, disabled, all
    // interrupts cleared.
    let second = |core| [vec![(0x20, 0), (0x08, 0), (0x24, 0x1_ffff)], kick(core, 1)].concat();
    let expected = [kick(0, 0), second(0), kick(1, 0), second(1)];
    assert_eq!(bench.stage.kicks(), expected);
}
