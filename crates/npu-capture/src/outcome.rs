// SPDX-License-Identifier: MIT OR Apache-2.0
//! Outcomes as numbers of the file.

use rocket_uapi::Errno;

use crate::capture::Outcome;

/// Highest error number of Linux.
const ERRNO_MAX: u32 = 4095;

/// The two fields of a DONE section.
pub(crate) fn encode(outcome: Outcome) -> (u32, u32) {
    let number = |errno: Errno| errno.raw_os_error().unsigned_abs();
    match outcome {
        Outcome::Completed => (0, 0),
        Outcome::Killed(errno) => (1, number(errno)),
        Outcome::Dropped => (2, 0),
        Outcome::Refused(errno) => (3, number(errno)),
        Outcome::Unknown => (4, 0),
    }
}

/// The outcome that the fields of a DONE section stand for.
pub(crate) fn decode(code: u32, errno: u32) -> Option<Outcome> {
    let number = || {
        let valid = (1..=ERRNO_MAX).contains(&errno);
        valid.then(|| Errno::from_raw_os_error(errno.cast_signed()))
    };
    match (code, errno) {
        (0, 0) => Some(Outcome::Completed),
        (1, _) => number().map(Outcome::Killed),
        (2, 0) => Some(Outcome::Dropped),
        (3, _) => number().map(Outcome::Refused),
        (4, 0) => Some(Outcome::Unknown),
        _ => None,
    }
}
