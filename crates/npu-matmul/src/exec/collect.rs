// SPDX-License-Identifier: MIT OR Apache-2.0
//! What becomes of the numbers in an output tile.

use std::marker::PhantomData;
use std::ops::Range;

use npu_kernels::dequantise::{add_dequantised_row, add_scaled_row};

use crate::unpack::{Destination, Mode, Partial, ROWS, unpack};

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

/// Columns at a time: their sums and the scales stay in the first-level cache.
/// A multiple of every [`Partial::LANES`].
const STRIPE: usize = 128;

/// A number that the CPU adds to a float result with scales.
pub(crate) trait Scalable: Copy + Default {
    /// Adds each sum, times both scales, to `out`.
    fn add_scaled(sums: &[Self], row_scale: f32, column_scales: &[f32], out: &mut [f32]);
}

impl Scalable for i32 {
    fn add_scaled(sums: &[Self], row_scale: f32, column_scales: &[f32], out: &mut [f32]) {
        add_dequantised_row(sums, row_scale, column_scales, out);
    }
}

impl Scalable for f32 {
    fn add_scaled(sums: &[Self], row_scale: f32, column_scales: &[f32], out: &mut [f32]) {
        add_scaled_row(sums, row_scale, column_scales, out);
    }
}

/// Groups of K that have scales.
#[derive(Clone, Copy)]
pub(crate) struct Groups {
    /// How many.
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

impl<T> Collect for Scaled<'_, T>
where
    T: Partial,
    T::Sum: Scalable,
{
    type Partial = T;
    type Out = f32;

    fn is_part(&self) -> bool {
        self.adds
    }

    fn collect(&self, tile: &OutputTile<'_>, rows: &mut [f32], stride: usize) {
        let group = tile.k_tile / self.groups.k_tiles;
        let stores = tile.k_tile == 0 && !self.adds;
        let column_scales = &self.column_scales[group * stride..][..stride];
        let mut sums = [T::Sum::default(); ROWS * STRIPE];
        let height = (rows.len() / stride).min(ROWS);
        for first in tile.columns.clone().step_by(STRIPE) {
            let columns = first..(first + STRIPE).min(tile.columns.end);
            let surface = (first - tile.columns.start) / T::LANES;
            let surfaces = &tile.bytes[surface * tile.tile_rows * size_of::<T::Bytes>()..];
            let to = Destination {
                rows: &mut sums[..height * STRIPE],
                stride: STRIPE,
                columns: 0..columns.len(),
            };
            let add = |row: usize, _, sums: &mut [T::Sum]| {
                let out = &mut rows[row * stride..][columns.clone()];
                if stores {
                    out.fill(0.0);
                }
                let row_scale = self.row_scales[(tile.row + row) * self.groups.count + group];
                T::Sum::add_scaled(sums, row_scale, &column_scales[columns.clone()], out);
            };
            unpack::<T>(
                surfaces,
                tile.tile_rows,
                tile.first_row,
                Mode::Store,
                to,
                add,
            );
        }
    }
}
