// SPDX-License-Identifier: MIT OR Apache-2.0
//! The way through a tile and the rows of its result, line by line.

use std::array;
use std::ops::Range;

use zerocopy::{FromBytes, IntoBytes};

use super::partial::Partial;
use crate::prefetch::prefetch;

/// Rows at a time; a caller that splits a tile between threads gives each a
/// multiple of it, so that none reads the lines of another.
pub const ROWS: usize = 16;

/// Results of a cache line, of four bytes each.
pub(super) const LINE: usize = 16;

/// Surfaces that a line has results of, at most.
const SURFACES: usize = 4;

/// How many results ahead the tile is fetched. (Measured with the `kernels`
/// benchmark: 16 to 64 do alike, without it a third is lost.)
const AHEAD: usize = 2 * LINE;

/// Whether a result replaces the destination or is added to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The first K tile: the destination's old content is lost.
    Store,
    /// A further K tile.
    Add,
}

/// Rows of an output tile. They are counted as those of the result:
/// [`Partial::TILE_ROWS`] of the tile are one.
#[derive(Clone, Copy, Debug)]
pub struct TileRows<'a> {
    /// The tile; what is behind its last column is not looked at.
    pub bytes: &'a [u8],
    /// Rows of the tile.
    pub rows: usize,
    /// The row that goes to the destination's first.
    pub first: usize,
}

/// The rows of a result that a tile goes to.
#[derive(Debug)]
pub struct Destination<'a, S> {
    /// Whole rows, one behind the other.
    pub rows: &'a mut [S],
    /// Elements of a row.
    pub stride: usize,
    /// Where in each row column 0 of the tile goes, and how far the tile may
    /// reach. Nothing goes to rows that do not have all of them.
    pub columns: Range<usize>,
}

/// What becomes of the elements of a tile in a result of `Out`.
pub(super) trait Take<T, Out> {
    /// What it has to know of the columns of a line, for all rows.
    type Columns;

    /// For the columns of the destination from `first` on.
    fn columns(&self, first: usize) -> Self::Columns;

    /// The results of a line of row `row`, which are `old` until then.
    fn take(
        &self,
        row: usize,
        columns: &Self::Columns,
        elements: [T; LINE],
        old: [Out; LINE],
    ) -> [Out; LINE];
}

/// A line of each row, then the next line of each.
#[inline(always)]
pub(super) fn each_line<T: Partial, Out: Copy + Default, How: Take<T, Out>>(
    tile: TileRows<'_>,
    to: Destination<'_, Out>,
    how: &How,
) {
    let whole = tile.bytes.len() / size_of::<T::Bytes>() * size_of::<T::Bytes>();
    let atoms = <[T::Bytes]>::ref_from_bytes(&tile.bytes[..whole]).unwrap_or_default();
    // Behind the tile's last row begins the next atom of its first.
    let height = tile.rows.saturating_sub(tile.first);
    if height == 0 || to.stride < to.columns.end {
        return;
    }
    let end = height.saturating_mul(to.stride).min(to.rows.len());
    let chunks = to.rows[..end].chunks_mut((ROWS * to.stride).max(1));
    for (first_row, rows) in (0..).step_by(ROWS).zip(chunks) {
        let count = rows.len().div_ceil(to.stride);
        for column in to.columns.clone().step_by(LINE) {
            let columns = how.columns(column);
            let width = LINE.min(to.columns.end - column);
            let surface = (column - to.columns.start) / T::LANES;
            // What the rows have of a surface.
            let of_surface = |surface: usize| -> &[T::Bytes] {
                let first = surface * tile.rows + tile.first + first_row;
                let atoms = atoms.get(first..).unwrap_or_default();
                atoms.get(..count).unwrap_or(atoms)
            };
            let ahead = surface + AHEAD / T::LANES;
            for surface in ahead..ahead + LINE / T::LANES {
                prefetch(of_surface(surface).as_bytes());
            }
            let surfaces: [_; SURFACES] = array::from_fn(|index| of_surface(surface + index));
            let surfaces = &surfaces[..LINE / T::LANES];
            let whole = width == LINE && surfaces.iter().all(|atoms| atoms.len() == count);
            for row in 0..count {
                let Some(out) = rows.get_mut(row * to.stride + column..) else {
                    continue;
                };
                let mut elements = [T::default(); LINE];
                if whole && let Some(out) = out.first_chunk_mut::<LINE>() {
                    for (to, atoms) in elements.chunks_exact_mut(T::LANES).zip(surfaces) {
                        to.copy_from_slice(T::atom(atoms[row]).as_ref());
                    }
                    *out = how.take(first_row + row, &columns, elements, *out);
                    continue;
                }
                let mut present = 0;
                for (to, atoms) in elements.chunks_exact_mut(T::LANES).zip(surfaces) {
                    let Some(&bytes) = atoms.get(row) else { break };
                    to.copy_from_slice(T::atom(bytes).as_ref());
                    present += T::LANES;
                }
                let Some(out) = out.get_mut(..present.min(width)) else {
                    continue;
                };
                let mut results = [Out::default(); LINE];
                results[..out.len()].copy_from_slice(out);
                results = how.take(first_row + row, &columns, elements, results);
                out.copy_from_slice(&results[..out.len()]);
            }
        }
    }
}
