// SPDX-License-Identifier: MIT OR Apache-2.0
//! A device as slow as one can be: a job ends when somebody waits for it, and no
//! earlier. What happens meanwhile is in the order of a log, not of a clock.
#![allow(dead_code, reason = "each test binary uses its part")]

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use npu_matmul::{Activity, Done, Observer};
use rocket_uapi::{Backend, ByteLen, Deadline, Device, DeviceInfo, Error, Handle, RawBo, RawJob};

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// Activations were quantised.
    Quantised,
    /// Activations were packed.
    Packed,
    /// So many jobs were submitted.
    Submitted(usize),
    /// A job was waited for.
    Ended,
    /// The results of a job were read.
    Unpacked,
}

/// What happened, in order, on all files of a device.
#[derive(Debug, Default)]
pub(crate) struct Log(Mutex<Vec<Entry>>);

impl Log {
    fn push(&self, entry: Entry) {
        lock(&self.0).push(entry);
    }

    /// All since the last time.
    pub(crate) fn take(&self) -> Vec<Entry> {
        std::mem::take(&mut *lock(&self.0))
    }
}

impl Observer for Log {
    fn done(&self, done: &Done) {
        match done.activity {
            Activity::Quantise { .. } => self.push(Entry::Quantised),
            Activity::Pack { .. } => self.push(Entry::Packed),
            Activity::Unpack { .. } => self.push(Entry::Unpacked),
            _ => {}
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Jobs that have not ended: what each writes, and its number in the file.
type Running = Arc<Mutex<HashMap<Handle, u64>>>;

/// An open file of a slow device.
#[derive(Debug)]
struct Slow {
    inner: Arc<dyn Backend>,
    log: Arc<Log>,
    running: Running,
    /// Jobs so far.
    jobs: Mutex<u64>,
}

/// A slow device in place of `inner`.
pub(crate) fn slow(inner: Arc<dyn Backend>, log: &Arc<Log>) -> Device {
    Device::from_backend(Arc::new(Slow::new(inner, log)))
}

impl Slow {
    fn new(inner: Arc<dyn Backend>, log: &Arc<Log>) -> Self {
        Self {
            inner,
            log: Arc::clone(log),
            running: Running::default(),
            jobs: Mutex::default(),
        }
    }
}

// SAFETY: all is the inner backend's, and no PREP_BO tells of an end
// that it does not tell of.
unsafe impl Backend for Slow {
    fn info(&self) -> DeviceInfo {
        self.inner.info()
    }

    fn create_bo(&self, len: ByteLen) -> Result<RawBo, Error> {
        self.inner.create_bo(len)
    }

    fn close_bo(&self, handle: Handle) -> Result<(), Error> {
        self.inner.close_bo(handle)
    }

    fn prep_bo(&self, handle: Handle, until: Deadline) -> Result<(), Error> {
        let job = lock(&self.running).get(&handle).copied();
        if job.is_some() && until.has_passed() {
            return Err(Error::TimedOut { handle });
        }
        self.inner.prep_bo(handle, until)?;
        if let Some(job) = job {
            // Those of a file run one after another.
            lock(&self.running).retain(|_, other| *other > job);
            self.log.push(Entry::Ended);
        }
        Ok(())
    }

    fn fini_bo(&self, handle: Handle) -> Result<(), Error> {
        self.inner.fini_bo(handle)
    }

    unsafe fn submit(&self, jobs: &[RawJob<'_>]) -> Result<(), Error> {
        // SAFETY: what the caller promises.
        unsafe { self.inner.submit(jobs) }?;
        let mut number = lock(&self.jobs);
        for job in jobs {
            *number += 1;
            let writes = job.writes.iter().map(|&handle| (handle, *number));
            lock(&self.running).extend(writes);
        }
        self.log.push(Entry::Submitted(jobs.len()));
        Ok(())
    }

    fn export_bo(&self, handle: Handle) -> Result<OwnedFd, Error> {
        self.inner.export_bo(handle)
    }

    fn was_killed(&self, handle: Handle, since: Instant) -> Option<bool> {
        self.inner.was_killed(handle, since)
    }

    fn reopen(&self) -> Result<Arc<dyn Backend>, Error> {
        Ok(Arc::new(Self::new(self.inner.reopen()?, &self.log)))
    }

    fn settle(&self) -> Duration {
        self.inner.settle()
    }
}
