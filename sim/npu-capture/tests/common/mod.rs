// SPDX-License-Identifier: MIT OR Apache-2.0
//! Helpers that make recordings.

#![allow(dead_code, reason = "each test file uses some")]

use std::collections::BTreeMap;

use npu_capture::format::SectionKind;
use npu_capture::{Capture, Recorder, RecorderOptions};
use npu_matmul::{Engine, Weights};
use npu_model::{Model, ModelOptions};
use rocket_uapi::{Device, DevicePool};

/// Options for a recording without data.
pub(crate) fn bare() -> RecorderOptions {
    RecorderOptions {
        zero_data: true,
        ..RecorderOptions::default()
    }
}

/// A model of the chip.
pub(crate) fn plain_model() -> Device {
    Model::new(ModelOptions::default()).open_device()
}

/// Records the jobs that `run` submits to `device`.
pub(crate) fn recorded(
    device: &Device,
    options: RecorderOptions,
    run: impl FnOnce(&Device),
) -> Capture {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x");
    let recorder = Recorder::create(&path, &device.info(), options).unwrap();
    run(&recorder.open(device).unwrap());
    let summary = recorder.finish().unwrap();
    let capture = Capture::open(&path).unwrap();
    assert_eq!(summary.jobs as usize, capture.jobs().len());
    capture
}

/// Contents of objects, by handle.
pub(crate) type Memory = BTreeMap<u32, Vec<u8>>;

/// Reads objects, as a recorder does.
pub(crate) fn reader(memory: &Memory) -> impl Fn(u32, u64, &mut [u8]) {
    |handle, offset, into| {
        let bytes = &memory[&handle][offset as usize..];
        into.copy_from_slice(&bytes[..into.len()]);
    }
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
    let gemm = engine.prepare(&weights, m).unwrap();
    let mut c = vec![0; m * n];
    for time in 0..times {
        let a = numbers(m * k, 2 + time);
        gemm.run(&a, &mut c).unwrap();
    }
    c
}

/// Records `times` matmuls.
pub(crate) fn recorded_matmuls(times: usize, options: RecorderOptions) -> Capture {
    recorded(&plain_model(), options, |device| {
        drop(multiply(device, times))
    })
}

/// Fields of a section.
pub(crate) fn fields(fields: &[u32]) -> Vec<u8> {
    fields.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// The section of a device with empty names.
pub(crate) fn device() -> (SectionKind, Vec<u8>) {
    (SectionKind::DEVICE, [fields(&[0; 6]), vec![0; 10]].concat())
}
