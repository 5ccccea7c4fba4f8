// SPDX-License-Identifier: MIT OR Apache-2.0
//! Converts weights of any format to the engine's.
//!
//! ```text
//! F16        -> FP16                     unchanged
//! others     -> f32 rows -> FP16         with a power of two per row where needed
//! any        -> f32 rows -> INT8, INT4   with scales, by the engine
//! ```

use std::borrow::Cow;
use std::sync::atomic::{AtomicUsize, Ordering};

use half::f16;
use npu_matmul::{Engine, PackedWeights, Section, Weights, run_parallel};
use rayon::prelude::*;

use crate::ggml::abi::type_id;
use crate::ggml::tensor_data::TensorMatrix;
use crate::weights::memory;
use crate::weights::node_error::NodeFailure;
use crate::weights::quants;
use crate::weights::verify::OriginalWeights;
use npu_offload::ComputeType;

/// One weight matrix in the engine's memory.
#[derive(Debug)]
pub(crate) struct PackedMatrix {
    pub(crate) weights: PackedWeights,
    /// The factors of outputs, one power of two per row; empty if all are one. (No `Option`:
    /// compilers read the length of the vector before they know that there is one, and valgrind
    /// reports it.)
    pub(crate) factors: Vec<f32>,
    /// The original weights, while matmuls are verified.
    pub(crate) original: Option<OriginalWeights>,
}

/// Loads `matrix` in `precision`, and keeps the original if `keep` is set.
///
/// # Errors
/// Rows that do not suit the format, weights that are not finite numbers, or an error of the
/// engine.
pub(crate) fn load_matrix(
    engine: &Engine,
    precision: ComputeType,
    matrix: &TensorMatrix<'_>,
    keep: bool,
) -> Result<PackedMatrix, NodeFailure> {
    let (n, k) = (matrix.rows.len(), matrix.k);
    let format = matrix.format;
    let row_bytes = format.number.row_bytes(k);
    let suits = |row: &&[u8]| Some(row.len()) == row_bytes && format.is_aligned(row);
    if !matrix.rows.iter().all(suits) {
        return Err(NodeFailure::Data("weights"));
    }
    let original = keep.then(|| OriginalWeights::of(matrix)).flatten();
    let (weights, factors) = match precision.quantisation() {
        None => {
            let (halves, factors) = halves(engine, matrix)?;
            (engine.load(Weights::f16(n, k, &halves))?, factors)
        }
        Some(to) => {
            let bad = AtomicUsize::new(usize::MAX);
            let fill = |index: usize, row: &mut [f32]| {
                format.decode(matrix.rows[index], row);
                if quants::magnitude(row).is_none() {
                    // Relaxed, because only the number itself counts, which a join publishes.
                    bad.fetch_min(index, Ordering::Relaxed);
                    row.fill(0.0);
                }
            };
            let weights = engine.load(Weights::quantised_rows(n, k, to, fill));
            match bad.into_inner() {
                usize::MAX => (weights?, Vec::new()),
                row => return Err(NodeFailure::NotFinite { row }),
            }
        }
    };
    Ok(PackedMatrix {
        weights,
        factors,
        original,
    })
}

/// FP16 numbers, and the factors of their rows; no factors if all are one.
type Halves<'a> = (Cow<'a, [f16]>, Vec<f32>);

/// Converts `matrix` to FP16.
fn halves<'a>(engine: &Engine, matrix: &TensorMatrix<'a>) -> Result<Halves<'a>, NodeFailure> {
    let misaligned = || NodeFailure::Data("weights");
    if matrix.format.number.id == type_id::F16 {
        let halves = match matrix.dense {
            Some(bytes) => Cow::Borrowed(quants::as_f16(bytes).ok_or_else(misaligned)?),
            None => {
                let mut halves = memory::zeroed::<f16>(matrix.rows.len() * matrix.k)?;
                for (to, row) in halves.chunks_exact_mut(matrix.k).zip(&matrix.rows) {
                    to.copy_from_slice(quants::as_f16(row).ok_or_else(misaligned)?);
                }
                Cow::Owned(halves)
            }
        };
        return match quants::first_not_finite(&halves, matrix.k) {
            Some(row) => Err(NodeFailure::NotFinite { row }),
            None => Ok((halves, Vec::new())),
        };
    }
    let k = matrix.k;
    let mut halves = memory::zeroed::<f16>(matrix.rows.len() * k)?;
    let mut factors: Vec<f32> = run_parallel(|| {
        halves
            .par_chunks_exact_mut(k)
            .zip(&matrix.rows)
            .map_init(
                || (engine.stopwatch(Section::PackWeights), vec![0.0; k]),
                |(_, row), (halves, bytes)| {
                    matrix.format.decode(bytes, row);
                    quants::round_to_f16(row, halves)
                },
            )
            .collect()
    });
    if let Some(row) = factors.iter().position(|factor| factor.is_nan()) {
        return Err(NodeFailure::NotFinite { row });
    }
    if factors.iter().all(|factor| *factor == 1.0) {
        factors = Vec::new();
    }
    Ok((Cow::Owned(halves), factors))
}
