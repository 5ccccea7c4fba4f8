// SPDX-License-Identifier: MIT OR Apache-2.0
//! Outcomes and roles as numbers of the file.

use rocket_uapi::Errno;

use crate::capture::{JobOutcome, Role};

/// Highest error number of Linux.
const ERRNO_MAX: u32 = 4095;

/// The two fields of a DONE section.
pub(crate) fn encode_outcome(outcome: JobOutcome) -> (u32, u32) {
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
pub(crate) fn decode_outcome(code: u32, errno: u32) -> Option<JobOutcome> {
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

/// The field of a list's entry in a JOBS section.
pub(crate) fn encode_role(role: Role) -> u32 {
    match role {
        Role::In => 0,
        Role::Out => 1,
        Role::Reached => 2,
    }
}

/// The role that the field stands for.
pub(crate) fn decode_role(code: u32) -> Option<Role> {
    let roles = [Role::In, Role::Out, Role::Reached];
    roles.into_iter().find(|&role| encode_role(role) == code)
}
