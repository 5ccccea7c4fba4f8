// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fences that the client signals, and jobs that wait for them.

#![cfg(not(miri))]

use std::os::fd::{AsRawFd, OwnedFd};

use npu_model::driver::{Arena, FenceState, SharedFile};
use rocket_uapi::sys::{SW_SYNC_CREATE_FENCE as CREATE_FENCE, SW_SYNC_INC as INC};
use rustix::event::PollFlags;
use rustix::fs::SeekFrom;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

use crate::client::*;
use crate::script::Step;
use crate::shared::*;

/// -ENOENT.
const CLOSED: i32 = -2;

fn timeline() -> OwnedFd {
    SharedFile::open_sw_sync().unwrap()
}

fn fence_at(timeline: &OwnedFd, value: u32) -> OwnedFd {
    let mut arg = [0xff; 40];
    arg[..4].copy_from_slice(&value.to_le_bytes());
    let out = ioctl(timeline, CREATE_FENCE, &arg).unwrap();
    new_fd(&out[36..])
}

fn advance(timeline: &OwnedFd, by: u32) {
    ioctl(timeline, INC, &by.to_le_bytes()).unwrap();
}

/// A job that waits for `fence` and writes 7 into the second object.
fn held_by(client: &Client, fence: &OwnedFd) -> (Bo, Bo) {
    let (gate, out) = (client.create(1).unwrap(), client.create(4096).unwrap());
    let dma_buf = client.0.prime_export(gate.handle).unwrap();
    import_fence(&dma_buf, WRITE, fence.as_raw_fd()).unwrap();
    let write = Step::Write {
        iova: out.iova,
        value: 7,
    };
    client.run(&[write], &[gate], &[out]);
    (gate, out)
}

#[test]
fn arguments_are_checked() {
    let timeline = timeline();
    for request in [0xc010_5702, 0xc024_5700, EXPORT_SYNC_FILE, MERGE] {
        assert_eq!(ioctl(&timeline, request, &[0; 64]), Err(Errno::NOTTY));
    }
    for request in [CREATE_FENCE, INC] {
        let answer = file(&timeline).ioctl(request, 0, &Arena::new());
        assert_eq!(answer, Err(Errno::FAULT));
    }
    let file = file(&timeline);
    assert_eq!(file.export_sync_file(READ).err(), Some(Errno::NOTTY));
    let merged = file.merge(b"", timeline.as_raw_fd());
    assert_eq!(merged.err(), Some(Errno::NOTTY));
    assert_eq!(file.seek(SeekFrom::Start(0)), Err(Errno::SPIPE));
    let mapped = file.mmap(0, 4096, ProtFlags::READ, MapFlags::SHARED);
    assert_eq!(mapped.err(), Some(Errno::NODEV));
    assert_eq!(file.poll(PollFlags::IN), PollFlags::IN);
    let fence = fence_at(&timeline, 1);
    let merged = merge_with(&fence, b"", timeline.as_raw_fd(), [0, 0]);
    assert_eq!(merged.err(), Some(Errno::NOENT), "it is no sync_file");
}

#[test]
fn fences_come_in_their_order() {
    let timeline = timeline();
    assert!(readable(&fence_at(&timeline, 0), AT_ONCE), "it is there");
    let fences = [2, 1, 4].map(|value| fence_at(&timeline, value));
    let status = |fence: &OwnedFd| info(fence).status;
    assert_eq!(info(&fences[0]).fences[0].driver, "sw_sync");
    advance(&timeline, 0);
    assert_eq!(fences.each_ref().map(status), [0, 0, 0]);
    advance(&timeline, 1);
    assert_eq!(fences.each_ref().map(status), [0, 1, 0]);
    advance(&timeline, 2);
    assert_eq!(fences.each_ref().map(status), [1, 1, 0]);
    // Over the end of the numbers, in one step.
    let beyond = fence_at(&timeline, 3 + i32::MAX.unsigned_abs());
    advance(&timeline, u32::MAX);
    assert!(readable(&fences[2], AT_ONCE) && readable(&beyond, AT_ONCE));
    let other = crate::sw_sync::timeline();
    assert!(
        !readable(&fence_at(&other, 1), AT_ONCE),
        "one for each file"
    );
}

#[test]
fn a_job_is_held_until_the_client_lets_it_go() {
    let bench = Bench::new(2);
    let (client, other) = (bench.client(), bench.client());
    let timeline = timeline();
    let (_, out) = held_by(&client, &fence_at(&timeline, 1));
    // What is behind it in its file waits too; another file's does not.
    let behind = client.create(4096).unwrap();
    client.run(&[Step::Log { number: 2 }], &[], &[behind]);
    let free = other.create(1).unwrap();
    other.run(&[Step::Log { number: 1 }], &[], &[free]);
    other.prep(free.handle, FOREVER).unwrap();
    for bo in [out, behind] {
        assert_eq!(client.prep(bo.handle, 0), Err(Errno::BUSY));
    }
    assert_eq!(bench.stage.log().len(), 1);
    advance(&timeline, 1);
    client.prep(behind.handle, FOREVER).unwrap();
    assert_eq!(client.value(out), 7);
}

#[test]
fn closing_the_file_lets_go_too() {
    let bench = Bench::new(1);
    let client = bench.client();
    let (first, copy) = (timeline(), timeline());
    let fences = [fence_at(&first, 1), fence_at(&copy, 1)];
    let both = merge(&fences[0], &fences[1]);
    let (gate, out) = held_by(&client, &both);
    let end = client.0.write_fence(out.handle).unwrap();
    let again = copy.try_clone().unwrap();
    drop((first, copy));
    assert!(readable(&fences[0], None));
    assert_eq!(info(&fences[0]).status, CLOSED);
    assert!(!readable(&fences[1], AT_ONCE), "a copy is open");
    assert_eq!(client.prep(gate.handle, 0), Err(Errno::BUSY));
    drop(again);
    client.prep(out.handle, FOREVER).unwrap();
    // Whom the fence held runs, however that ended.
    assert_eq!(end.state(), FenceState::Signaled);
    assert_eq!(client.value(out), 7);
}
