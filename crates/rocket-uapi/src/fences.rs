// SPDX-License-Identifier: MIT OR Apache-2.0
//! State of fences, which files, devices and processes share.

use std::time::Duration;

use crate::Errno;
use crate::sys;
use crate::units::errno_of;

/// Kind of access to a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BufferAccess {
    /// Only reads; waits for writers.
    Read,
    /// Writes, and may read; waits for readers and writers.
    Write,
}

/// The state of a fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FenceStatus {
    /// The job has not ended.
    Active,
    /// The job ended without an error, or was dropped.
    Signaled,
    /// The job was killed.
    Failed(Errno),
}

/// Name and fences of a sync_file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyncFileInfo {
    /// Its name: the one given to a merge, or one that the kernel made from its fence.
    pub name: String,
    /// Its fences; at least one.
    pub fences: Vec<FenceInfo>,
}

impl SyncFileInfo {
    /// State of all fences together: active while any is active, then failed if any failed.
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

/// Driver, queue and state of one fence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FenceInfo {
    /// The driver that made it; valid while the fence is active.
    pub driver: String,
    /// Its queue; valid while the fence is active.
    pub timeline: String,
    /// Whether its job is still under way, and how it ended.
    pub status: FenceStatus,
    /// Time of its end (CLOCK_MONOTONIC); `None` while it is active.
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

/// Converts a C string in an array.
pub(crate) fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0);
    String::from_utf8_lossy(&bytes[..end.unwrap_or(bytes.len())]).into_owned()
}
