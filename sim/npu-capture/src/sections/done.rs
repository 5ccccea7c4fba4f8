// SPDX-License-Identifier: MIT OR Apache-2.0
//! DONE: the end of a job.

use rocket_uapi::Errno;

use crate::capture::{CapturedJob, JobOutcome};
use crate::error::CaptureError;
use crate::fields::{Fields, RESERVED, halves, joined, numbers};

/// The payload for the end of job `number` of the file.
pub(crate) fn encode(number: u32, outcome: JobOutcome, ended_ns: u64) -> Vec<u8> {
    let (code, errno) = encode_outcome(outcome);
    let [low, high] = halves(ended_ns);
    numbers(&[number, code, errno, RESERVED, low, high])
}

/// Sets the end of `job` from a payload, which must be for job `number` of the file.
pub(crate) fn decode(
    mut fields: Fields<'_>,
    number: usize,
    job: &mut CapturedJob,
) -> Result<(), CaptureError> {
    let [found, code, errno, _reserved, low, high] = fields.numbers()?;
    if found as usize != number {
        return Err(fields.malformed("it is not for the job that is running"));
    }
    job.outcome = decode_outcome(code, errno)
        .ok_or_else(|| fields.malformed("the outcome has an unknown kind"))?;
    job.ended_ns = Some(joined(low, high));
    fields.finish()
}

/// The fields `outcome` and `errno` for an outcome.
fn encode_outcome(outcome: JobOutcome) -> (u32, u32) {
    let number = |errno: Errno| errno.raw_os_error().unsigned_abs();
    match outcome {
        JobOutcome::Completed => (0, 0),
        JobOutcome::Killed(errno) => (1, number(errno)),
        JobOutcome::Dropped => (2, 0),
        JobOutcome::Refused(errno) => (3, number(errno)),
        JobOutcome::Unknown => (4, 0),
    }
}

/// The outcome for the fields `outcome` and `errno`.
fn decode_outcome(code: u32, errno: u32) -> Option<JobOutcome> {
    let number = || rocket_uapi::errno(errno.cast_signed());
    match (code, errno) {
        (0, 0) => Some(JobOutcome::Completed),
        (1, _) => number().map(JobOutcome::Killed),
        (2, 0) => Some(JobOutcome::Dropped),
        (3, _) => number().map(JobOutcome::Refused),
        (4, 0) => Some(JobOutcome::Unknown),
        _ => None,
    }
}
