// SPDX-License-Identifier: MIT OR Apache-2.0
//! DONE: the end of a job.

use rocket_uapi::Errno;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::capture::JobOutcome;
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

/// The end of a job.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EndedJob {
    /// The number of the job.
    pub(crate) job: u32,
    pub(crate) outcome: JobOutcome,
    pub(crate) ended_ns: u64,
}

/// The payload for the end of a job.
pub(crate) fn encode(end: EndedJob) -> Vec<u8> {
    let (code, errno) = encode_outcome(end.outcome);
    let record = DoneRecord {
        job: end.job.into(),
        outcome: code.into(),
        errno: errno.into(),
        reserved: 0.into(),
        ended_ns: end.ended_ns.into(),
    };
    record.as_bytes().to_vec()
}

/// The end of a job in a payload.
pub(crate) fn decode(mut fields: Fields<'_>) -> Result<EndedJob, CaptureError> {
    let record: DoneRecord = fields.record()?;
    let outcome = decode_outcome(record.outcome.get(), record.errno.get());
    let end = EndedJob {
        job: record.job.get(),
        outcome: outcome.ok_or_else(|| fields.malformed("the outcome is not known"))?,
        ended_ns: record.ended_ns.get(),
    };
    fields.finish()?;
    Ok(end)
}

/// `outcome` and `errno`.
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

/// The outcome that `outcome` and `errno` mean.
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
