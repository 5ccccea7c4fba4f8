// SPDX-License-Identifier: MIT OR Apache-2.0
//! Caches that only PREP_BO and FINI_BO keep in step.

use npu_model::driver::{Caches, DriverOptions};
use npu_model::event::{Event, MissedCall};
use rustix::io::Errno;

use crate::client::*;
use crate::script::Step;

const GATE: u32 = 1;

fn bench() -> Bench {
    Bench::with_options(
        1,
        DriverOptions {
            caches: Caches::Manual,
            ..DriverOptions::default()
        },
    )
}

fn missed(bench: &Bench) -> Vec<MissedCall> {
    let call = |event| match event {
        Event::MissedCall { call, .. } => Some(call),
        _ => None,
    };
    let events = bench.driver.take_events();
    events.into_iter().filter_map(call).collect()
}

fn set(client: &Client, bo: Bo, at: usize, value: u32) {
    write(&client.map(bo), at, &value.to_le_bytes());
}

fn get(client: &Client, bo: Bo, at: usize) -> u32 {
    let mut bytes = [0; 4];
    read(&client.map(bo), at, &mut bytes);
    u32::from_le_bytes(bytes)
}

/// A program that the NPU can see.
fn program(client: &Client, script: &[Step]) -> Program {
    let program = client.program(script);
    client.fini(program.bo.handle, 0).unwrap();
    program
}

fn submit(client: &Client, script: &[Step], reads: &[Bo], writes: &[Bo]) {
    let program = program(client, script);
    let mut job = JobSpec::new(&program, reads, writes);
    job.reads.push(program.bo.handle);
    client.submit(&[job]).unwrap();
}

/// Copies the first four bytes and waits.
fn copy(client: &Client, from: Bo, to: Bo) {
    let copy = Step::Copy {
        from: from.iova,
        to: to.iova,
    };
    submit(client, &[copy], &[from], &[to]);
    client.prep(to.handle, FOREVER).unwrap();
}

#[test]
fn bytes_pass_by_fini_and_prep() {
    let bench = bench();
    let client = bench.client();
    let (input, out) = (client.create(4096).unwrap(), client.create(4096).unwrap());
    set(&client, input, 0, 7);
    client.fini(input.handle, 0).unwrap();
    copy(&client, input, out);
    assert_eq!(get(&client, out, 0), 7);
    assert_eq!(missed(&bench), []);
}

#[test]
fn without_fini_the_npu_sees_old_bytes() {
    let bench = bench();
    let client = bench.client();
    let (input, out) = (client.create(4096).unwrap(), client.create(4096).unwrap());
    for value in [7, 8] {
        set(&client, input, 0, value);
        copy(&client, input, out);
        assert_eq!(get(&client, out, 0), 0, "as CREATE_BO left it");
        assert_eq!(missed(&bench), [MissedCall::FiniBeforeSubmit]);
    }
    client.fini(input.handle, 0).unwrap();
    copy(&client, input, out);
    assert_eq!(get(&client, out, 0), 8);
    assert_eq!(missed(&bench), []);
}

#[test]
fn without_prep_the_cpu_sees_old_bytes() {
    let bench = bench();
    let client = bench.client();
    let (out, done) = (client.create(4096).unwrap(), client.create(4096).unwrap());
    let write = Step::Write {
        iova: out.iova,
        value: 7,
    };
    submit(&client, &[write], &[], &[out, done]);
    client.prep(done.handle, FOREVER).unwrap();
    assert_eq!(get(&client, out, 0), 0);
    client.prep(out.handle, FOREVER).unwrap();
    assert_eq!(get(&client, out, 0), 7);
}

#[test]
fn prep_throws_away_what_was_not_written_back() {
    let bench = bench();
    let client = bench.client();
    let bo = client.create(4097).unwrap();
    set(&client, bo, 4096, 7);
    client.prep(bo.handle, 0).unwrap();
    assert_eq!(get(&client, bo, 4096), 0);
    assert_eq!(missed(&bench), [MissedCall::FiniBeforePrep]);
    set(&client, bo, 4096, 7);
    client.fini(bo.handle, 0).unwrap();
    client.prep(bo.handle, 0).unwrap();
    assert_eq!(get(&client, bo, 4096), 7);
    assert_eq!(missed(&bench), []);
}

/// A line that the CPU writes without having seen the NPU's bytes in it takes
/// those away; others stay.
#[test]
fn writing_without_prep_spoils_the_line() {
    let bench = bench();
    let client = bench.client();
    let (out, done) = (client.create(4096).unwrap(), client.create(4096).unwrap());
    let [near, far] =
        [(out.iova + 60, 1), (out.iova + 64, 2)].map(|(iova, value)| Step::Write { iova, value });
    submit(&client, &[near, far], &[], &[out, done]);
    client.prep(done.handle, FOREVER).unwrap();
    set(&client, out, 0, 9);
    client.fini(out.handle, 0).unwrap();
    assert_eq!(missed(&bench), [MissedCall::PrepBeforeWrite]);
    client.prep(out.handle, 0).unwrap();
    let values = [0, 60, 64].map(|at| get(&client, out, at));
    assert_eq!(values, [9, 0, 2]);
}

/// FINI_BO writes back what the CPU wrote, and nothing else.
#[test]
fn fini_of_clean_lines_changes_nothing() {
    let bench = bench();
    let client = bench.client();
    let (out, done) = (client.create(4096).unwrap(), client.create(4096).unwrap());
    let write = Step::Write {
        iova: out.iova,
        value: 7,
    };
    submit(&client, &[write], &[], &[out, done]);
    client.prep(done.handle, FOREVER).unwrap();
    client.fini(out.handle, 0).unwrap();
    client.prep(out.handle, 0).unwrap();
    assert_eq!(get(&client, out, 0), 7);
    assert_eq!(missed(&bench), []);
}

/// PREP_BO synchronises even where it fails.
#[test]
fn a_prep_that_is_busy_shows_what_there_is() {
    let bench = bench();
    let client = bench.client();
    let out = client.create(4096).unwrap();
    let write = |value| Step::Write {
        iova: out.iova,
        value,
    };
    let script = [write(1), Step::Wait { gate: GATE }, write(2)];
    submit(&client, &script, &[], &[out]);
    bench.stage.await_arrival(GATE);
    assert_eq!(get(&client, out, 0), 0);
    assert_eq!(client.prep(out.handle, 0), Err(Errno::BUSY));
    assert_eq!(get(&client, out, 0), 1);
    bench.stage.open_gate(GATE);
    client.prep(out.handle, FOREVER).unwrap();
    assert_eq!(get(&client, out, 0), 2);
}

#[test]
fn what_the_events_say() {
    let bench = bench();
    let client = bench.client();
    client.create(4096).unwrap();
    let bo = client.create(4096).unwrap();
    set(&client, bo, 0, 1);
    client.prep(bo.handle, 0).unwrap();
    let text = bench.driver.events()[0].to_string();
    assert!(
        text.contains("0x1000") && text.contains("FINI_BO"),
        "{text}"
    );
}
