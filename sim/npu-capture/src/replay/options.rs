// SPDX-License-Identifier: MIT OR Apache-2.0
//! Limits of a replay.

use std::time::Duration;

/// Options of a replay.
#[derive(Clone, Copy, Debug)]
pub struct ReplayOptions {
    /// How long to wait for a job.
    pub wait: Duration,
    /// Maximum bytes of buffer objects at a time. The gaps between the addresses of
    /// a job's objects count too, since they are allocated for a moment.
    pub bytes_max: u64,
    /// Maximum bytes that all jobs together load and compare.
    pub work_max: u64,
}

/// Enough for all but large language models. A board has 4 GiB and more.
const BYTES_MAX: u64 = 1 << 30;
/// About ten seconds of a fast CPU.
const WORK_MAX: u64 = 64 << 30;

/// The driver kills a job after half a second; this leaves room for a slow
/// host that computes it in software.
const WAIT: Duration = Duration::from_secs(60);

impl Default for ReplayOptions {
    fn default() -> Self {
        Self {
            wait: WAIT,
            bytes_max: BYTES_MAX,
            work_max: WORK_MAX,
        }
    }
}
