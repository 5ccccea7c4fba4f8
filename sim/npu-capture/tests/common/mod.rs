// SPDX-License-Identifier: MIT OR Apache-2.0
//! Helpers that make recordings.

#![allow(dead_code, reason = "each test file uses some")]

use std::path::Path;

use npu_capture::{Capture, Recorder, RecorderOptions};
use npu_matmul::{Engine, Output, Weights};
use npu_model::{Model, ModelOptions};
use rocket_uapi::{Device, DevicePool};

/// A model whose jobs are recorded into `path`.
pub(crate) fn recorded_model(path: &Path, options: RecorderOptions) -> (Device, Recorder) {
    let recorder = Recorder::create(path, options).unwrap();
    let device = Model::new(ModelOptions::default()).open_device();
    (recorder.open(&device).unwrap(), recorder)
}

/// Sizes M, K and N of the matmuls below.
pub(crate) const SIZES: [usize; 3] = [5, 40, 70];

/// Small numbers that differ from element to element.
pub(crate) fn numbers(len: usize, seed: usize) -> Vec<i8> {
    (0..len)
        .map(|at| ((at * 37 + seed * 11) % 23) as i8 - 11)
        .collect()
}

/// Runs `times` matmuls on `device`. Returns the last result.
pub(crate) fn multiply(device: &Device, times: usize) -> Vec<i32> {
    let [m, k, n] = SIZES;
    let engine = Engine::open(DevicePool::open(device, 1).unwrap()).unwrap();
    let weights = engine.load(Weights::i8(n, k, &numbers(n * k, 1))).unwrap();
    let gemm = engine.prepare(&weights, m, Output::I32).unwrap();
    let mut c = vec![0; m * n];
    for time in 0..times {
        let a = numbers(m * k, 2 + time);
        gemm.run(&a, &mut c).unwrap();
    }
    c
}

/// Records `times` matmuls.
pub(crate) fn recorded_matmuls(times: usize, options: RecorderOptions) -> Capture {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("matmuls.rkcap");
    let (device, recorder) = recorded_model(&path, options);
    multiply(&device, times);
    recorder.finish().unwrap();
    Capture::open(&path).unwrap()
}
