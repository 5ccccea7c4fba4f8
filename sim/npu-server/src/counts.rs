// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counters of what clients did: opens, calls, jobs, bytes.

use rocket_uapi::sys;
use rustix::io::Errno;
use zerocopy::FromBytes;

/// Counts of the calls of a server's clients so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Opens of the device.
    pub opens: u64,
    /// Open files whose process ended in the middle of a job.
    pub died: u64,
    /// Buffer objects made.
    pub bos: u64,
    /// Their bytes, as requested.
    pub bo_bytes: u64,
    /// SUBMIT calls that returned 0.
    pub submits: u64,
    /// Jobs in them, including those that the driver dropped.
    pub jobs: u64,
    /// Calls of PREP_BO that maintained an object's caches.
    pub preps: u64,
    /// The bytes of these objects, in whole pages.
    pub prep_bytes: u64,
    /// Calls of FINI_BO.
    pub finis: u64,
    /// The bytes of their objects.
    pub fini_bytes: u64,
    /// ioctls of the device.
    pub ioctls: u64,
    /// mmaps of the device.
    pub mmaps: u64,
}

/// A call that maintains an object's caches.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CacheSync {
    /// PREP_BO, with the object's bytes.
    Prep(u64),
    /// FINI_BO, with the object's bytes.
    Fini(u64),
}

impl CacheSync {
    /// The cache maintenance of an ioctl, if any. `bytes` returns the bytes behind
    /// a handle.
    pub(crate) fn of(number: u32, arg: &[u8], bytes: impl Fn(u32) -> Option<u64>) -> Option<Self> {
        // A client's structure may end after the handle.
        let handle = || arg.first_chunk().map(|handle| u32::from_ne_bytes(*handle));
        if sys::is_call(number, sys::PREP_BO) {
            bytes(handle()?).map(Self::Prep)
        } else if sys::is_call(number, sys::FINI_BO) {
            bytes(handle()?).map(Self::Fini)
        } else {
            None
        }
    }
}

impl Counts {
    /// Counts a call that has ended with `result`.
    pub(crate) fn synced(&mut self, sync: CacheSync, result: Result<i32, Errno>) {
        match (sync, result) {
            // The driver does it whatever the result of the wait.
            (CacheSync::Prep(bytes), Ok(_) | Err(Errno::BUSY | Errno::TIMEDOUT | Errno::INTR)) => {
                self.preps += 1;
                self.prep_bytes += bytes;
            }
            (CacheSync::Fini(bytes), Ok(_)) => {
                self.finis += 1;
                self.fini_bytes += bytes;
            }
            _ => (),
        }
    }

    /// Counts an ioctl of the device that succeeded. `arg` is its argument afterwards.
    pub(crate) fn done(&mut self, number: u32, arg: &[u8]) {
        if sys::is_call(number, sys::CREATE_BO)
            && let Ok((bo, _)) = sys::CreateBo::read_from_prefix(arg)
        {
            self.bos += 1;
            self.bo_bytes += u64::from(bo.size);
        } else if sys::is_call(number, sys::SUBMIT)
            && let Ok((submit, _)) = sys::Submit::read_from_prefix(arg)
        {
            self.submits += 1;
            self.jobs += u64::from(submit.job_count);
        }
    }
}
