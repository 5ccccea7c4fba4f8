// SPDX-License-Identifier: MIT OR Apache-2.0
//! Models with which tests need care, and fences that a test signals.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use npu_model::driver::{Bug, DriverProfile, SharedFile};
use npu_model::event::Event;
use npu_model::{Model, ModelOptions};
use rocket_uapi::{Arena, Caller, Device, SyncFile, sys};
use zerocopy::IntoBytes;

/// A model of the kernel with all its bugs. It crashes when a client triggers one.
pub fn frail() -> Arc<Model> {
    Model::new(ModelOptions {
        bugs: Bug::ALL.into(),
        driver: DriverProfile {
            // Longer than closing a file takes on a slow host, so a client that does not
            // wait triggers the bug.
            free_delay: Duration::from_millis(200),
            ..DriverProfile::LINUX_6_18
        },
        ..ModelOptions::default()
    })
}

pub fn assert_healthy(model: &Model, what: &str) {
    let events = model.take_events();
    let bug = |event: &&Event| matches!(event, Event::KernelBug { .. });
    let bugs: Vec<_> = events.iter().filter(bug).collect();
    assert!(bugs.is_empty(), "{what}: {bugs:?}");
    assert!(!model.is_oopsed(), "{what}");
}

/// A device whose driver kills each job.
pub fn impatient() -> Device {
    let options = ModelOptions {
        driver: DriverProfile {
            job_limit: Duration::from_nanos(1),
            ..DriverProfile::default()
        },
        hang_timeout: Duration::from_millis(1),
        ..ModelOptions::default()
    };
    Model::new(options).open_device()
}

/// A fence that a test signals by opening the gate; dropping the gate ends it too.
pub struct Gate {
    timeline: OwnedFd,
    fence: OwnedFd,
}

impl Gate {
    pub fn new() -> Self {
        let timeline = SharedFile::open_sw_sync().unwrap();
        let mut create = sys::SwSyncCreateFence {
            value: 1,
            ..sys::SwSyncCreateFence::default()
        };
        call(&timeline, sys::SW_SYNC_CREATE_FENCE, create.as_mut_bytes());
        // SAFETY: the call has put a new descriptor there, which no other code knows.
        let fence = unsafe { OwnedFd::from_raw_fd(create.fence) };
        Self { timeline, fence }
    }

    pub fn fence(&self, device: &Device) -> SyncFile {
        device.adopt_sync_file(self.fence.try_clone().unwrap())
    }

    pub fn open(&self) {
        call(&self.timeline, sys::SW_SYNC_INC, 1_u32.as_mut_bytes());
    }
}

fn call(timeline: &OwnedFd, request: u32, arg: &mut [u8]) {
    let file = SharedFile::of(timeline.as_raw_fd()).unwrap().unwrap();
    let arena = Arena::new();
    let at = arena.push(arg);
    file.ioctl(request, at, &arena).unwrap();
    arena.read(at, arg).unwrap();
}
