// SPDX-License-Identifier: MIT OR Apache-2.0
//! The modelled time of products does not depend on the host: its threads come
//! late, in any order, and the jobs are over when they do.
#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests: a failed unwrap is a failed test"
)]

mod common;

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::{multiply, multiply_all, random_i8};
use npu_matmul::{Engine, PlanOptions, Weights};
use npu_model::{Model, ModelOptions};
use rknpu_regcmd::timing::JobTime;
use rocket_uapi::{
    Backend, ByteLen, Deadline, Device, DeviceInfo, DevicePool, Error, Handle, RawBo, RawJob,
};

/// An open file whose threads are held up around each call that orders jobs.
#[derive(Debug)]
struct Late {
    inner: Arc<dyn Backend>,
    /// Of the whole device.
    state: Arc<AtomicU64>,
}

impl Late {
    fn pause(&self) {
        // Constants of PCG.
        const FACTOR: u64 = 6364136223846793005;
        const STEP: u64 = 1442695040888963407;
        let next = |state: u64| state.wrapping_mul(FACTOR).wrapping_add(STEP);
        let state = self.state.load(Ordering::Relaxed);
        self.state.store(next(state), Ordering::Relaxed);
        std::thread::sleep(Duration::from_micros(state >> 32 & 0x1fff));
    }
}

// SAFETY: all is the inner backend's.
unsafe impl Backend for Late {
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
        self.pause();
        self.inner.prep_bo(handle, until)
    }

    fn fini_bo(&self, handle: Handle) -> Result<(), Error> {
        self.inner.fini_bo(handle)
    }

    unsafe fn submit(&self, jobs: &[RawJob<'_>]) -> Result<(), Error> {
        self.pause();
        // SAFETY: what the caller promises.
        unsafe { self.inner.submit(jobs) }
    }

    fn export_bo(&self, handle: Handle) -> Result<OwnedFd, Error> {
        self.inner.export_bo(handle)
    }

    fn was_accepted(&self, handle: Handle) -> Result<bool, Error> {
        self.pause();
        self.inner.was_accepted(handle)
    }

    fn was_killed(&self, handle: Handle, since: Instant) -> Option<bool> {
        self.inner.was_killed(handle, since)
    }

    fn reopen(&self) -> Result<Arc<dyn Backend>, Error> {
        Ok(Arc::new(Self {
            inner: self.inner.reopen()?,
            state: Arc::clone(&self.state),
        }))
    }

    fn settle(&self) -> Duration {
        self.inner.settle()
    }
}

/// When the jobs of two products ran, by file and by their order there; with a
/// seed, on threads that are held up.
fn times(files: usize, seed: Option<u64>) -> BTreeMap<u64, Vec<JobTime>> {
    let model = Model::new(ModelOptions {
        timeline: true,
        ..ModelOptions::default()
    });
    let device = match seed {
        None => model.open_device(),
        Some(seed) => Device::from_backend(Arc::new(Late {
            inner: model.open(),
            state: Arc::new(AtomicU64::new(seed)),
        })),
    };
    let pool = DevicePool::open(&device, files).unwrap();
    let engine = Engine::with_options(pool, PlanOptions::default()).unwrap();
    let (m, n, k) = (64, 512 * files, 96);
    let (a, b) = (random_i8(1, m * k), random_i8(2, n * k));
    let weights = engine.load(Weights::i8(n, k, &b)).unwrap();
    let mut c = vec![0; m * n];
    for _ in 0..2 {
        multiply(&engine, &weights, m, &a, &mut c).unwrap();
    }
    let mut results = vec![vec![0; m * n]; 3];
    let products = results
        .iter_mut()
        .map(|c| (&weights, m, (&a).into(), c.into()));
    multiply_all(&engine, products.collect()).unwrap();
    let mut times: BTreeMap<u64, Vec<JobTime>> = BTreeMap::new();
    for (job, &time) in model.timeline().unwrap().jobs() {
        times.entry(job.file).or_default().push(time);
    }
    times
}

#[test]
fn the_same_products_take_the_same_modelled_time() {
    for files in [3, 4] {
        let usual = times(files, None);
        assert_eq!(usual.len(), files);
        assert!(usual.values().all(|jobs| jobs.len() >= 5), "{usual:?}");
        for seed in 0..4 {
            assert_eq!(times(files, Some(seed)), usual, "{files} files");
        }
    }
}
