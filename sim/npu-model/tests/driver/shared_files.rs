// SPDX-License-Identifier: MIT OR Apache-2.0
//! Properties of dma-bufs, sync_files and timelines that no kernel has or
//! shows.

use std::os::fd::OwnedFd;

use npu_model::driver::SharedFile;
use rocket_uapi::{FenceStatus, MapRequest, sys, write_fence};
use rustix::fs::SeekFrom;
use rustix::io::Errno;

use crate::client::*;
use crate::script::Step;
use crate::shared::*;

/// -ENOENT.
const CLOSED: i32 = -2;
/// -ECANCELED.
const KILLED: i32 = -125;

/// The file is the model's own, so no client may truncate it.
#[test]
fn a_dma_buf_outlives_file_and_device() {
    let (bench, client) = bench_and_client();
    let bo = client.page();
    client.set(bo, 0, 7);
    let dma_buf = client.dma_buf(bo);
    assert_eq!(rustix::fs::ftruncate(&dma_buf, 0), Err(Errno::PERM));
    drop(client);
    drop(bench);
    assert_eq!(shared(&dma_buf).seek(SeekFrom::End(0)), Ok(4096));
    assert!(readable(&export_fence(&dma_buf, true), false));
    let map = shared(&dma_buf).mmap(&MapRequest::shared(0, 4096));
    assert_eq!(get(&map.unwrap(), 0), 7);
}

/// If one of several fences fails, only its own status shows the error.
#[test]
fn an_error_within_several_fences_is_found_by_looking_at_each() {
    let bench = Bench::new(2);
    let files = [bench.client(), bench.client()];
    let ends = [&[Step::Wait(1)][..], &[Step::Wait(1), Step::Hang]];
    let [well, killed] = [0, 1].map(|index| {
        let client = &files[index];
        let out = client.page();
        client.run(ends[index], &[], &[out]);
        export_fence(&client.dma_buf(out), false)
    });
    let both = merge(&well, &killed).unwrap();
    bench.stage.open_gate(1);
    assert!(readable(&both, true));
    assert_eq!([well, killed, both].each_ref().map(status), [1, KILLED, 1]);
}

fn timeline() -> OwnedFd {
    SharedFile::open_sw_sync().unwrap()
}

fn advance(timeline: &OwnedFd, by: u32) {
    ask(timeline, sys::SW_SYNC_INC, by).unwrap();
}

#[test]
fn a_timeline_is_no_other_file() {
    let timeline = timeline();
    for request in [
        0xc010_5702,
        0xc024_5700,
        sys::EXPORT_SYNC_FILE,
        sys::SYNC_MERGE,
    ] {
        assert_eq!(ask(&timeline, request, [0_u8; 64]), Err(Errno::NOTTY));
    }
    let fence = fence_at(&timeline, 1);
    let merged = merge(&fence, &timeline);
    assert_eq!(merged.err(), Some(Errno::NOENT), "it is no sync_file");
    for file in [shared(&timeline), shared(&fence)] {
        assert_eq!(file.seek(SeekFrom::Start(0)), Err(Errno::SPIPE));
        let mapped = file.mmap(&MapRequest::shared(0, 4096));
        assert_eq!(mapped.err(), Some(Errno::NODEV));
    }
}

#[test]
fn fences_of_a_timeline_come_in_their_order() {
    let (timeline, other) = (timeline(), timeline());
    assert!(readable(&fence_at(&timeline, 0), false), "it is there");
    let fences = [2, 1, 4].map(|value| fence_at(&timeline, value));
    for (by, expected) in [(0, [0, 0, 0]), (1, [0, 1, 0]), (2, [1, 1, 0])] {
        advance(&timeline, by);
        assert_eq!(fences.each_ref().map(status), expected);
    }
    // Wrap the number in one step.
    let beyond = fence_at(&timeline, 3 + i32::MAX.unsigned_abs());
    advance(&timeline, u32::MAX);
    assert!(readable(&fences[2], false) && readable(&beyond, false));
    assert!(!readable(&fence_at(&other, 1), false), "one for each file");
}

/// The last copy of a timeline ends its fences. Jobs that waited for them run.
#[test]
fn closing_a_timeline_ends_its_fences() {
    let (bench, client) = bench_and_client();
    let (first, copy) = (timeline(), timeline());
    let fences = [fence_at(&first, 1), fence_at(&copy, 1)];
    let (gate, out) = (client.page(), client.page());
    let both = merge(&fences[0], &fences[1]).unwrap();
    import_fence(&client.dma_buf(gate), true, &both);
    client.run(&[Step::Log(1)], &[gate], &[out]);
    let end = write_fence(&client.file, out.handle).unwrap();
    let again = copy.try_clone().unwrap();
    drop((first, copy));
    assert!(readable(&fences[0], true));
    assert_eq!(status(&fences[0]), CLOSED);
    assert!(!readable(&fences[1], false), "a copy is open");
    assert_eq!(client.prep(gate.handle, 0), Err(Errno::BUSY));
    drop(again);
    client.wait(out);
    assert_eq!(end.status().unwrap(), FenceStatus::Signaled);
    assert_eq!(bench.stage.order(), [1]);
}
