// SPDX-License-Identifier: MIT OR Apache-2.0
//! Outcomes as numbers of the file.

use rocket_uapi::Errno;

use crate::capture::JobOutcome;

/// Highest error number of Linux.
const ERRNO_MAX: u32 = 4095;

/// The two fields of a DONE section.
pub(crate) fn encode(outcome: JobOutcome) -> (u32, u32) {
    let number = |errno: Errno| errno.raw_os_error().unsigned_abs();
    match outcome {
        JobOutcome::Completed => (0, 0),
        JobOutcome::Killed(errno) => (1, number(errno)),
        JobOutcome::Dropped => (2, 0),
        JobOutcome::Refused(errno) => (3, number(errno)),
        JobOutcome::Unknown => (4, 0),
    }
}

/// The outcome that the fields of a DONE section stand for.
pub(crate) fn decode(code: u32, errno: u32) -> Option<JobOutcome> {
    let number = || {
        let valid = (1..=ERRNO_MAX).contains(&errno);
        valid.then(|| Errno::from_raw_os_error(errno.cast_signed()))
    };
    match (code, errno) {
        (0, 0) => Some(JobOutcome::Completed),
        (1, _) => number().map(JobOutcome::Killed),
        (2, 0) => Some(JobOutcome::Dropped),
        (3, _) => number().map(JobOutcome::Refused),
        (4, 0) => Some(JobOutcome::Unknown),
        _ => None,
    }
}
