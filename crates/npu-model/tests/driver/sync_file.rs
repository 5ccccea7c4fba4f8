// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a sync_file answers.

#![cfg(not(miri))]

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use npu_model::driver::Arena;
use rustix::fs::SeekFrom;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

use crate::client::*;
use crate::script::Step;
use crate::shared::*;

/// What FILE_INFO says of a job that was killed.
const KILLED: i32 = -125;

fn fence_of(client: &Client, bo: Bo) -> OwnedFd {
    let dma_buf = client.0.prime_export(bo.handle).unwrap();
    export_fence(&dma_buf, READ).unwrap()
}

/// A file whose job stands at a gate, and its fence.
fn busy(bench: &Bench, gate: u32) -> (Client, OwnedFd) {
    let client = bench.client();
    let out = client.create(1).unwrap();
    client.run(&[Step::Wait { gate }], &[], &[out]);
    let fence = fence_of(&client, out);
    (client, fence)
}

#[test]
fn arguments_are_checked() {
    let bench = Bench::new(1);
    let client = bench.client();
    let fence = fence_of(&client, client.create(1).unwrap());
    assert_eq!(info_with(&fence, 0, 1, 0).err(), Some(Errno::INVAL));
    assert_eq!(info_with(&fence, 0, 0, 1).err(), Some(Errno::INVAL));
    let own = fence.as_raw_fd();
    for tail in [[1, 0], [0, 1]] {
        let merged = merge_with(&fence, b"", own, tail);
        assert_eq!(merged.err(), Some(Errno::INVAL));
    }
    let null = File::open("/dev/null").unwrap();
    for fd in [-1, i32::MAX, null.as_raw_fd()] {
        let merged = merge_with(&fence, b"", fd, [0, 0]);
        assert_eq!(merged.err(), Some(Errno::NOENT));
    }
    let deadline = |pad: u64| ioctl(&fence, SET_DEADLINE, &[[0; 8], pad.to_le_bytes()].concat());
    assert!(deadline(0).is_ok());
    assert_eq!(deadline(1).err(), Some(Errno::INVAL));
    for request in [0xc030_3e02, 0x4010_3e04, 0xc038_3e05, EXPORT_SYNC_FILE] {
        assert_eq!(ioctl(&fence, request, &[0; 64]).err(), Some(Errno::NOTTY));
    }
    for request in [MERGE, FILE_INFO, SET_DEADLINE] {
        let answer = file(&fence).ioctl(request, 0, &Arena::new());
        assert_eq!(answer, Err(Errno::FAULT));
    }
    assert_eq!(file(&fence).seek(SeekFrom::Start(0)), Err(Errno::SPIPE));
    let mapped = file(&fence).mmap(0, 4096, ProtFlags::READ, MapFlags::SHARED);
    assert_eq!(mapped.err(), Some(Errno::NODEV));
}

#[test]
fn an_idle_object_gives_a_signalled_fence() {
    let bench = Bench::new(1);
    let client = bench.client();
    let before = after(Duration::ZERO).unsigned_abs();
    let fence = fence_of(&client, client.create(1).unwrap());
    assert!(readable(&fence, AT_ONCE));
    let info = info(&fence);
    assert_eq!((info.status, info.num_fences), (1, 1));
    assert_eq!(info.fences[0].status, 1);
    assert!(info.fences[0].timestamp_ns >= before);
}

#[test]
fn a_job_is_active_then_signalled() {
    let bench = Bench::new(2);
    let (client, fence) = busy(&bench, 1);
    bench.stage.await_arrival(1);
    assert!(!readable(&fence, AT_ONCE));
    let busy = info(&fence);
    assert_eq!((busy.status, busy.num_fences), (0, 1));
    assert_eq!(info_with(&fence, 0, 0, 0).unwrap().status, 0);
    let FenceInfo {
        driver,
        timeline,
        status,
        timestamp_ns,
    } = busy.fences[0].clone();
    assert_eq!((driver.as_str(), status, timestamp_ns), ("drm_sched", 0, 0));
    assert_eq!(timeline, "fdab0000.npu");
    assert!(
        busy.name.starts_with("drm_sched-fdab0000.npu"),
        "{}",
        busy.name
    );
    assert!(busy.name.ends_with("-1"), "{}", busy.name);
    let before = after(Duration::ZERO).unsigned_abs();
    bench.stage.open_gate(1);
    assert!(readable(&fence, None), "poll wakes");
    let done = info(&fence);
    assert_eq!((done.status, done.fences[0].status), (1, 1));
    assert!(done.fences[0].timestamp_ns >= before);
    // It stays readable, and no read changes that.
    let mut byte = [0; 1];
    assert_eq!(rustix::io::read(&fence, &mut byte), Ok(0));
    assert!(readable(&fence, AT_ONCE));
    drop(client);
}

#[test]
fn a_killed_job_leaves_its_error() {
    let bench = Bench::new(1);
    let client = bench.client();
    let out = client.create(1).unwrap();
    client.run(&[Step::Wait { gate: 1 }, Step::Hang], &[], &[out]);
    let fence = fence_of(&client, out);
    bench.stage.open_gate(1);
    client.prep(out.handle, FOREVER).unwrap();
    assert!(readable(&fence, AT_ONCE));
    assert_eq!(info_with(&fence, 0, 0, 0).unwrap().status, KILLED);
    let info = info(&fence);
    assert_eq!((info.status, info.fences[0].status), (KILLED, KILLED));
    // It is gone from the object, so the next one knows nothing of it.
    assert_eq!(
        info_with(&fence_of(&client, out), 0, 0, 0).unwrap().status,
        1
    );
}

#[test]
fn merged_files_wait_for_all() {
    let bench = Bench::new(2);
    let (first, a) = busy(&bench, 1);
    let (second, b) = busy(&bench, 2);
    let both = merge_with(&a, b"a and b", b.as_raw_fd(), [0, 0]).unwrap();
    let described = info(&both);
    assert_eq!((described.status, described.num_fences), (0, 2));
    assert_eq!(described.name, "a and b");
    assert_eq!(
        info_with(&both, 1, 0, 0).err(),
        Some(Errno::INVAL),
        "no room"
    );
    assert_eq!(info_with(&both, 9, 0, 0).unwrap().fences.len(), 2);
    assert!(
        info(&merge(&a, &b))
            .name
            .starts_with("dma_fence_array-unbound")
    );
    bench.stage.open_gate(1);
    assert!(readable(&a, None));
    assert!(!readable(&both, AT_ONCE));
    let statuses: Vec<_> = info(&both).fences.iter().map(|f| f.status).collect();
    assert!(statuses == [1, 0] || statuses == [0, 1], "{statuses:?}");
    assert_eq!(
        info(&merge(&a, &b)).num_fences,
        1,
        "what is signalled is left out"
    );
    bench.stage.open_gate(2);
    assert!(readable(&both, None));
    assert_eq!(info(&both).status, 1);
    let late = info(&merge(&a, &b));
    let last = info(&both).fences.iter().map(|f| f.timestamp_ns).max();
    assert_eq!((late.status, Some(late.fences[0].timestamp_ns)), (1, last));
    drop((first, second));
}

#[test]
fn of_one_file_the_latest_job_stays() {
    let bench = Bench::new(1);
    let client = bench.client();
    let (x, y) = (client.create(1).unwrap(), client.create(1).unwrap());
    client.run(&[Step::Wait { gate: 1 }], &[], &[x]);
    client.run(&[Step::Wait { gate: 2 }], &[], &[y]);
    let (a, b) = (fence_of(&client, x), fence_of(&client, y));
    let merged = merge(&b, &a);
    let (merged_info, later) = (info(&merged), info(&b));
    assert_eq!(merged_info.num_fences, 1);
    assert_eq!(merged_info.name, later.name);
    bench.stage.open_gate(1);
    assert!(readable(&a, None));
    assert!(!readable(&merged, AT_ONCE));
    bench.stage.open_gate(2);
    assert!(readable(&merged, None));
}

/// The error of one of several fences is seen in its own status only.
#[test]
fn an_error_within_several_fences_is_found_by_looking_at_each() {
    let bench = Bench::new(2);
    let (first, a) = busy(&bench, 1);
    let second = bench.client();
    let out = second.create(1).unwrap();
    second.run(&[Step::Wait { gate: 2 }, Step::Hang], &[], &[out]);
    let both = merge(&a, &fence_of(&second, out));
    bench.stage.open_gate(1);
    bench.stage.open_gate(2);
    assert!(readable(&both, None));
    assert_eq!(info(&both).status, KILLED);
    assert_eq!(info_with(&both, 0, 0, 0).unwrap().status, 1);
    drop(first);
}

#[test]
fn a_copy_is_the_same_file() {
    let bench = Bench::new(1);
    let (client, fence) = busy(&bench, 1);
    let copy = fence.try_clone().unwrap();
    drop(fence);
    assert_eq!(info(&copy).status, 0);
    bench.stage.open_gate(1);
    assert!(readable(&copy, None));
    assert_eq!(info(&copy).status, 1);
    drop(client);
}
