// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counters of what clients did: opens, calls, jobs, bytes.

use rocket_uapi::{is_unfinished, sys};
use rustix::io::Errno;
use serde::Serialize;
use zerocopy::FromBytes;

/// Counts of the calls of a server's clients so far. Serialised, in this order, as part of
/// the report of `npu-probe run`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Opens of the device.
    pub opens: u64,
    /// Open files whose process ended in the middle of a job.
    #[serde(rename = "clients_died")]
    pub died: u64,
    /// Buffer objects made.
    pub bos: u64,
    /// Their bytes, as requested.
    pub bo_bytes: u64,
    /// Calls of PREP_BO that maintained an object's caches.
    pub preps: u64,
    /// The bytes of these objects, in whole pages.
    pub prep_bytes: u64,
    /// Calls of FINI_BO.
    pub finis: u64,
    /// The bytes of their objects.
    pub fini_bytes: u64,
    /// SUBMIT calls that returned 0.
    pub submits: u64,
    /// Jobs in them, including those that the driver dropped.
    pub jobs: u64,
    /// ioctls of the device. Not in the report.
    #[serde(skip)]
    pub ioctls: u64,
    /// mmaps of the device. Not in the report.
    #[serde(skip)]
    pub mmaps: u64,
}

/// The handle of an ioctl that maintains an object's caches.
pub(crate) fn synced_handle(number: u32, arg: &[u8]) -> Option<u32> {
    let is = |known| sys::is_call(number, known);
    // A client's structure may end after the handle.
    let handle = arg
        .first_chunk()
        .filter(|_| is(sys::PREP_BO) || is(sys::FINI_BO));
    handle.map(|handle| u32::from_ne_bytes(*handle))
}

impl Counts {
    /// Counts an ioctl of the device that has ended with `result`. `arg` is its argument
    /// afterwards, `synced` the bytes of the object of [`synced_handle`].
    pub(crate) fn note(
        &mut self,
        number: u32,
        arg: &[u8],
        synced: Option<u64>,
        result: Result<i32, Errno>,
    ) {
        let is = |known| sys::is_call(number, known);
        // PREP_BO maintains the caches even if its wait ends with one of these.
        let is_waited = |errno| is_unfinished(errno) || errno == Errno::INTR;
        if let Some(bytes) = synced
            && is(sys::PREP_BO)
            && result.err().is_none_or(is_waited)
        {
            self.preps += 1;
            self.prep_bytes += bytes;
        }
        if result.is_err() {
            return;
        }
        if let Some(bytes) = synced
            && is(sys::FINI_BO)
        {
            self.finis += 1;
            self.fini_bytes += bytes;
        } else if is(sys::CREATE_BO)
            && let Ok((bo, _)) = sys::CreateBo::read_from_prefix(arg)
        {
            self.bos += 1;
            self.bo_bytes += u64::from(bo.size);
        } else if is(sys::SUBMIT)
            && let Ok((submit, _)) = sys::Submit::read_from_prefix(arg)
        {
            self.submits += 1;
            self.jobs += u64::from(submit.job_count);
        }
    }
}
