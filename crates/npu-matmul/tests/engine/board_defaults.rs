// SPDX-License-Identifier: MIT OR Apache-2.0
//! Plans of an uncalibrated board, for matrices of a language model with a billion weights, run on
//! a strict model. The lint warns of nothing, and results are right.
//!
//! Other tests allow every legal tile, as the software model does by default.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use npu_matmul::profile::MeasuredTile;
use npu_matmul::{Dtype, Engine, JobEvent, Observer, PlanOptions, Weights, reference};

use crate::common::matmul::check_floats;
use crate::common::{
    DEVICES, Lint, Shape, check_product, multiply, random_f16, random_i8, strict_engine,
};

/// The NPU's boot clock (E-clock-boot), and the highest clock that boards may be set to.
const CLOCKS: [u64; 2] = [200_000_000, 1_000_000_000];

/// Input and output channels, and rows from a token to a micro-batch: the key, query, gate and down
/// matrices of Llama-3.2-1B, and the gate of Gemma-3-1B.
const SHAPES: [([usize; 2], &[usize]); 5] = [
    ([2048, 512], &[1, 5, 32, 128, 509, 512]),
    ([2048, 2048], &[1, 96]),
    ([2048, 8192], &[33]),
    ([8192, 2048], &[1, 40]),
    ([1152, 6912], &[7]),
];

/// Rows of a matmul that are compared one by one.
const COMPARED: usize = 12;

/// Lints each program. Keeps the cases seen: whether weights fit into CBUF beside the features.
#[derive(Debug, Default)]
struct Resident(Mutex<BTreeSet<bool>>);

impl Observer for Resident {
    fn submitting(&self, submission: &JobEvent<'_>) {
        Lint.submitting(submission);
        for task in &submission.job.tasks {
            let tile = MeasuredTile {
                dtype: submission.dtype,
                rows: task.m_padded as usize,
                k: task.k_padded as usize,
                n: task.n_padded as usize,
                evidence: Cow::Borrowed(""),
            };
            self.0.lock().unwrap().insert(tile.fits_cbuf(false));
        }
    }
}

/// Tiles that stream, as `npu-probe first` allows them.
const STREAMED: [(Dtype, [usize; 3]); 2] = [
    (Dtype::Int8, [544, 544, 4096]),
    (Dtype::Fp16, [384, 384, 4096]),
];

/// Options of an uncalibrated board, which may stream weights.
fn streaming(clock_hz: u64) -> PlanOptions {
    let mut options = PlanOptions::uncalibrated(clock_hz);
    let profile = Arc::make_mut(&mut options.profile);
    for (dtype, [rows, k, n]) in STREAMED {
        profile.envelope.push(MeasuredTile {
            dtype,
            rows,
            k,
            n,
            evidence: Cow::Borrowed(""),
        });
    }
    options
}

/// Runs matmuls on an engine with the options of an uncalibrated board, at each clock, also where
/// weights may stream.
fn on_boards(test: &str, multiply: impl Fn(&Engine, Shape)) {
    if test_support::emulated() {
        println!("SKIP {test}: minutes of an emulator");
        return;
    }
    let resident = CLOCKS.map(PlanOptions::uncalibrated);
    for options in resident.into_iter().chain([streaming(CLOCKS[0])]) {
        let streams = options.streams(Dtype::Int8);
        assert_eq!(streams, options.streams(Dtype::Fp16));
        let options = PlanOptions {
            check_first: Some(true),
            ..options
        };
        let resident = Arc::new(Resident::default());
        let (engine, model) = strict_engine(options, DEVICES);
        let engine = engine.observed_by(Arc::clone(&resident) as _);
        for ([k, n], rows) in SHAPES {
            for &m in rows {
                multiply(&engine, Shape::new(m, n, k));
                assert_eq!(model.events(), [], "{m}x{k}x{n}");
            }
        }
        let seen = resident.0.lock().unwrap().clone();
        assert_eq!(seen.contains(&false), streams, "{seen:?}");
    }
}

/// Rows to compare: the first, the last, and some between.
fn compared(m: usize) -> Vec<usize> {
    let count = m.min(COMPARED);
    let at = |index: usize| index * (m - 1) / (count - 1).max(1);
    (0..count).map(at).collect()
}

fn rows_of<T: Copy>(matrix: &[T], width: usize, rows: &[usize]) -> Vec<T> {
    let row = |&row: &usize| &matrix[row * width..][..width];
    rows.iter().flat_map(row).copied().collect()
}

#[test]
fn int8_is_exact_with_a_boards_default_plans() {
    on_boards(
        "int8_is_exact_with_a_boards",
        |engine, Shape { m, n, k }| {
            let (a, b) = (random_i8(1, m * k), random_i8(2, n * k));
            let weights = engine.load(Weights::i8(n, k, &b)).unwrap();
            check_product(engine, &weights, &a, &b);
        },
    );
}

#[test]
fn fp16_is_within_its_bound_with_a_boards_default_plans() {
    on_boards(
        "fp16_is_within_its_bound_with_a_boards",
        |engine, Shape { m, n, k }| {
            let (a, b) = (random_f16(1, m * k), random_f16(2, n * k));
            let weights = engine.load(Weights::f16(n, k, &b)).unwrap();
            let mut c = vec![f32::NAN; m * n];
            multiply(engine, &weights, m, &a, &mut c).unwrap();
            assert!(c.iter().all(|c| c.is_finite()));
            let rows = compared(m);
            let (a, c) = (rows_of(&a, k, &rows), rows_of(&c, n, &rows));
            let tiles = weights.plan().k_tile_count();
            let expected = reference::multiply_f64(rows.len(), n, k, &a, &b, tiles);
            check_floats(&c, &expected);
        },
    );
}
