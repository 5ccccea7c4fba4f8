// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packs rows of a matrix into tiles of runs.
//!
//! All operand layouts of the NPU have one form. Each row is split into runs of a few bytes. A tile
//! holds the first run of each row, then the second run of each row, and so on. In an activation
//! tile a run is an atom; in a kernel group it is 32 channels.
//!
//! ```text
//!   row 0: | a0 | a1 | a2 |          tile: | a0 b0 c0 | a1 b1 c1 | a2 b2 c2 |
//!   row 1: | b0 | b1 | b2 |   --->
//!   row 2: | c0 | c1 | c2 |
//! ```
//!
//! A run is shorter than a cache line on at least one side, and rows a power of two apart share
//! cache sets. So the loops process a few rows together, in stripes of some lines: each line is
//! read once and written once, as a whole.

use std::ops::Range;

use half::f16;
use zerocopy::{Immutable, IntoBytes};

use crate::LINE_BYTES as LINE;
use crate::matrix::MatrixView;
use crate::nibble;
use crate::prefetch::prefetch;

/// Packed bytes of one row processed at a time: whole cache lines, and a multiple of every run.
pub const STRIPE: usize = 512;

/// Rows processed at a time. More rows write to fewer pages.
const ROWS: usize = 16;

/// A stripe: packed bytes of a part of one row.
pub type Stripe = [u8; STRIPE];

/// The stripe of rows without elements.
static ZEROS: Stripe = [0; STRIPE];

/// An encoding of the elements of a row as bytes.
pub trait Encode {
    /// Type of the matrix elements in host memory.
    type Host: Copy + Immutable + IntoBytes + Send + Sync;

    /// Bits of a packed element.
    const BITS: usize;

    /// Encodes elements of a row, at most as many as fill a stripe; pads with zeros. The result may
    /// be in `scratch`, or the elements themselves if nothing changes.
    fn encode<'a>(elements: &'a [Self::Host], scratch: &'a mut Stripe) -> &'a Stripe;
}

/// Copies bytes without encoding, if a copy is needed.
fn plain<'a>(bytes: &'a [u8], scratch: &'a mut Stripe) -> &'a Stripe {
    if let Ok(whole) = bytes.try_into() {
        return whole;
    }
    let (data, padding) = scratch.split_at_mut(bytes.len());
    data.copy_from_slice(bytes);
    padding.fill(0);
    scratch
}

/// 8-bit integers: one byte for each element.
#[derive(Debug)]
pub struct Bytes;

impl Encode for Bytes {
    type Host = i8;
    const BITS: usize = 8;

    #[inline]
    fn encode<'a>(elements: &'a [i8], scratch: &'a mut Stripe) -> &'a Stripe {
        plain(elements.as_bytes(), scratch)
    }
}

/// binary16: two bytes for each element, little endian like the host.
#[derive(Debug)]
pub struct Halves;

impl Encode for Halves {
    type Host = f16;
    const BITS: usize = 16;

    #[inline]
    fn encode<'a>(elements: &'a [f16], scratch: &'a mut Stripe) -> &'a Stripe {
        plain(elements.as_bytes(), scratch)
    }
}

/// 4-bit integers: the low four bits of each element, see [`nibble`].
#[derive(Debug)]
pub struct LowNibbles;

impl Encode for LowNibbles {
    type Host = i8;
    const BITS: usize = 4;

    #[inline]
    fn encode<'a>(elements: &'a [i8], scratch: &'a mut Stripe) -> &'a Stripe {
        nibble::pack_low(elements, scratch);
        scratch[elements.len().div_ceil(2)..].fill(0);
        scratch
    }
}

/// Packs rows into `tile`, which has `tile_rows` rows of runs of `RUN` bytes. The tile's length
/// determines the runs of each row. Rows and elements outside the matrix become zeros. Bytes of
/// `tile` beyond the last whole run of all rows are unchanged.
pub fn pack<const RUN: usize, E: Encode>(
    matrix: MatrixView<'_, E::Host>,
    tile_rows: usize,
    tile: &mut [u8],
) {
    const { assert!(LINE.is_multiple_of(RUN) && STRIPE.is_multiple_of(LINE)) }
    let (runs, _) = tile.as_chunks_mut::<RUN>();
    let Some(run_count) = runs.len().checked_div(tile_rows) else {
        return;
    };
    let mut scratch = [[0; STRIPE]; ROWS];
    for first_row in (0..tile_rows).step_by(ROWS) {
        let rows = first_row..(first_row + ROWS).min(tile_rows);
        for first_run in (0..run_count).step_by(STRIPE / RUN) {
            let elements = first_run * RUN * 8 / E::BITS;
            let elements = elements..elements + STRIPE * 8 / E::BITS;
            let stripes = encode_rows::<E>(matrix, rows.start, elements, &mut scratch);
            let last = (first_run + STRIPE / RUN).min(run_count);
            let surfaces = &mut runs[first_run * tile_rows..last * tile_rows];
            interleave::<RUN>(&stripes, surfaces, tile_rows, rows.clone());
        }
    }
}

/// Encodes the elements in a range of columns, for [`ROWS`] rows.
#[inline]
fn encode_rows<'a, E: Encode>(
    matrix: MatrixView<'a, E::Host>,
    first_row: usize,
    elements: Range<usize>,
    scratch: &'a mut [Stripe; ROWS],
) -> [&'a Stripe; ROWS] {
    let part = |row| {
        let whole = matrix.row(row);
        let end = elements.end.min(whole.len());
        whole.get(elements.start..end).unwrap_or_default()
    };
    let mut stripes = [&ZEROS; ROWS];
    let mut elements = part(first_row);
    for ((row, stripe), scratch) in (first_row..).zip(&mut stripes).zip(scratch) {
        let next = part(row + 1);
        prefetch(next.as_bytes());
        if !elements.is_empty() {
            *stripe = E::encode(elements, scratch);
        }
        elements = next;
    }
    stripes
}

/// Writes the runs of each stripe to their rows of the surfaces, in squares with as many rows as a
/// line has runs. So both sides are whole lines.
#[inline(always)]
fn interleave<const RUN: usize>(
    stripes: &[&Stripe; ROWS],
    surfaces: &mut [[u8; RUN]],
    tile_rows: usize,
    rows: Range<usize>,
) {
    let side = LINE / RUN;
    for (line, surfaces) in surfaces.chunks_mut(side * tile_rows).enumerate() {
        let width = if surfaces.len() == side * tile_rows {
            side
        } else {
            surfaces.len() / tile_rows
        };
        for (first, stripes) in rows.clone().step_by(side).zip(stripes.chunks_exact(side)) {
            let height = side.min(rows.end - first);
            if (width, height) == (side, side) {
                // As below, with a size that the compiler knows.
                square(stripes, line, surfaces, tile_rows, first, (side, side));
            } else {
                square(stripes, line, surfaces, tile_rows, first, (width, height));
            }
        }
    }
}

/// Moves `width` runs of a line of each of `height` stripes.
#[inline(always)]
fn square<const RUN: usize>(
    stripes: &[&Stripe],
    line: usize,
    surfaces: &mut [[u8; RUN]],
    tile_rows: usize,
    first_row: usize,
    (width, height): (usize, usize),
) {
    for index in 0..width {
        let to = &mut surfaces[index * tile_rows + first_row..][..height];
        for (to, stripe) in to.iter_mut().zip(stripes) {
            let (lines, _) = stripe.as_chunks::<LINE>();
            *to = lines[line].as_chunks::<RUN>().0[index];
        }
    }
}

#[cfg(test)]
mod tests;
