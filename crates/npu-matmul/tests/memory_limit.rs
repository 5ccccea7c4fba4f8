// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory that an engine keeps, after matmuls of many lengths. The file has one test, since it
//! measures the process.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "helpers of tests: a failed unwrap is a failed test"
)]

#[allow(dead_code, reason = "this binary uses a part")]
#[path = "engine/common/mod.rs"]
mod common;

use std::fs;

use common::matmul::Matmul;
use common::problem::attend;
use common::{DEVICES, Shape};
use npu_matmul::memory::MemoryShares;
use npu_matmul::{Engine, PlanOptions};
use npu_model::{Model, ModelOptions};
use rocket_uapi::DevicePool;

/// The limit, and what the process may take besides: free memory of its allocator, threads, and the
/// operands of one matmul.
const LIMIT: u64 = 4 << 20;
const BESIDES: u64 = 12 << 20;

/// Bytes of memory that the process has.
fn resident() -> u64 {
    let file = fs::read_to_string("/proc/self/statm").unwrap();
    let pages = file.split(' ').nth(1).unwrap();
    pages.parse::<u64>().unwrap() * 4096
}

#[test]
fn matmuls_of_many_lengths_keep_no_more_than_the_limit() {
    let model = Model::new(ModelOptions::default());
    let pool = DevicePool::open(&model.open_device(), DEVICES).unwrap();
    let shares = MemoryShares::of(LIMIT);
    let engine = Engine::with_memory(pool, PlanOptions::default(), shares).unwrap();
    let mut before = 0;
    for (index, m) in (4..1500).step_by(13).enumerate() {
        for format in Matmul::formats() {
            let shape = Shape::new(m, 96, 64);
            let matmul = Matmul::new(&engine, format, shape, 1).unwrap();
            matmul.run(&engine).unwrap();
        }
        if index % 16 == 0 {
            attend(&engine).unwrap();
        }
        // The first matmuls start threads, and the allocator's areas.
        if index == 8 {
            before = resident();
        }
        let device_bytes: u64 = model.allocated_bytes().iter().sum();
        assert!(device_bytes <= LIMIT, "{device_bytes} bytes after M = {m}");
    }
    let more = resident().saturating_sub(before);
    assert!(more <= LIMIT + BESIDES, "{more} bytes more");
}
