// SPDX-License-Identifier: MIT OR Apache-2.0
//! Overlap of CPU and NPU, on a device whose jobs end when a thread waits for them.
#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests: a failed unwrap is a failed test"
)]

mod common;
#[path = "common/slow.rs"]
mod slow;

use std::sync::Arc;

use common::{multiply, random_i8};
use npu_matmul::{Engine, Output, PlanOptions, Weights, reference};
use npu_model::{Model, ModelOptions};
use rocket_uapi::DevicePool;
use slow::{Entry, Log, slow};

/// An engine on one device, where a wave is one SUBMIT.
fn engine(options: PlanOptions) -> (Engine, Arc<Log>) {
    let log = Arc::new(Log::default());
    let device = slow(Model::new(ModelOptions::default()).open(), &log);
    let pool = DevicePool::open(&device, 1).unwrap();
    let engine = Engine::with_options(pool, options).unwrap();
    (engine.observed_by(Arc::clone(&log) as _), log)
}

fn submitted(log: &[Entry]) -> usize {
    let jobs = |entry: &Entry| match entry {
        Entry::Submitted(jobs) => *jobs,
        _ => 0,
    };
    log.iter().map(jobs).sum()
}

fn count(log: &[Entry], of: Entry) -> usize {
    log.iter().filter(|entry| **entry == of).count()
}

/// A matmul is divided into parts by default. Each part is submitted as soon as it is packed, and
/// read as soon as it has ended, while others run.
#[test]
fn the_cpu_packs_and_unpacks_while_the_npu_computes() {
    let (engine, log) = engine(PlanOptions::default());
    let (m, n, k) = (512, 1024, 2048);
    let (a, b) = (random_i8(1, m * k), random_i8(2, n * k));
    let weights = engine.load(Weights::i8(n, k, &b)).unwrap();
    let parts = engine.prepare(&weights, m, Output::I32).unwrap();
    let parts = parts.plan().steps().len();
    assert!(parts >= 3, "{parts} parts");
    let mut c = vec![0; m * n];
    multiply(&engine, &weights, m, &a, &mut c).unwrap();
    assert!(c == reference::multiply_i32(m, n, k, &a, &b));

    let log = log.take();
    let (started, rest) = log.split_at(2 * parts);
    assert_eq!(started, [Entry::Packed, Entry::Submitted(1)].repeat(parts));
    assert_eq!(rest, [Entry::Ended, Entry::Unpacked].repeat(parts));
}

/// If not all parts may be in flight, the next one is packed and submitted as soon as there is
/// room.
#[test]
fn parts_beyond_what_may_be_in_flight_follow() {
    let mut options = PlanOptions {
        row_tile: Some(16),
        ..PlanOptions::default()
    };
    options.limits.buffer_bytes = 16 << 10;
    let (engine, log) = engine(options);
    let (m, n, k) = (400, 64, 256);
    let (a, b) = (random_i8(1, m * k), random_i8(2, n * k));
    let weights = engine.load(Weights::i8(n, k, &b)).unwrap();
    let mut c = vec![0; m * n];
    multiply(&engine, &weights, m, &a, &mut c).unwrap();
    assert!(c == reference::multiply_i32(m, n, k, &a, &b));

    let log = log.take();
    let jobs = submitted(&log);
    assert_eq!(count(&log, Entry::Unpacked), jobs, "{log:?}");
    let first_end = log.iter().position(|entry| *entry == Entry::Ended).unwrap();
    let before = submitted(&log[..first_end]);
    // Some parts wait for room, and none is submitted after all others have ended.
    assert!(before > 1 && before < jobs, "{log:?}");
    let mut running = 0;
    for entry in &log {
        match entry {
            Entry::Submitted(jobs) => running += jobs,
            Entry::Ended => running -= 1,
            Entry::Quantised | Entry::Packed | Entry::Unpacked => {
                assert!(running > 0 || before > 0)
            }
        }
    }
    assert_eq!(running, 0);
}
