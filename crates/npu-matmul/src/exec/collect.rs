// SPDX-License-Identifier: MIT OR Apache-2.0
//! What becomes of the numbers in an output tile.

use std::marker::PhantomData;
use std::ops::Range;

use crate::unpack::{Destination, Mode, Partial, unpack};

/// A part of an output tile: some of its rows. Rows are those of the result,
/// of which each is [`Partial::TILE_ROWS`] of the tile.
pub(crate) struct OutputTile<'a> {
    /// The tile, and what is behind it.
    pub(crate) bytes: &'a [u8],
    /// Rows of the tile.
    pub(crate) tile_rows: usize,
    /// The first of the rows in the tile.
    pub(crate) first_row: usize,
    /// The first of the rows in the result.
    pub(crate) row: usize,
    /// Columns of the result.
    pub(crate) columns: Range<usize>,
    /// Which K tile.
    pub(crate) k_tile: usize,
    /// Whether it is the last one.
    pub(crate) completes: bool,
}

/// Makes a result of output tiles. For each element, those of different K
/// tiles come in their order.
pub(crate) trait Collect: Send + Sync {
    /// What the NPU writes.
    type Partial: Partial;

    /// Elements of the result.
    type Out: Send + Sync;

    /// Takes a tile into rows of the result, which are `stride` elements long
    /// and whole.
    fn collect(&self, tile: &OutputTile<'_>, rows: &mut [Self::Out], stride: usize);
}

/// Called when a part of a row of the result is complete: row, channels, and
/// their sums, which it may change.
pub(crate) trait FinishRow<S>: Fn(usize, Range<usize>, &mut [S]) + Send + Sync {}

impl<S, F: Fn(usize, Range<usize>, &mut [S]) + Send + Sync> FinishRow<S> for F {}

/// Adds the K tiles up, as they are.
pub(crate) struct Sums<T, F> {
    finish_row: F,
    partial: PhantomData<fn() -> T>,
}

impl<T: Partial, F: FinishRow<T::Sum>> Sums<T, F> {
    /// Finishes rows by `finish_row`.
    pub(crate) const fn new(finish_row: F) -> Self {
        Self {
            finish_row,
            partial: PhantomData,
        }
    }
}

impl<T, F> Collect for Sums<T, F>
where
    T: Partial,
    T::Sum: Send + Sync,
    F: FinishRow<T::Sum>,
{
    type Partial = T;
    type Out = T::Sum;

    fn collect(&self, tile: &OutputTile<'_>, rows: &mut [T::Sum], stride: usize) {
        let mode = if tile.k_tile == 0 {
            Mode::Store
        } else {
            Mode::Add
        };
        let to = Destination {
            rows,
            stride,
            columns: tile.columns.clone(),
        };
        let finish = |row, columns, part: &mut [T::Sum]| {
            if tile.completes {
                (self.finish_row)(tile.row + row, columns, part);
            }
        };
        unpack::<T>(tile.bytes, tile.tile_rows, tile.first_row, mode, to, finish);
    }
}
