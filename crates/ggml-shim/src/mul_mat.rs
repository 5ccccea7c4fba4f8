// SPDX-License-Identifier: MIT OR Apache-2.0
//! Turns ggml's matmuls into calls of the engine, all of a list at once.
//!
//! ```text
//! for each matmul of the list
//!     for each of its weight matrices that multiplies activation rows  -> a part
//!         pack the matrix, unless it is resident
//!         make the rows contiguous        (nothing to do in the usual case)
//!         FP16: round the rows            (once for all parts of the same rows)
//! multiply all parts                      (the engine quantises rows for INT8, once)
//! correct the outputs, and copy rows that chose their weights to their places
//! ```
//!
//! Matmuls of a list do not depend on each other: none writes what another reads or writes. The
//! engine does tiling, packing and quantising.

mod batch;
mod by_expert;
mod operands;
mod rows;

use npu_matmul::Engine;

use self::batch::{Batch, BatchLimits, Part};
pub(crate) use self::operands::MulMat;
pub(crate) use self::rows::RowScratch;
use crate::mul_mat_error::ListError;
use crate::supports::Shape;

/// Computes matmuls that do not depend on each other.
///
/// # Errors
/// See [`MulMatError`]; then all outputs are invalid.
pub(crate) fn compute(
    engine: &Engine,
    scratch: &RowScratch,
    matmuls: &mut [MulMat<'_>],
) -> Result<(), ListError> {
    compute_within(engine, scratch, matmuls, batch::MOST)
}

/// Does the same with these limits of a batch.
fn compute_within(
    engine: &Engine,
    scratch: &RowScratch,
    matmuls: &mut [MulMat<'_>],
    most: BatchLimits,
) -> Result<(), ListError> {
    let mut batch = Batch::new(engine, scratch, most);
    for index in 0..matmuls.len() {
        let matmul = &matmuls[index];
        let parts = match matmul.offload.experts {
            Some(experts) => by_expert::parts(matmul, index, experts),
            None => Ok(parts(matmul, index)),
        };
        for part in parts.map_err(ListError::of(index))? {
            batch.push(matmuls, part)?;
        }
    }
    batch.flush(matmuls)
}

/// Returns each weight matrix with the activation rows that it multiplies, in the order of the
/// outputs.
fn parts(matmul: &MulMat<'_>, index: usize) -> Vec<Part> {
    let Shape {
        m,
        matrices,
        repeats,
        ..
    } = matmul.offload.shape;
    // Matrices next to each other in dimension 2 that the same weights multiply are one run of
    // rows, and so are their outputs.
    let rows = repeats[0] * m;
    let runs = matrices[0] * matrices[1] * repeats[1];
    let part = |run: usize| Part {
        matmul: index,
        matrix: [run % matrices[0], run / matrices[0] / repeats[1]],
        rows: (run * rows..(run + 1) * rows).collect(),
        is_scattered: false,
    };
    (0..runs).map(part).collect()
}

#[cfg(test)]
pub(crate) mod tests;
