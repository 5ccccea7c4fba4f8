// SPDX-License-Identifier: MIT OR Apache-2.0
//! Iterates over a tile and the rows of its result, line by line.

use std::array;
use std::ops::Range;

use zerocopy::IntoBytes;

use super::partial::Partial;
use crate::ATOM_BYTES;
use crate::prefetch::prefetch;

/// Rows processed at a time. A caller that splits a tile between threads gives each thread a
/// multiple of it, so that no two threads read the same lines.
pub const ROWS: usize = 16;

/// Results in a cache line, at four bytes each.
pub(super) const LINE: usize = 16;

/// Largest number of surfaces with results of one line.
const SURFACES: usize = 4;

/// Prefetch distance in the tile, in results. (Measured with the `kernels` benchmark: 16 to 64 are
/// equally fast; without prefetching it is a third slower.)
const AHEAD: usize = 2 * LINE;

/// Whether a result replaces the old value or is added to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The first K tile: the old value is overwritten.
    Store,
    /// A further K tile: the element is added to the old value.
    Add,
}

/// Rows of an output tile.
#[derive(Clone, Copy, Debug)]
pub struct TileRows<'a> {
    /// The tile; bytes behind its last column are ignored.
    pub bytes: &'a [u8],
    /// Number of rows of the tile.
    pub rows: usize,
    /// The row for the first row of the destination.
    pub first: usize,
}

/// Rows of a result for a tile.
#[derive(Debug)]
pub struct Destination<'a, S> {
    /// Whole rows in sequence.
    pub rows: &'a mut [S],
    /// Elements of a row.
    pub stride: usize,
    /// The columns of each row for columns 0.. of the tile; clips the tile. Rows that are too short
    /// for them are not written.
    pub columns: Range<usize>,
}

/// Combines elements of a tile with a result of type `Out`.
pub(super) trait Take<T, Out> {
    /// Data about the columns of a line, shared by all rows.
    type Columns;

    /// The data for the destination's columns from `first` on.
    fn columns(&self, first: usize) -> Self::Columns;

    /// Returns the results of a line of row `row`, which had the values `old`.
    fn take(
        &self,
        row: usize,
        columns: &Self::Columns,
        elements: [T; LINE],
        old: [Out; LINE],
    ) -> [Out; LINE];
}

/// Processes a line of each row, then the next line of each row.
#[inline(always)]
pub(super) fn each_line<T: Partial, Out: Copy + Default, How: Take<T, Out>>(
    tile: TileRows<'_>,
    to: Destination<'_, Out>,
    how: &How,
) {
    let (atoms, _) = tile.bytes.as_chunks::<ATOM_BYTES>();
    // The next atom of the tile's first row follows its last row.
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
            // The rows' part of a surface.
            let row_atoms = |surface: usize| -> &[[u8; ATOM_BYTES]] {
                let first = surface * tile.rows + tile.first + first_row;
                let atoms = atoms.get(first..).unwrap_or_default();
                atoms.get(..count).unwrap_or(atoms)
            };
            let ahead = surface + AHEAD / T::LANES;
            for surface in ahead..ahead + LINE / T::LANES {
                prefetch(row_atoms(surface).as_bytes());
            }
            let surfaces: [_; SURFACES] = array::from_fn(|index| row_atoms(surface + index));
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
