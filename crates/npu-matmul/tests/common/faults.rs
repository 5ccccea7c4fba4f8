// SPDX-License-Identifier: MIT OR Apache-2.0
//! A device that fails when it is told to.

#![allow(dead_code, reason = "each test binary uses its part")]

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicIsize, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use npu_matmul::{Engine, PlanOptions};
use npu_model::{Model, ModelOptions};
use rocket_uapi::{
    Backend, ByteLen, Call, Deadline, Device, DeviceInfo, DevicePool, Errno, Handle, RawBo, RawJob,
};

/// How many of the next calls fail, and how.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    /// SUBMITs that answer 0 and run nothing.
    pub(crate) lost: AtomicUsize,
    /// SUBMITs that are refused.
    pub(crate) refused: AtomicUsize,
    /// Jobs that count as killed.
    pub(crate) killed: AtomicUsize,
    /// Jobs of which nobody can tell whether they were killed.
    pub(crate) late: AtomicUsize,
    /// CREATE_BOs without memory.
    pub(crate) no_memory: AtomicUsize,
    /// FINI_BOs that fail.
    pub(crate) fini: AtomicUsize,
    /// Calls until the device disappears, and that one: then all calls say so.
    /// 0: it stays.
    pub(crate) until_gone: AtomicUsize,
    /// Calls that were made.
    pub(crate) calls: AtomicUsize,
    /// Jobs that the device got.
    pub(crate) jobs: AtomicUsize,
    /// Descriptors of buffer objects that were made.
    pub(crate) exports: AtomicUsize,
    /// Buffer objects that exist.
    pub(crate) live: AtomicIsize,
    /// Buffer objects that were ever made.
    pub(crate) made: AtomicUsize,
}

impl Faults {
    /// Counts a call; fails if the device is gone.
    fn call(&self, call: Call, handle: Option<Handle>) -> Result<(), rocket_uapi::Error> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let next = |left: usize| (left > 1).then(|| left - 1);
        let before = self
            .until_gone
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        match before {
            Err(1) => Err(rocket_uapi::Error::of(call, handle, Errno::NODEV)),
            _ => Ok(()),
        }
    }

    /// Whether the device has disappeared.
    pub(crate) fn is_gone(&self) -> bool {
        self.until_gone.load(Ordering::Relaxed) == 1
    }
}

/// Takes one from a count of failures to come.
fn strikes(count: &AtomicUsize) -> bool {
    count
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1))
        .is_ok()
}

/// A backend that fails when it is told to.
#[derive(Debug)]
struct Faulty {
    inner: Arc<dyn Backend>,
    faults: Arc<Faults>,
}

// SAFETY: all but errors is the inner backend's.
unsafe impl Backend for Faulty {
    fn info(&self) -> DeviceInfo {
        self.inner.info()
    }

    fn create_bo(&self, len: ByteLen) -> Result<RawBo, rocket_uapi::Error> {
        self.faults.call(Call::CreateBo, None)?;
        if strikes(&self.faults.no_memory) {
            return Err(rocket_uapi::Error::OutOfMemory { len });
        }
        let bo = self.inner.create_bo(len)?;
        self.faults.live.fetch_add(1, Ordering::Relaxed);
        self.faults.made.fetch_add(1, Ordering::Relaxed);
        Ok(bo)
    }

    fn close_bo(&self, handle: Handle) -> Result<(), rocket_uapi::Error> {
        // Also where the device is gone: the kernel frees it with the file.
        self.faults.live.fetch_sub(1, Ordering::Relaxed);
        self.faults.call(Call::GemClose, Some(handle))?;
        self.inner.close_bo(handle)
    }

    fn prep_bo(&self, handle: Handle, until: Deadline) -> Result<(), rocket_uapi::Error> {
        self.faults.call(Call::PrepBo, Some(handle))?;
        self.inner.prep_bo(handle, until)
    }

    fn fini_bo(&self, handle: Handle) -> Result<(), rocket_uapi::Error> {
        self.faults.call(Call::FiniBo, Some(handle))?;
        let result = self.inner.fini_bo(handle);
        if strikes(&self.faults.fini) {
            return Err(rocket_uapi::Error::of(
                Call::FiniBo,
                Some(handle),
                Errno::NODEV,
            ));
        }
        result
    }

    unsafe fn submit(&self, jobs: &[RawJob<'_>]) -> Result<(), rocket_uapi::Error> {
        self.faults.call(Call::Submit, None)?;
        if strikes(&self.faults.refused) {
            return Err(rocket_uapi::Error::of(Call::Submit, None, Errno::NOMEM));
        }
        if strikes(&self.faults.lost) {
            return Ok(());
        }
        self.faults.jobs.fetch_add(jobs.len(), Ordering::Relaxed);
        // SAFETY: what the caller promises.
        unsafe { self.inner.submit(jobs) }
    }

    fn export_bo(&self, handle: Handle) -> Result<OwnedFd, rocket_uapi::Error> {
        self.faults.call(Call::PrimeExport, Some(handle))?;
        self.faults.exports.fetch_add(1, Ordering::Relaxed);
        self.inner.export_bo(handle)
    }

    fn was_accepted(&self, handle: Handle) -> Result<bool, rocket_uapi::Error> {
        self.faults.call(Call::PrepBo, Some(handle))?;
        self.inner.was_accepted(handle)
    }

    fn was_killed(&self, handle: Handle, since: Instant) -> Option<bool> {
        if strikes(&self.faults.killed) {
            return Some(true);
        }
        if strikes(&self.faults.late) {
            return None;
        }
        self.inner.was_killed(handle, since)
    }

    fn reopen(&self) -> Result<Arc<dyn Backend>, rocket_uapi::Error> {
        Ok(Arc::new(Self {
            inner: self.inner.reopen()?,
            faults: Arc::clone(&self.faults),
        }))
    }

    fn settle(&self) -> Duration {
        self.inner.settle()
    }
}

/// An engine on a device with faults. Its jobs have few tasks, so that a
/// product takes several steps.
pub(crate) fn faulty_engine(devices: usize) -> (Engine, Arc<Faults>) {
    let (pool, faults) = faulty_pool(devices);
    (Engine::with_options(pool, small_jobs()).unwrap(), faults)
}

/// Plans of many jobs with few tasks.
pub(crate) fn small_jobs() -> PlanOptions {
    let mut options = PlanOptions {
        row_tile: Some(8),
        ..PlanOptions::default()
    };
    options.limits.tasks = 2;
    options
}

/// Devices with faults.
pub(crate) fn faulty_pool(devices: usize) -> (DevicePool, Arc<Faults>) {
    faulty_pool_on(ModelOptions::default(), devices)
}

/// The same of any model.
pub(crate) fn faulty_pool_on(model: ModelOptions, devices: usize) -> (DevicePool, Arc<Faults>) {
    let faults = Arc::new(Faults::default());
    let device = Device::from_backend(Arc::new(Faulty {
        inner: Model::new(model).open(),
        faults: Arc::clone(&faults),
    }));
    (DevicePool::open(&device, devices).unwrap(), faults)
}
