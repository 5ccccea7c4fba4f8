// SPDX-License-Identifier: MIT OR Apache-2.0
//! The modelled time of matmuls does not depend on the host, whose threads run late and in any
//! order.
#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests: a failed unwrap is a failed test"
)]

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use common::{multiply, multiply_all, random_i8};
use npu_matmul::{Engine, PlanOptions, Weights};
use npu_model::{Model, ModelOptions};
use rknpu_regcmd::timing::JobTime;
use rocket_uapi::{Caller, Device, DevicePool, Errno, Error, FileLayer, FileOperations, sys};

/// An open file that delays its threads around each call that orders jobs.
#[derive(Debug)]
struct Late {
    inner: Arc<dyn FileOperations>,
    /// Random state, shared by the files of the device.
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

// SAFETY: everything is the inner file's.
unsafe impl FileLayer for Late {
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
        if matches!(request, sys::PREP_BO | sys::SUBMIT) {
            self.pause();
        }
        // SAFETY: the caller's promise.
        unsafe { self.inner.ioctl(request, arg, caller) }
    }

    fn was_accepted(&self, handle: u32) -> Result<bool, Errno> {
        self.pause();
        self.inner.was_accepted(handle)
    }

    fn reopen(&self) -> Result<Arc<dyn FileOperations>, Error> {
        Ok(Arc::new(Self {
            inner: self.inner.reopen()?,
            state: Arc::clone(&self.state),
        }))
    }
}

/// Times of the jobs of two matmuls, by file and in order; with a seed, threads are delayed.
fn times(files: usize, seed: Option<u64>) -> BTreeMap<u64, Vec<JobTime>> {
    let model = Model::new(ModelOptions {
        timeline: true,
        ..ModelOptions::default()
    });
    let device = match seed {
        None => model.open_device(),
        Some(seed) => Device::new(Arc::new(Late {
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
    let matmuls = results
        .iter_mut()
        .map(|c| (&weights, m, (&a).into(), c.into()));
    multiply_all(&engine, matmuls.collect()).unwrap();
    let mut times: BTreeMap<u64, Vec<JobTime>> = BTreeMap::new();
    for (job, &time) in model.timeline().unwrap().jobs() {
        times.entry(job.file).or_default().push(time);
    }
    times
}

#[test]
fn the_same_matmuls_take_the_same_modelled_time() {
    for files in [3, 4] {
        let usual = times(files, None);
        assert_eq!(usual.len(), files);
        assert!(usual.values().all(|jobs| jobs.len() >= 5), "{usual:?}");
        for seed in 0..4 {
            assert_eq!(times(files, Some(seed)), usual, "{files} files");
        }
    }
}
