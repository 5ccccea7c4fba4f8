// SPDX-License-Identifier: MIT OR Apache-2.0
//! Plans of an uncalibrated board, for matrices of a language model with a billion weights, run on
//! a strict model. The lint warns of nothing, all tiles are known to have run, and results are
//! right.
//!
//! Other tests allow every legal tile, as the software model does by default.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use npu_matmul::profile::MeasuredTile;
use npu_matmul::{Engine, Observer, PlanOptions, Profile, SubmittedJob, Weights, reference};

use crate::common::{
    DEVICES, Lint, Random, Shape, check_floats, multiply, random_f16, random_i8, strict_engine,
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

/// Lints each program, and checks the tiles.
#[derive(Debug)]
struct Tiles {
    profile: Arc<Profile>,
    /// The cases seen: whether weights fit into CBUF beside the features.
    resident: Mutex<BTreeSet<bool>>,
}

impl Observer for Tiles {
    fn submitting(&self, submission: &SubmittedJob<'_>) {
        Lint.submitting(submission);
        for task in &submission.job.tasks {
            let tile = MeasuredTile {
                dtype: submission.dtype,
                rows: task.m_padded as usize,
                k: task.k_padded as usize,
                n: task.n_padded as usize,
                evidence: Cow::Borrowed(""),
            };
            let has_run = |known: &MeasuredTile| {
                known.dtype == tile.dtype
                    && known.rows >= tile.rows
                    && known.k >= tile.k
                    && known.n >= tile.n
            };
            assert!(self.profile.envelope.iter().any(has_run), "{tile:?}");
            self.resident.lock().unwrap().insert(tile.fits_cbuf(false));
        }
    }
}

/// Runs matmuls on an engine with the options of an uncalibrated board, at each clock.
fn on_boards(test: &str, multiply: impl Fn(&Engine, Shape)) {
    if test_support::emulated() {
        println!("SKIP {test}: minutes of an emulator");
        return;
    }
    for clock_hz in CLOCKS {
        on_board(clock_hz, &multiply);
    }
}

fn on_board(clock_hz: u64, multiply: impl Fn(&Engine, Shape)) {
    let options = PlanOptions {
        check_first: Some(true),
        ..PlanOptions::uncalibrated(clock_hz)
    };
    let tiles = Arc::new(Tiles {
        profile: Arc::clone(&options.profile),
        resident: Mutex::default(),
    });
    let (engine, model) = strict_engine(options, DEVICES);
    let engine = engine.observed_by(Arc::clone(&tiles) as _);
    for ([k, n], rows) in SHAPES {
        for &m in rows {
            multiply(&engine, Shape::new(m, n, k));
            assert_eq!(model.events(), [], "{m}x{k}x{n}");
        }
    }
    let seen = tiles.resident.lock().unwrap().clone();
    assert_eq!(seen, BTreeSet::from([false, true]), "resident and streamed");
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

/// Dot product modulo 2^64.
fn dot(x: impl Iterator<Item = i64>, y: &[i64]) -> i64 {
    x.zip(y)
        .fold(0, |sum: i64, (x, y)| sum.wrapping_add(x.wrapping_mul(*y)))
}

/// Whether C r = A (B^T r) modulo 2^64, for a random vector r. A wrong element of C passes in at
/// most one case of 2^32.
fn is_product(Shape { m, n, k }: Shape, a: &[i8], b: &[i8], c: &[i32]) -> bool {
    let mut random = Random::new(3);
    let r: Vec<i64> = (0..n).map(|_| random.next() as i64).collect();
    let mut br = vec![0_i64; k];
    for (row, r) in b.chunks(k).zip(&r) {
        for (sum, &b) in br.iter_mut().zip(row) {
            *sum = sum.wrapping_add(r.wrapping_mul(b.into()));
        }
    }
    let row = |at: usize| {
        let of_c = c[at * n..][..n].iter().map(|&c| c.into());
        let of_a = a[at * k..][..k].iter().map(|&a| a.into());
        dot(of_c, &r) == dot(of_a, &br)
    };
    (0..m).all(row)
}

#[test]
fn int8_is_exact_with_a_boards_default_plans() {
    on_boards("int8_is_exact_with_a_boards", |engine, shape| {
        let Shape { m, n, k } = shape;
        let (a, b) = (random_i8(1, m * k), random_i8(2, n * k));
        let weights = engine.load(Weights::i8(n, k, &b)).unwrap();
        // Junk, so that unwritten elements show.
        let mut c = vec![0x5a5a_5a5a; m * n];
        multiply(engine, &weights, m, &a, &mut c).unwrap();
        assert!(is_product(shape, &a, &b, &c), "{shape:?}");
    });
}

#[test]
fn fp16_is_within_its_bound_with_a_boards_default_plans() {
    on_boards("fp16_is_within_its_bound_with_a_boards", |engine, shape| {
        let Shape { m, n, k } = shape;
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
    });
}
