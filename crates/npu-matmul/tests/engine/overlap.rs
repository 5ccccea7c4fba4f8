// SPDX-License-Identifier: MIT OR Apache-2.0
//! Overlap of CPU and NPU, on a device whose jobs end when a thread waits for them.

use npu_matmul::quantise::Quantisation;
use npu_matmul::{PlanOptions, WeightFormat};

use crate::common::matmul::Matmul;
use crate::common::slow::{Entry, slow_engine};
use crate::common::{Shape, plan};

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
    let (engine, log) = slow_engine(PlanOptions::default());
    let shape = Shape::new(768, 1024, 2048);
    let matmul = Matmul::new(&engine, WeightFormat::Int8, shape, 1).unwrap();
    let parts = plan(&engine, &matmul.weights, shape.m).steps().len();
    assert!(parts >= 3, "{parts} parts");
    matmul.check(&engine).unwrap();

    let log = log.take();
    let (started, rest) = log.split_at(2 * parts);
    assert_eq!(started, [Entry::Packed, Entry::Submitted(1)].repeat(parts));
    assert_eq!(rest, [Entry::Ended, Entry::Unpacked].repeat(parts));
}

/// The rows of a part are quantised just before it is packed, while earlier parts run.
#[test]
fn rows_are_quantised_while_the_npu_computes() {
    let (engine, log) = slow_engine(PlanOptions {
        row_tile: Some(256),
        ..PlanOptions::default()
    });
    let format = WeightFormat::Quantised(Quantisation::W8A8Hadamard);
    let matmul = Matmul::new(&engine, format, Shape::new(768, 1024, 2048), 1).unwrap();
    matmul.run(&engine).unwrap();

    let log = log.take();
    let bands = log.split(|entry| *entry == Entry::Quantised).skip(1);
    let started: Vec<_> = bands.map(|band| &band[..2]).collect();
    let submitted = |band: &&[Entry]| matches!(band, [Entry::Packed, Entry::Submitted(_)]);
    assert_eq!(started.len(), 3, "{log:?}");
    assert!(started.iter().all(submitted), "{log:?}");
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
    let (engine, log) = slow_engine(options);
    let shape = Shape::new(400, 64, 256);
    let matmul = Matmul::new(&engine, WeightFormat::Int8, shape, 1).unwrap();
    matmul.check(&engine).unwrap();

    let log = log.take();
    let jobs = submitted(&log);
    assert_eq!(count(&log, Entry::Unpacked), jobs, "{log:?}");
    let first_end = log.iter().position(|entry| *entry == Entry::Ended).unwrap();
    let before = submitted(&log[..first_end]);
    // Some parts wait for room.
    assert!(before > 1 && before < jobs, "{log:?}");
    assert_eq!(count(&log, Entry::Ended), jobs, "{log:?}");
}
