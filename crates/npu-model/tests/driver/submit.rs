// SPDX-License-Identifier: MIT OR Apache-2.0
//! SUBMIT: what it refuses, what it drops without a word, what it runs.

use npu_model::driver::Arena;
use rustix::io::Errno;

use crate::client::*;
use crate::script::Step;

/// A job that writes 1 to its own buffer object.
fn marker(client: &Client) -> (JobSpec, Bo) {
    let out = client.create(4096).unwrap();
    let program = client.program(&[Step::Write {
        iova: out.iova,
        value: 1,
    }]);
    (JobSpec::new(&program, &[], &[out]), out)
}

#[test]
fn errors_of_the_whole_call() {
    let bench = Bench::new(1);
    let client = bench.client();
    let arena = Arena::new();
    let (job, out) = marker(&client);
    let at = arena.push(&job.place(&arena));
    let submit = |jobs, count, stride, reserved| {
        client
            .raw_with(
                SUBMIT,
                &mut submit_bytes(jobs, count, stride, reserved),
                &arena,
            )
            .map(drop)
    };
    assert_eq!(submit(at, 0, 40, 0), Ok(()), "nothing to do");
    assert_eq!(submit(0, 0, 0, 1), Ok(()), "nothing is checked then");
    assert_eq!(submit(at, 1, 40, 1), Err(Errno::INVAL));
    assert_eq!(submit(at, 1, 39, 0), Err(Errno::INVAL));
    assert_eq!(submit(at, 1, 0, 0), Err(Errno::INVAL));
    assert_eq!(submit(0, 1, 40, 0), Err(Errno::FAULT));
    assert_eq!(submit(at, 1000, 40, 0), Err(Errno::FAULT), "the array ends");
    assert_eq!(submit(u64::MAX - 8, 2, 40, 0), Err(Errno::FAULT));
    assert_eq!(submit(at, u32::MAX, 40, 0), Err(Errno::NOMEM));
    client.prep(out.handle, FOREVER).unwrap();
    assert_eq!(client.value(out), 0, "no part of a failed call runs");
    assert_eq!(submit(at, 1, 40, 0), Ok(()));
    client.prep(out.handle, FOREVER).unwrap();
    assert_eq!(client.value(out), 1);
}

#[test]
fn each_error_of_a_job_drops_that_job_alone() {
    let bench = Bench::new(1);
    let client = bench.client();
    type Spoil = fn(&mut [u8; 40], &Arena);
    let cases: [(&str, Spoil); 11] = [
        ("no tasks", |job, _| job[24..28].fill(0)),
        ("task_struct_size 7", |job, _| job[28] = 7),
        ("command words", |job, arena| {
            job[0..8].copy_from_slice(&arena.push(&[0; 8]).to_le_bytes());
        }),
        ("task array", |job, _| job[0..8].fill(0)),
        ("count", |job, _| job[24..28].fill(0xff)),
        ("count", |job, _| job[32..36].fill(0xff)),
        ("count", |job, _| job[36..40].fill(0xff)),
        ("handles", |job, _| job[16..24].fill(0)),
        ("handle 0", |job, arena| {
            job[16..24].copy_from_slice(&arena.push(&[0; 4]).to_le_bytes());
        }),
        ("handle 77", |job, arena| {
            job[8..16].copy_from_slice(&arena.push(&[77, 0, 0, 0]).to_le_bytes());
            job[32] = 1;
        }),
        ("handles", |job, _| {
            job[8..16].fill(0);
            job[32] = 1;
        }),
    ];
    for (reason, spoil) in cases {
        let arena = Arena::new();
        let (bad, untouched) = marker(&client);
        let (good, out) = marker(&client);
        let mut bytes = bad.place(&arena);
        spoil(&mut bytes, &arena);
        let array = [bytes, good.place(&arena)].concat();
        let at = arena.push(&array);
        let mut arg = submit_bytes(at, 2, 40, 0);
        assert_eq!(client.raw_with(SUBMIT, &mut arg, &arena), Ok(0), "{reason}");
        client.prep(out.handle, FOREVER).unwrap();
        assert_eq!(client.prep(untouched.handle, FOREVER), Ok(()), "{reason}");
        assert_eq!(client.value(out), 1, "{reason}: the next job runs");
        assert_eq!(client.value(untouched), 0, "{reason}: this one does not");
        let drops = bench.drops();
        assert_eq!(drops.len(), 1, "{reason}");
        assert!(drops[0].contains(reason), "{reason}: {drops:?}");
    }
}

#[test]
fn a_buffer_object_listed_twice_drops_the_job() {
    let bench = Bench::new(1);
    let client = bench.client();
    let spoils: [fn(&mut JobSpec); 3] = [
        |job| job.writes.push(job.writes[0]),
        |job| job.reads.extend([job.writes[0] + 1; 2]),
        |job| job.reads.push(job.writes[0]),
    ];
    for spoil in spoils {
        let (mut job, out) = marker(&client);
        spoil(&mut job);
        client.submit(&[job]).unwrap();
        assert_eq!(client.prep(out.handle, FOREVER), Ok(()));
        assert_eq!(client.value(out), 0);
        let drops = bench.drops();
        assert!(drops[0].contains("twice"), "{drops:?}");
    }
}

#[test]
fn jobs_without_lists_run() {
    let bench = Bench::new(1);
    let client = bench.client();
    let (mut job, out) = marker(&client);
    job.writes.clear();
    let (last, fence) = marker(&client);
    client.submit(&[job, last]).unwrap();
    assert_eq!(
        client.prep(out.handle, FOREVER),
        Ok(()),
        "nothing to wait on"
    );
    // The file's jobs run in order, so the second ends after the first.
    client.prep(fence.handle, FOREVER).unwrap();
    assert_eq!(client.value(out), 1);
}

#[test]
fn the_register_sequence_of_each_task() {
    let bench = Bench::new(2);
    let client = bench.client();
    let out = client.create(4096).unwrap();
    let program = client.program(&[Step::Write {
        iova: out.iova,
        value: 5,
    }]);
    let mut job = JobSpec::new(&program, &[], &[out]);
    job.tasks.push((program.bo.iova, 3));
    client.submit(&[job.clone()]).unwrap();
    client.prep(out.handle, FOREVER).unwrap();
    // A lone file goes to the next core.
    client.submit(&[job]).unwrap();
    client.prep(out.handle, FOREVER).unwrap();

    let expected = |core: u32, amount: u32| {
        vec![
            (0x0010, 1),
            (0x1004, 0xe | core << 28),
            (0x3004, 0xe | core << 28),
            (0x0010, program.bo.iova),
            (0x0014, amount),
            (0x0020, 0x300),
            (0x0024, 0x300),
            (0x0030, 0x7001),
            (0x0034, 0),
            (0x0008, 1),
        ]
    };
    // What the interrupt of the task before left: mask off, disabled, all
    // interrupts cleared.
    let after_interrupt = vec![(0x0020, 0), (0x0008, 0), (0x0024, 0x1_ffff)];
    let kicks = bench.stage.kicks();
    assert_eq!(kicks[0], expected(0, 0));
    assert_eq!(kicks[1], [after_interrupt.clone(), expected(0, 1)].concat());
    assert_eq!(kicks[2], expected(1, 0));
    assert_eq!(kicks[3], [after_interrupt, expected(1, 1)].concat());
}

#[test]
fn traces_name_every_byte_that_a_task_touched() {
    let bench = Bench::new(1);
    let client = bench.client();
    let (a, b) = (client.create(4096).unwrap(), client.create(4096).unwrap());
    let program = client.program(&[
        Step::Copy {
            from: a.iova + 16,
            to: b.iova,
        },
        Step::Copy {
            from: a.iova + 20,
            to: b.iova + 100,
        },
    ]);
    client
        .submit(&[JobSpec::new(&program, &[a], &[b])])
        .unwrap();
    client.prep(b.handle, FOREVER).unwrap();
    let traces = bench.driver.take_traces();
    assert_eq!(traces.len(), 1);
    assert!(traces[0].completed);
    let start = u64::from(program.bo.iova);
    let (a, b) = (u64::from(a.iova), u64::from(b.iova));
    let ranges: Vec<_> = traces[0].accesses.iter().map(|a| a.range.clone()).collect();
    assert_eq!(
        ranges,
        [
            start..start + 32,
            a + 16..a + 24,
            b..b + 4,
            b + 100..b + 104
        ]
    );
}
