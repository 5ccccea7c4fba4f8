// SPDX-License-Identifier: MIT OR Apache-2.0
//! A device that fails when it is told to.

#![allow(dead_code, reason = "each test binary uses its part")]

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicIsize, AtomicUsize, Ordering};
use std::time::Duration;

use npu_matmul::{Engine, PlanOptions};
use npu_model::{Model, ModelOptions};
use rocket_uapi::{
    Backend, ByteLen, Call, Deadline, Device, DeviceInfo, DevicePool, Errno, Fence, FenceStatus,
    Handle, RawBo, RawDevice, RawJob,
};

/// How many of the next calls fail, and how.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    /// SUBMITs that answer 0 and run nothing.
    pub(crate) lost: AtomicUsize,
    /// SUBMITs that are refused.
    pub(crate) refused: AtomicUsize,
    /// Jobs whose fence says that they were killed.
    pub(crate) killed: AtomicUsize,
    /// CREATE_BOs without memory.
    pub(crate) no_memory: AtomicUsize,
    /// FINI_BOs that fail.
    pub(crate) fini: AtomicUsize,
    /// Calls until the device disappears, and that one: then all calls say so.
    /// 0: it stays.
    pub(crate) until_gone: AtomicUsize,
    /// Calls that were made.
    pub(crate) calls: AtomicUsize,
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

#[derive(Debug)]
struct Killed;

impl Fence for Killed {
    fn status(&self) -> Result<FenceStatus, rocket_uapi::Error> {
        Ok(FenceStatus::Failed(Errno::TIMEDOUT))
    }
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
        // SAFETY: what the caller promises.
        unsafe { self.inner.submit(jobs) }
    }

    fn export_bo(&self, handle: Handle) -> Result<OwnedFd, rocket_uapi::Error> {
        self.faults.call(Call::PrimeExport, Some(handle))?;
        self.inner.export_bo(handle)
    }

    fn write_fence(&self, handle: Handle) -> Result<Box<dyn Fence>, rocket_uapi::Error> {
        self.faults.call(Call::ExportSyncFile, Some(handle))?;
        if strikes(&self.faults.killed) {
            return Ok(Box::new(Killed));
        }
        self.inner.write_fence(handle)
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

    fn raw(&self) -> Option<&dyn RawDevice> {
        None
    }
}

/// An engine on a device with faults. Its jobs have few tasks, so that a
/// product takes several steps.
pub(crate) fn faulty_engine(devices: usize) -> (Engine, Arc<Faults>) {
    faulty_engine_with(small_jobs(), devices)
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

/// The same with any plans.
pub(crate) fn faulty_engine_with(options: PlanOptions, devices: usize) -> (Engine, Arc<Faults>) {
    let (pool, faults) = faulty_pool(devices);
    (Engine::with_options(pool, options).unwrap(), faults)
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
