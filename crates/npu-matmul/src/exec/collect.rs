// SPDX-License-Identifier: MIT OR Apache-2.0
//! What becomes of the numbers in an output tile.

use std::marker::PhantomData;
use std::ops::Range;

use crate::unpack::{
    Destination, Mode, Partial, Scales, TileRows, unpack, unpack_dequantised, unpack_scaled,
};

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

impl<'a> OutputTile<'a> {
    fn rows(&self) -> TileRows<'a> {
        TileRows {
            bytes: self.bytes,
            rows: self.tile_rows,
            first: self.first_row,
        }
    }

    /// What the first K tile finds is no result.
    fn mode(&self) -> Mode {
        if self.k_tile == 0 {
            Mode::Store
        } else {
            Mode::Add
        }
    }

    /// The tile's columns of these rows of the result.
    fn to<'r, S>(&self, rows: &'r mut [S], stride: usize) -> Destination<'r, S> {
        Destination {
            rows,
            stride,
            columns: self.columns.clone(),
        }
    }
}

/// Makes a result of output tiles. For each element, those of different K
/// tiles come in their order; the NPU may have added some up, which then come as
/// the first of them.
pub(crate) trait Collect: Send + Sync {
    /// What the NPU writes.
    type Partial: Partial;

    /// Elements of the result.
    type Out: Send + Sync;

    /// Whether the result is only a part of another product's, which is counted.
    fn is_part(&self) -> bool {
        false
    }

    /// Takes a tile into rows of the result, which are `stride` elements long
    /// and whole.
    fn collect(&self, tile: &OutputTile<'_>, rows: &mut [Self::Out], stride: usize);
}

/// Adds the K tiles up, as they are.
pub(crate) struct Sums<T>(PhantomData<fn() -> T>);

impl<T> Sums<T> {
    pub(crate) const fn new() -> Self {
        Self(PhantomData)
    }
}

impl<T: Partial> Collect for Sums<T>
where
    T::Sum: Send + Sync,
{
    type Partial = T;
    type Out = T::Sum;

    fn collect(&self, tile: &OutputTile<'_>, rows: &mut [T::Sum], stride: usize) {
        unpack::<T>(tile.rows(), tile.mode(), tile.to(rows, stride));
    }
}

/// Adds the K tiles up, and replaces the complete sums by the bits of the floats
/// that they stand for.
pub(crate) struct Dequantised<'a, T> {
    row_scales: &'a [f32],
    column_scales: &'a [f32],
    partial: PhantomData<fn() -> T>,
}

impl<'a, T> Dequantised<'a, T> {
    /// With a scale for each row and column.
    pub(crate) const fn new(row_scales: &'a [f32], column_scales: &'a [f32]) -> Self {
        Self {
            row_scales,
            column_scales,
            partial: PhantomData,
        }
    }
}

impl<T: Partial<Sum = i32>> Collect for Dequantised<'_, T> {
    type Partial = T;
    type Out = i32;

    fn collect(&self, tile: &OutputTile<'_>, rows: &mut [i32], stride: usize) {
        let to = tile.to(rows, stride);
        if !tile.completes {
            return unpack::<T>(tile.rows(), tile.mode(), to);
        }
        let scales = Scales {
            rows: &self.row_scales[tile.row..],
            row_step: 1,
            columns: self.column_scales,
        };
        unpack_dequantised::<T>(tile.rows(), tile.mode(), scales, to);
    }
}

/// Groups of K that have scales.
#[derive(Clone, Copy)]
pub(crate) struct Groups {
    /// Number of groups.
    pub(crate) count: usize,
    /// K tiles of each but the last, which may have less.
    pub(crate) k_tiles: usize,
}

impl Groups {
    /// All of K is one.
    const ONE: Self = Self {
        count: 1,
        k_tiles: usize::MAX,
    };
}

/// Adds the K tiles up as floats, each with its scales.
pub(crate) struct Scaled<'a, T> {
    /// Of a row, all groups of K; then of the next row.
    row_scales: &'a [f32],
    /// Of a group of K, all columns; then of the next group.
    column_scales: &'a [f32],
    groups: Groups,
    /// Whether the sums are added to what the result holds.
    adds: bool,
    partial: PhantomData<fn() -> T>,
}

impl<'a, T> Scaled<'a, T> {
    /// With a scale for each row and column of each group of K; stored.
    pub(crate) const fn groups(
        row_scales: &'a [f32],
        column_scales: &'a [f32],
        groups: Groups,
    ) -> Self {
        Self {
            row_scales,
            column_scales,
            groups,
            adds: false,
            partial: PhantomData,
        }
    }

    /// With a scale for each row and column; added to the result.
    pub(crate) const fn added(row_scales: &'a [f32], column_scales: &'a [f32]) -> Self {
        Self {
            adds: true,
            ..Self::groups(row_scales, column_scales, Groups::ONE)
        }
    }
}

impl<T: Partial<Sum: Into<f64>>> Collect for Scaled<'_, T> {
    type Partial = T;
    type Out = f32;

    fn is_part(&self) -> bool {
        self.adds
    }

    fn collect(&self, tile: &OutputTile<'_>, rows: &mut [f32], stride: usize) {
        let group = tile.k_tile / self.groups.k_tiles;
        let mode = if self.adds { Mode::Add } else { tile.mode() };
        let scales = Scales {
            rows: &self.row_scales[tile.row * self.groups.count + group..],
            row_step: self.groups.count,
            columns: &self.column_scales[group * stride..][..stride],
        };
        unpack_scaled::<T>(tile.rows(), mode, scales, tile.to(rows, stride));
    }
}
