// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is known of fences between files, devices and processes.

use std::time::Duration;

use crate::Errno;
use crate::sys;
use crate::units::errno_of;

/// How somebody uses a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BufferAccess {
    /// It only reads. It has to wait for writers.
    Read,
    /// It writes, and perhaps reads. It has to wait for everybody.
    Write,
}

/// The state of a fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FenceStatus {
    /// The job has not ended.
    Active,
    /// The job ended well.
    Signaled,
    /// The job was killed.
    Failed(Errno),
}

/// What is known of a sync_file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyncFileInfo {
    /// Its name: given when it was merged, or made from its fence.
    pub name: String,
    /// Its fences; at least one.
    pub fences: Vec<FenceInfo>,
}

impl SyncFileInfo {
    /// By a name, which is a C string in an array, and its fences.
    pub(crate) fn new(name: &[u8], fences: Vec<FenceInfo>) -> Self {
        Self {
            name: text(name),
            fences,
        }
    }

    /// All fences as one: active while any is, then failed if any is.
    #[must_use]
    pub fn status(&self) -> FenceStatus {
        let statuses = self.fences.iter().map(|fence| fence.status);
        statuses.fold(FenceStatus::Signaled, |all, one| match (all, one) {
            (FenceStatus::Active, _) | (_, FenceStatus::Active) => FenceStatus::Active,
            (FenceStatus::Signaled, one) => one,
            (failed, _) => failed,
        })
    }
}

/// What is known of one fence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FenceInfo {
    /// The driver that made it, as long as it is active.
    pub driver: String,
    /// The queue that it is of, as long as it is active.
    pub timeline: String,
    /// Whether its job is still under way, and how it ended.
    pub status: FenceStatus,
    /// When it ended, on CLOCK_MONOTONIC; none while it is active.
    pub ended: Option<Duration>,
}

impl From<&sys::SyncFenceInfo> for FenceInfo {
    fn from(fence: &sys::SyncFenceInfo) -> Self {
        let status = match fence.status {
            sys::SYNC_STATUS_ACTIVE => FenceStatus::Active,
            failed if failed < 0 => FenceStatus::Failed(errno_of(failed)),
            _ => FenceStatus::Signaled,
        };
        let ended = Duration::from_nanos(fence.timestamp_ns);
        Self {
            driver: text(&fence.driver_name),
            timeline: text(&fence.obj_name),
            status,
            ended: (status != FenceStatus::Active).then_some(ended),
        }
    }
}

/// A C string in an array.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0);
    String::from_utf8_lossy(&bytes[..end.unwrap_or(bytes.len())]).into_owned()
}
