// SPDX-License-Identifier: MIT OR Apache-2.0
//! Caches that only PREP_BO and FINI_BO synchronise.

use npu_model::driver::Caches;
use npu_model::event::{Event, MissedCall};
use rustix::io::Errno;

use crate::client::{Bench, Bo, Client, events_of};
use crate::script::Step;

fn bench_and_client() -> (Bench, Client) {
    let bench = Bench::with(1, |options| options.caches = Caches::Manual);
    let client = bench.client();
    (bench, client)
}

fn missed(bench: &Bench) -> Vec<MissedCall> {
    events_of!(bench, Event::MissedCall { call, .. } => call)
}

/// Runs a job that writes `out`, without a PREP_BO of `out`.
fn run_unheard(client: &Client, script: &[Step], out: Bo) {
    let done = client.page();
    client.run(script, &[], &[out, done]);
    client.wait(done);
}

/// Without FINI_BO the NPU sees the old bytes.
#[test]
fn bytes_of_the_cpu_need_fini() {
    let (bench, client) = bench_and_client();
    let (input, out) = (client.page(), client.page());
    let copied = || {
        let copy = Step::Copy(input.dma_address, out.dma_address);
        client.run(&[copy], &[input], &[out]);
        client.wait(out);
        (client.value(out, 0), missed(&bench))
    };
    for value in [7, 8] {
        client.set(input, 0, value);
        assert_eq!(copied(), (0, vec![MissedCall::FiniBeforeSubmit]));
    }
    client.fini(input.handle).unwrap();
    assert_eq!(copied(), (8, vec![]));
}

/// Without PREP_BO the CPU sees the old bytes. FINI_BO writes back only what
/// the CPU wrote.
#[test]
fn bytes_of_the_npu_need_prep() {
    let (bench, client) = bench_and_client();
    let out = client.page();
    run_unheard(&client, &[Step::Write(out.dma_address, 7)], out);
    assert_eq!(client.value(out, 0), 0);
    client.fini(out.handle).unwrap();
    client.wait(out);
    assert_eq!(client.value(out, 0), 7);
    assert_eq!(missed(&bench), []);
}

#[test]
fn prep_throws_away_what_was_not_written_back() {
    let (bench, client) = bench_and_client();
    client.page();
    let bo = client.create(4097).unwrap();
    client.set(bo, 4096, 7);
    client.wait(bo);
    assert_eq!(client.value(bo, 4096), 0);
    let text = bench.model.events()[0].to_string();
    assert!(text.contains("object at 0x1000: no FINI_BO"));
    assert_eq!(missed(&bench), [MissedCall::FiniBeforePrep]);
    client.set(bo, 4096, 7);
    client.fini(bo.handle).unwrap();
    client.wait(bo);
    assert_eq!(client.value(bo, 4096), 7);
    assert_eq!(missed(&bench), []);
}

/// If the CPU writes to a line before PREP_BO, the NPU's bytes in that line are
/// lost. Other lines stay.
#[test]
fn writing_without_prep_spoils_the_line() {
    let (bench, client) = bench_and_client();
    let out = client.page();
    let script = [(60, 1), (64, 2)].map(|(at, value)| Step::Write(out.dma_address + at, value));
    run_unheard(&client, &script, out);
    client.set(out, 0, 9);
    client.fini(out.handle).unwrap();
    assert_eq!(missed(&bench), [MissedCall::PrepBeforeWrite]);
    client.wait(out);
    assert_eq!([0, 60, 64].map(|at| client.value(out, at)), [9, 0, 2]);
}

/// PREP_BO synchronises even if it fails.
#[test]
fn a_prep_that_is_busy_shows_what_there_is() {
    let (bench, client) = bench_and_client();
    let out = client.page();
    let write = |value| Step::Write(out.dma_address, value);
    client.run(&[write(1), Step::Wait(1), write(2)], &[], &[out]);
    bench.stage.await_arrival(1);
    assert_eq!(client.value(out, 0), 0);
    assert_eq!(client.prep(out.handle, 0), Err(Errno::BUSY));
    assert_eq!(client.value(out, 0), 1);
    bench.stage.open_gate(1);
    client.wait(out);
    assert_eq!(client.value(out, 0), 2);
}
