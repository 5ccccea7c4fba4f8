// SPDX-License-Identifier: MIT OR Apache-2.0
//! A device that fails, or is late, on request.

use std::sync::Arc;
use std::sync::atomic::{AtomicIsize, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use npu_matmul::{Engine, Error, JobFailure, PlanOptions};
use npu_model::{Model, ModelOptions};
use rocket_uapi::{
    Caller, Device, DevicePool, Errno, Error as DeviceError, FileLayer, FileOperations, sys,
};

/// Numbers of coming calls that fail, by kind of failure; and counters.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    /// SUBMITs that return 0 and run nothing.
    pub(crate) lost: AtomicUsize,
    /// SUBMITs that are rejected.
    pub(crate) refused: AtomicUsize,
    /// Jobs that count as killed.
    pub(crate) killed: AtomicUsize,
    /// Jobs of which it is unknown whether they were killed.
    pub(crate) late: AtomicUsize,
    /// CREATE_BOs without memory.
    pub(crate) no_memory: AtomicUsize,
    /// FINI_BOs that fail.
    pub(crate) fini: AtomicUsize,
    /// Calls until the device disappears, that one included; from then on all calls fail. 0: it
    /// stays.
    pub(crate) until_gone: AtomicUsize,
    /// Calls so far.
    pub(crate) calls: AtomicUsize,
    /// Jobs submitted so far.
    pub(crate) jobs: AtomicUsize,
    /// File descriptors made for buffer objects.
    pub(crate) exports: AtomicUsize,
    /// Buffer objects that exist.
    pub(crate) live: AtomicIsize,
    /// Buffer objects that were ever made.
    pub(crate) made: AtomicUsize,
    /// Random state: threads pause before each call that orders jobs. 0: they do not.
    pub(crate) pauses: AtomicU64,
}

impl Faults {
    /// Counts a call; fails if the device is gone.
    fn call(&self) -> Result<(), Errno> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let next = |left: usize| (left > 1).then(|| left - 1);
        let before = self
            .until_gone
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        match before {
            Err(1) => Err(Errno::NODEV),
            _ => Ok(()),
        }
    }

    fn pause(&self) {
        let state = self.pauses.load(Ordering::Relaxed);
        if state != 0 {
            // Constants of PCG.
            let next = state.wrapping_mul(6_364_136_223_846_793_005);
            let next = next.wrapping_add(1_442_695_040_888_963_407);
            self.pauses.store(next, Ordering::Relaxed);
            std::thread::sleep(Duration::from_micros(state >> 32 & 0x1fff));
        }
    }

    /// Whether the device has disappeared.
    pub(crate) fn is_gone(&self) -> bool {
        self.until_gone.load(Ordering::Relaxed) == 1
    }
}

/// Counts down one coming failure; false if there is none.
fn strikes(count: &AtomicUsize) -> bool {
    count
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1))
        .is_ok()
}

/// A file that fails on request.
#[derive(Debug)]
struct Faulty {
    inner: Arc<dyn FileOperations>,
    faults: Arc<Faults>,
}

impl Faulty {
    /// Handles a call before the inner file; `Some` is its result.
    fn before(&self, request: u32, arg: &[u8]) -> Result<Option<i32>, Errno> {
        let faults = &self.faults;
        if request == sys::GEM_CLOSE {
            // Also if the device is gone: the kernel frees it with the file.
            faults.live.fetch_sub(1, Ordering::Relaxed);
        }
        faults.call()?;
        if matches!(request, sys::PREP_BO | sys::SUBMIT) {
            faults.pause();
        }
        match request {
            sys::CREATE_BO if strikes(&faults.no_memory) => return Err(Errno::NOMEM),
            sys::SUBMIT if strikes(&faults.refused) => return Err(Errno::NOMEM),
            sys::SUBMIT if strikes(&faults.lost) => return Ok(Some(0)),
            sys::SUBMIT => {
                let submit: sys::Submit = sys::structure(arg);
                let jobs = submit.job_count as usize;
                faults.jobs.fetch_add(jobs, Ordering::Relaxed);
            }
            sys::PRIME_HANDLE_TO_FD => {
                faults.exports.fetch_add(1, Ordering::Relaxed);
            }
            _ => {}
        }
        Ok(None)
    }
}

// SAFETY: everything except errors is the inner file's.
unsafe impl FileLayer for Faulty {
    type Below = dyn FileOperations;

    fn below(&self) -> &Self::Below {
        &*self.inner
    }

    unsafe fn ioctl(
        &self,
        request: u32,
        arg: &mut [u8],
        caller: &dyn Caller,
    ) -> Result<i32, Errno> {
        if let Some(result) = self.before(request, arg)? {
            return Ok(result);
        }
        // SAFETY: the caller's promise.
        let result = unsafe { self.inner.ioctl(request, arg, caller) };
        match request {
            sys::CREATE_BO if result.is_ok() => {
                self.faults.live.fetch_add(1, Ordering::Relaxed);
                self.faults.made.fetch_add(1, Ordering::Relaxed);
            }
            sys::FINI_BO if strikes(&self.faults.fini) => return Err(Errno::NODEV),
            _ => {}
        }
        result
    }

    fn was_accepted(&self, handle: u32) -> Result<bool, Errno> {
        self.faults.call()?;
        self.faults.pause();
        self.inner.was_accepted(handle)
    }

    fn was_killed(&self, handle: u32, since: Instant) -> Option<bool> {
        if strikes(&self.faults.killed) {
            return Some(true);
        }
        if strikes(&self.faults.late) {
            return None;
        }
        self.inner.was_killed(handle, since)
    }

    fn reopen(&self) -> Result<Arc<dyn FileOperations>, DeviceError> {
        Ok(Arc::new(Self {
            inner: self.inner.reopen()?,
            faults: Arc::clone(&self.faults),
        }))
    }
}

/// An engine on a device with faults. Its jobs have few tasks, so that a matmul takes several
/// steps.
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
    faulty_pool_on(&Model::new(ModelOptions::default()), devices)
}

/// Devices with faults on this model.
pub(crate) fn faulty_pool_on(model: &Arc<Model>, devices: usize) -> (DevicePool, Arc<Faults>) {
    let faults = Arc::new(Faults::default());
    let file = Arc::new(Faulty {
        inner: model.open(),
        faults: Arc::clone(&faults),
    });
    // SAFETY: nobody else has the file.
    let device = unsafe { Device::new(file) };
    (DevicePool::open(&device, devices).unwrap(), faults)
}

/// Whether this is the error of a device that has disappeared.
pub(crate) fn is_gone(error: &Error) -> bool {
    matches!(
        error,
        Error::Device {
            source: DeviceError::DeviceGone { .. },
            ..
        } | Error::Job {
            source: JobFailure::Device(DeviceError::DeviceGone { .. }),
            ..
        }
    )
}
