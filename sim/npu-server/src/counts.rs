// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counters of what clients did: opens, calls, jobs, bytes.

use std::sync::atomic::{AtomicU64, Ordering};

use rocket_uapi::sys;
use rustix::io::Errno;
use zerocopy::FromBytes;

/// What the clients of a server did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Opens of the device.
    pub opens: u64,
    /// Open files whose process ended in the middle of a job.
    pub died: u64,
    /// Buffer objects made.
    pub bos: u64,
    /// Their bytes, as asked for.
    pub bo_bytes: u64,
    /// SUBMIT calls that returned 0.
    pub submits: u64,
    /// Jobs in them, those that the driver dropped included.
    pub jobs: u64,
    /// Calls of PREP_BO that passed an object through the CPU's caches.
    pub preps: u64,
    /// The bytes of these objects, by whole pages.
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

/// Counters that many threads add to.
#[derive(Debug, Default)]
pub(crate) struct CallCounters {
    opens: AtomicU64,
    died: AtomicU64,
    bos: AtomicU64,
    bo_bytes: AtomicU64,
    submits: AtomicU64,
    jobs: AtomicU64,
    preps: AtomicU64,
    prep_bytes: AtomicU64,
    finis: AtomicU64,
    fini_bytes: AtomicU64,
    ioctls: AtomicU64,
    mmaps: AtomicU64,
}

fn add(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}

/// A call that passes an object through the CPU's caches.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CacheSync {
    /// PREP_BO of so many bytes.
    Prep(u64),
    /// FINI_BO of so many bytes.
    Fini(u64),
}

impl CacheSync {
    /// What an ioctl is, with what tells the bytes behind a handle.
    pub(crate) fn of(number: u32, arg: &[u8], bytes: impl Fn(u32) -> Option<u64>) -> Option<Self> {
        // A client may know no more of either structure.
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

impl CallCounters {
    /// Such a call has ended so.
    pub(crate) fn synced(&self, sync: CacheSync, result: Result<i32, Errno>) {
        match (sync, result) {
            // The driver does it whatever came of the wait.
            (CacheSync::Prep(bytes), Ok(_) | Err(Errno::BUSY | Errno::TIMEDOUT | Errno::INTR)) => {
                add(&self.preps, 1);
                add(&self.prep_bytes, bytes);
            }
            (CacheSync::Fini(bytes), Ok(_)) => {
                add(&self.finis, 1);
                add(&self.fini_bytes, bytes);
            }
            _ => (),
        }
    }

    pub(crate) fn opened(&self) {
        add(&self.opens, 1);
    }

    pub(crate) fn client_died(&self) {
        add(&self.died, 1);
    }

    pub(crate) fn mapped(&self) {
        add(&self.mmaps, 1);
    }

    /// An ioctl of the device was done well, and this is its argument now.
    pub(crate) fn done(&self, number: u32, arg: &[u8]) {
        if sys::is_call(number, sys::CREATE_BO)
            && let Ok((bo, _)) = sys::CreateBo::read_from_prefix(arg)
        {
            add(&self.bos, 1);
            add(&self.bo_bytes, u64::from(bo.size));
        } else if sys::is_call(number, sys::SUBMIT)
            && let Ok((submit, _)) = sys::Submit::read_from_prefix(arg)
        {
            add(&self.submits, 1);
            add(&self.jobs, u64::from(submit.job_count));
        }
    }

    pub(crate) fn called(&self) {
        add(&self.ioctls, 1);
    }

    pub(crate) fn snapshot(&self) -> Counts {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let Self {
            opens,
            died,
            bos,
            bo_bytes,
            submits,
            jobs,
            preps,
            prep_bytes,
            finis,
            fini_bytes,
            ioctls,
            mmaps,
        } = self;
        Counts {
            opens: get(opens),
            died: get(died),
            bos: get(bos),
            bo_bytes: get(bo_bytes),
            submits: get(submits),
            jobs: get(jobs),
            preps: get(preps),
            prep_bytes: get(prep_bytes),
            finis: get(finis),
            fini_bytes: get(fini_bytes),
            ioctls: get(ioctls),
            mmaps: get(mmaps),
        }
    }
}
