// SPDX-License-Identifier: MIT OR Apache-2.0
//! DONE: the end of a job.

use rocket_uapi::Errno;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::capture::{CapturedJob, JobOutcome};
use crate::error::CaptureError;
use crate::fields::Fields;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct DoneRecord {
    job: U32,
    outcome: U32,
    errno: U32,
    reserved: U32,
    ended_ns: U64,
}

/// The payload for the end of job `number` of the file.
pub(crate) fn encode(number: u32, outcome: JobOutcome, ended_ns: u64) -> Vec<u8> {
    let (code, errno) = encode_outcome(outcome);
    let record = DoneRecord {
        job: number.into(),
        outcome: code.into(),
        errno: errno.into(),
        reserved: 0.into(),
        ended_ns: ended_ns.into(),
    };
    record.as_bytes().to_vec()
}

/// Sets the end of the last of `jobs`, the file's jobs so far, from a payload.
pub(crate) fn decode(mut fields: Fields<'_>, jobs: &mut [CapturedJob]) -> Result<(), CaptureError> {
    let record: DoneRecord = fields.record()?;
    let Some((job, before)) = jobs.split_last_mut() else {
        return Err(fields.malformed("no job is running"));
    };
    if record.job.get() as usize != before.len() {
        return Err(fields.malformed("it is not for the job that is running"));
    }
    let outcome = decode_outcome(record.outcome.get(), record.errno.get());
    job.outcome = outcome.ok_or_else(|| fields.malformed("the outcome has an unknown kind"))?;
    job.ended_ns = Some(record.ended_ns.get());
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
