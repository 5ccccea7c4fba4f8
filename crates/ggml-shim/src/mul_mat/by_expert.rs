// SPDX-License-Identifier: MIT OR Apache-2.0
//! One `MUL_MAT_ID`: a product in which each row chooses its weight matrices,
//! the experts.
//!
//! ```text
//! weights      [K, N, experts]
//! activations  [K, given, tokens]     given: used, or a divisor of it
//! ids          [used, tokens]         which expert
//! output       [N, used, tokens]      output[j, u, t] = sum over k of
//!                                     weights[k, j, ids[u, t]] * activations[k, u % given, t]
//! ```
//!
//! The rows that chose the same expert are gathered into one matrix, those of
//! all experts are multiplied in one batch, and their outputs scattered. What
//! would take much memory is several batches.

use std::sync::Arc;

use zerocopy::FromBytes;

use super::{MatrixMultiplier, MulMat, MulMatError, part, verify, weights};
use crate::memory;
use crate::pack::{Matrix, PackedMatrix};
use crate::resident::ResidentMatrices;
use crate::supports::{ExpertChoice, Shape};

/// What a batch may hold beside the weights that are kept: no budget knows of it.
/// More than one expert's share is never needed at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BatchLimits {
    /// Weights that are packed for this product only.
    pub(super) weights: usize,
    /// Elements of gathered rows and of their outputs.
    pub(super) rows: usize,
}

/// Half a gibibyte of FP16 weights, and 64 MiB of binary32 rows and outputs with
/// half as much for the rows in FP16: far more jobs than one wave of the engine
/// has.
pub(super) const MOST: BatchLimits = BatchLimits {
    weights: 1 << 28,
    rows: 1 << 24,
};

/// One row of the output: which of a token's experts, which token.
type OutputRow = (usize, usize);

/// Computes `product`, whose experts are `experts`, with at most so much at a
/// time.
pub(super) fn compute<M: MatrixMultiplier>(
    multiplier: &M,
    residents: Option<&ResidentMatrices<PackedMatrix<M::Weights>>>,
    product: &mut MulMat<'_>,
    experts: ExpertChoice,
    most: BatchLimits,
) -> Result<(), MulMatError<M::Error>> {
    let Shape { n, k, matrices, .. } = product.offload.shape;
    let chosen = chosen(product, experts, matrices[0])?;
    let chosen: Vec<(usize, Vec<OutputRow>)> = chosen
        .into_iter()
        .enumerate()
        .filter(|(_, places)| !places.is_empty())
        .collect();
    // Weights that are kept are there all the time.
    let weights = if residents.is_some() { 0 } else { n * k };
    let mut rest = &chosen[..];
    while !rest.is_empty() {
        let rows = rest.iter().map(|(_, places)| places.len() * (k + n));
        let (batch, later) = rest.split_at(together(weights, rows, most));
        compute_batch(multiplier, residents, product, experts, batch)?;
        rest = later;
    }
    Ok(())
}

/// How many of the next experts are computed together: one at least, if there is
/// one. `rows` are the elements of each one's rows and outputs.
fn together(weights: usize, rows: impl Iterator<Item = usize>, most: BatchLimits) -> usize {
    let mut sums = (0_usize, 0_usize);
    let fits = rows.take_while(|rows| {
        sums = (sums.0.saturating_add(weights), sums.1.saturating_add(*rows));
        sums.0 <= most.weights && sums.1 <= most.rows
    });
    fits.count().max(1)
}

/// Computes the rows of some experts, all in one batch.
fn compute_batch<M: MatrixMultiplier>(
    multiplier: &M,
    residents: Option<&ResidentMatrices<PackedMatrix<M::Weights>>>,
    product: &mut MulMat<'_>,
    experts: ExpertChoice,
    chosen: &[(usize, Vec<OutputRow>)],
) -> Result<(), MulMatError<M::Error>> {
    let Shape { n, k, .. } = product.offload.shape;
    let all = chosen
        .iter()
        .map(|(expert, places)| {
            Ok(ExpertRows {
                number: *expert,
                places,
                packed: weights(multiplier, residents, product, *expert, 0)?,
                rows: gather(product, experts, places)?,
            })
        })
        .collect::<Result<Vec<_>, MulMatError<M::Error>>>()?;
    let prepared: Vec<_> = all
        .iter()
        .map(|expert| part::prepare(multiplier, product.offload, &expert.rows))
        .collect::<Result<_, _>>()?;
    let mut outputs: Vec<Vec<f32>> = all
        .iter()
        .map(|expert| memory::zeroed(expert.places.len() * n))
        .collect::<Result<_, _>>()?;
    let parts = all.iter().zip(&prepared).zip(&mut outputs);
    let parts = parts
        .map(|((expert, prepared), out)| prepared.part(&expert.packed, expert.places.len(), out));
    multiplier
        .multiply(parts.collect())
        .map_err(MulMatError::Engine)?;
    for ((expert, prepared), outputs) in all.iter().zip(&prepared).zip(&mut outputs) {
        prepared.mend(&expert.packed, n, outputs);
        if let Some(errors) = &mut product.errors {
            let index = [expert.number, 0];
            let now = Matrix::new(product.decoder, &product.weights, [n, k], index);
            verify(errors, now.as_ref(), &expert.packed, &expert.rows, outputs);
        }
        for ((slot, token), outputs) in expert.places.iter().zip(outputs.chunks_exact(n)) {
            let first = (token * experts.used + slot) * n;
            product
                .out
                .get_mut(first..first + n)
                .ok_or(MulMatError::Data("outputs"))?
                .copy_from_slice(outputs);
        }
    }
    Ok(())
}

/// The rows that chose one expert.
struct ExpertRows<'a, W> {
    number: usize,
    places: &'a [OutputRow],
    packed: Arc<PackedMatrix<W>>,
    /// The expert's activations, one row a place.
    rows: Vec<f32>,
}

/// The activations of `places`.
fn gather<E: std::error::Error + Send + Sync + 'static>(
    product: &MulMat<'_>,
    experts: ExpertChoice,
    places: &[OutputRow],
) -> Result<Vec<f32>, MulMatError<E>> {
    let mut gathered = memory::with_room(places.len() * product.offload.shape.k)?;
    for (slot, token) in places {
        let misplaced = || MulMatError::Data("activations");
        let row = product
            .activations
            .row([slot % experts.given, *token, 0])
            .ok_or_else(misplaced)?;
        gathered.extend_from_slice(<[f32]>::ref_from_bytes(row).map_err(|_| misplaced())?);
    }
    Ok(gathered)
}

/// Which rows chose each of `count` experts.
fn chosen<E: std::error::Error + Send + Sync + 'static>(
    product: &MulMat<'_>,
    experts: ExpertChoice,
    count: usize,
) -> Result<Vec<Vec<OutputRow>>, MulMatError<E>> {
    let misplaced = || MulMatError::Data("numbers of experts");
    let ids = product.ids.as_ref().ok_or_else(misplaced)?;
    let mut chosen = vec![Vec::new(); count];
    for token in 0..product.offload.shape.m {
        let row = ids.row([token, 0, 0]).ok_or_else(misplaced)?;
        let (numbers, _) = row.as_chunks::<{ size_of::<i32>() }>();
        if numbers.len() != experts.used {
            return Err(misplaced());
        }
        for (slot, number) in numbers.iter().enumerate() {
            let number = i32::from_le_bytes(*number);
            let places = usize::try_from(number)
                .ok()
                .and_then(|expert| chosen.get_mut(expert))
                .ok_or(MulMatError::NoSuchExpert { number, count })?;
            places.push((slot, token));
        }
    }
    Ok(chosen)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_batch_holds_is_bounded() {
        let alike = |weights, rows| together(weights, std::iter::repeat_n(rows, 1000), MOST);
        // Experts of large models, and ones larger than the bounds.
        assert_eq!(alike(2880 * 2880, 0), 32);
        assert_eq!(alike(4096 * 14336, 0), 4);
        assert_eq!(alike(1 << 29, 0), 1);
        assert_eq!(alike(usize::MAX, usize::MAX), 1);
        assert_eq!(alike(0, (2048 + 768) * 100), 59);
        assert_eq!(alike(0, 1 << 25), 1);
        assert_eq!(alike(0, 0), 1000);
        let rows = [1 << 23, 1 << 22, 1 << 22, 1].into_iter();
        assert_eq!(together(0, rows, MOST), 3);
    }
}
