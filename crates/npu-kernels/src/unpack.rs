// SPDX-License-Identifier: MIT OR Apache-2.0
//! Output tiles -> rows of the result, stored or added to what is there.
//!
//! The inverse of [`crate::pack`]: the tile holds one atom of each row, then
//! the next atom of each row. A few rows are read together, so that each cache
//! line of the tile is read once.

use std::ops::Range;

use half::f16;
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use crate::ATOM_BYTES;

/// Rows at a time; a caller that splits a tile between threads gives each a
/// multiple of it, so that none reads the lines of another.
pub const ROWS: usize = 16;

/// Sums of a cache line, of four bytes each.
const LINE: usize = 16;

/// Sums of a row at a time: still in the first-level cache, for all rows, when
/// they are finished.
const STRIPE: usize = 8 * LINE;

/// An element as the NPU writes it, and how it is added up on the CPU.
pub trait Partial: Copy {
    /// What one row of the result has of a surface: the atom of each row of
    /// the tile that belongs to it.
    type Bytes: Copy + FromBytes + Immutable + KnownLayout + Unaligned;

    /// The elements of those bytes.
    type Atom: AsRef<[Self]>;

    /// The type of the result.
    type Sum: Copy;

    /// Elements of an atom.
    const LANES: usize;

    /// Rows of the tile that make a row of the result.
    const TILE_ROWS: usize = size_of::<Self::Bytes>() / ATOM_BYTES;

    /// The elements in the bytes of an atom.
    fn atom(bytes: Self::Bytes) -> Self::Atom;

    /// This element as a result.
    fn widen(self) -> Self::Sum;

    /// `sum` plus this element. Integers wrap around: the sum is exact
    /// whenever the true one fits.
    fn add_to(self, sum: Self::Sum) -> Self::Sum;
}

impl Partial for i32 {
    type Bytes = [u8; ATOM_BYTES];
    type Atom = [Self; 4];
    type Sum = Self;
    const LANES: usize = 4;

    fn atom(bytes: [u8; ATOM_BYTES]) -> Self::Atom {
        zerocopy::transmute!(bytes)
    }

    fn widen(self) -> Self {
        self
    }

    fn add_to(self, sum: Self) -> Self {
        sum.wrapping_add(self)
    }
}

impl Partial for i16 {
    type Bytes = [u8; ATOM_BYTES];
    type Atom = [Self; 8];
    type Sum = i32;
    const LANES: usize = 8;

    fn atom(bytes: [u8; ATOM_BYTES]) -> Self::Atom {
        zerocopy::transmute!(bytes)
    }

    fn widen(self) -> i32 {
        i32::from(self)
    }

    fn add_to(self, sum: i32) -> i32 {
        sum.wrapping_add(i32::from(self))
    }
}

impl Partial for f32 {
    type Bytes = [u8; ATOM_BYTES];
    type Atom = [Self; 4];
    type Sum = Self;
    const LANES: usize = 4;

    fn atom(bytes: [u8; ATOM_BYTES]) -> Self::Atom {
        zerocopy::transmute!(bytes)
    }

    fn widen(self) -> Self {
        self
    }

    fn add_to(self, sum: Self) -> Self {
        sum + self
    }
}

/// Sums that the NPU rounded to binary16. A second one that is added is rounded
/// again, so who needs the exact bound adds binary32.
impl Partial for f16 {
    type Bytes = [u8; ATOM_BYTES];
    type Atom = [Self; 8];
    type Sum = Self;
    const LANES: usize = 8;

    fn atom(bytes: [u8; ATOM_BYTES]) -> Self::Atom {
        let bits: [u16; 8] = zerocopy::transmute!(bytes);
        bits.map(Self::from_bits)
    }

    fn widen(self) -> Self {
        self
    }

    fn add_to(self, sum: Self) -> Self {
        sum + self
    }
}

/// 16 h + l, of the 16-bit sums of two rows: see
/// [`SplitNibbles`](crate::pack::SplitNibbles). It always fits into 32 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Split(i32);

impl Partial for Split {
    type Bytes = [u8; 2 * ATOM_BYTES];
    type Atom = [Self; 8];
    type Sum = i32;
    const LANES: usize = 8;

    fn atom(bytes: Self::Bytes) -> Self::Atom {
        let [high, low]: [[i16; 8]; 2] = zerocopy::transmute!(bytes);
        std::array::from_fn(|n| Self(16 * i32::from(high[n]) + i32::from(low[n])))
    }

    fn widen(self) -> i32 {
        self.0
    }

    fn add_to(self, sum: i32) -> i32 {
        sum.wrapping_add(self.0)
    }
}

/// What happens to the destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The first K tile: the destination's old content is lost.
    Store,
    /// A further K tile.
    Add,
}

/// The rows of a result that a tile goes to.
#[derive(Debug)]
pub struct Destination<'a, S> {
    /// Whole rows, one behind the other.
    pub rows: &'a mut [S],
    /// Elements of a row.
    pub stride: usize,
    /// Where in each row column 0 of the tile goes, and how far the tile may
    /// reach.
    pub columns: Range<usize>,
}

/// Reads rows of an output tile, from `first_row` on, into the rows of `to`.
/// Rows, also the `tile_rows` of the tile, are counted as those of the result:
/// [`Partial::TILE_ROWS`] of the tile are one. What the tile does not have stays as it is there. Calls
/// `finish` with each part of a row once it is there: the row of `to`, its
/// columns, its sums.
pub fn unpack<T: Partial>(
    tile: &[u8],
    tile_rows: usize,
    first_row: usize,
    mode: Mode,
    to: Destination<'_, T::Sum>,
    finish: impl FnMut(usize, Range<usize>, &mut [T::Sum]),
) {
    match mode {
        Mode::Store => {
            let put = |sums: &mut [T::Sum], atom: T::Atom| {
                for (sum, x) in sums.iter_mut().zip(atom.as_ref()) {
                    *sum = x.widen();
                }
            };
            each_atom::<T>(tile, tile_rows, first_row, to, put, finish);
        }
        Mode::Add => {
            let put = |sums: &mut [T::Sum], atom: T::Atom| {
                for (sum, x) in sums.iter_mut().zip(atom.as_ref()) {
                    *sum = x.add_to(*sum);
                }
            };
            each_atom::<T>(tile, tile_rows, first_row, to, put, finish);
        }
    }
}

/// Calls `put` with each atom and its place in the result, and `finish`.
#[inline(always)]
fn each_atom<T: Partial>(
    tile: &[u8],
    tile_rows: usize,
    first_row: usize,
    to: Destination<'_, T::Sum>,
    put: impl Fn(&mut [T::Sum], T::Atom),
    mut finish: impl FnMut(usize, Range<usize>, &mut [T::Sum]),
) {
    let whole = tile.len() / size_of::<T::Bytes>() * size_of::<T::Bytes>();
    let atoms = <[T::Bytes]>::ref_from_bytes(&tile[..whole]).unwrap_or_default();
    // Behind the tile's last row begins the next atom of its first.
    let rows_left = tile_rows.saturating_sub(first_row);
    let mut out_rows = to
        .rows
        .chunks_mut(to.stride.max(1))
        .take(rows_left)
        .enumerate();
    loop {
        let mut rows: [(usize, &mut [T::Sum]); ROWS] = std::array::from_fn(|_| {
            let (index, row) = out_rows.next().unwrap_or_default();
            (index, row.get_mut(to.columns.clone()).unwrap_or_default())
        });
        let width = rows[0].1.len();
        if width == 0 {
            return;
        }
        for stripe in (0..width).step_by(STRIPE) {
            let end = (stripe + STRIPE).min(width);
            // A line of each row, then the next of each.
            for line in (stripe..end).step_by(LINE) {
                for (index, row) in &mut rows {
                    let sums = row.get_mut(line..(line + LINE).min(width));
                    let first = line / T::LANES * tile_rows + first_row + *index;
                    put_line::<T>(atoms, first, tile_rows, sums.unwrap_or_default(), &put);
                }
            }
            for (index, row) in &mut rows {
                if let Some(part) = row.get_mut(stripe..end) {
                    let columns = to.columns.start + stripe..to.columns.start + end;
                    finish(*index, columns, part);
                }
            }
        }
    }
}

/// The atoms of one line of sums: the first, then each `tile_rows` further on.
#[inline(always)]
fn put_line<T: Partial>(
    atoms: &[T::Bytes],
    first: usize,
    tile_rows: usize,
    sums: &mut [T::Sum],
    put: impl Fn(&mut [T::Sum], T::Atom),
) {
    let Some(atoms) = atoms.get(first..) else {
        return;
    };
    let atoms = atoms.iter().step_by(tile_rows);
    if let Ok(whole) = <&mut [T::Sum; LINE]>::try_from(&mut *sums) {
        // As below, of a length that the compiler knows.
        for (sums, &bytes) in whole.chunks_exact_mut(T::LANES).zip(atoms) {
            put(sums, T::atom(bytes));
        }
    } else {
        for (sums, &bytes) in sums.chunks_mut(T::LANES).zip(atoms) {
            put(sums, T::atom(bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Where element (m, n) begins.
    fn at<T>(tile_rows: usize, m: usize, n: usize) -> usize {
        let lanes = ATOM_BYTES / size_of::<T>();
        (n / lanes * tile_rows + m) * ATOM_BYTES + n % lanes * size_of::<T>()
    }

    /// The definition: element by element.
    fn reference<T: Partial>(
        tile: &[u8],
        tile_rows: usize,
        first_row: usize,
        mode: Mode,
        to: Destination<'_, T::Sum>,
        read: impl Fn(&[u8]) -> T,
    ) {
        for (index, row) in to.rows.chunks_mut(to.stride).enumerate() {
            let m = first_row + index;
            let Some(columns) = row.get_mut(to.columns.clone()) else {
                continue;
            };
            for (n, sum) in columns.iter_mut().enumerate() {
                let at = at::<T>(tile_rows, m, n);
                if m < tile_rows && at + size_of::<T>() <= tile.len() {
                    let x = read(&tile[at..][..size_of::<T>()]);
                    *sum = match mode {
                        Mode::Store => x.widen(),
                        Mode::Add => x.add_to(*sum),
                    };
                }
            }
        }
    }

    #[derive(Clone, Debug)]
    struct Case {
        tile: Vec<u8>,
        tile_rows: usize,
        first_row: usize,
        rows: usize,
        stride: usize,
        columns: Range<usize>,
    }

    impl Case {
        fn to<'a, S>(&self, rows: &'a mut [S]) -> Destination<'a, S> {
            Destination {
                rows,
                stride: self.stride,
                columns: self.columns.clone(),
            }
        }
    }

    fn case() -> impl Strategy<Value = Case> {
        let shape = (
            1..40_usize,
            0..40_usize,
            0..40_usize,
            1..300_usize,
            0..60_usize,
        );
        (shape, 0..50_usize, 0..290_usize).prop_flat_map(|(shape, from, columns)| {
            let (tile_rows, first_row, rows, stride, surfaces) = shape;
            prop::collection::vec(any::<u8>(), surfaces * tile_rows * ATOM_BYTES).prop_map(
                move |tile| Case {
                    tile,
                    tile_rows,
                    first_row,
                    rows,
                    stride,
                    columns: from..from + columns,
                },
            )
        })
    }

    fn check<T: Partial>(case: &Case, old: T::Sum, read: impl Fn(&[u8]) -> T)
    where
        T::Sum: zerocopy::IntoBytes + zerocopy::Immutable,
    {
        use zerocopy::IntoBytes;
        let (tile, tile_rows, first) = (&case.tile, case.tile_rows, case.first_row);
        for mode in [Mode::Store, Mode::Add] {
            let mut fast = vec![old; case.rows * case.stride];
            let mut slow = fast.clone();
            let mut finished = vec![0; case.rows * case.stride];
            let finish = |row: usize, columns: Range<usize>, part: &mut [T::Sum]| {
                assert_eq!(part.len(), columns.len());
                let finished = &mut finished[row * case.stride..][columns];
                finished.iter_mut().for_each(|times| *times += 1);
            };
            unpack::<T>(tile, tile_rows, first, mode, case.to(&mut fast), finish);
            for (at, times) in finished.into_iter().enumerate() {
                let (row, column) = (at / case.stride, at % case.stride);
                let inside = first + row < tile_rows
                    && case.columns.end <= case.stride
                    && case.columns.contains(&column);
                assert_eq!(times, u32::from(inside), "row {row}, column {column}");
            }
            reference(tile, tile_rows, first, mode, case.to(&mut slow), &read);
            assert!(fast.as_bytes() == slow.as_bytes(), "{mode:?}");
        }
    }

    proptest! {
        #![proptest_config(test_support::cases(256))]

        #[test]
        fn equals_the_reference(case in case()) {
            check::<i32>(&case, i32::MAX - 9, |b| i32::from_le_bytes(b.try_into().unwrap()));
            check::<i16>(&case, i32::MAX - 9, |b| i16::from_le_bytes(b.try_into().unwrap()));
        }

        #[test]
        fn floats_equal_the_reference(mut case in case()) {
            // Finite floats of like size: NaNs may differ in their bits.
            for bytes in case.tile.as_chunks_mut::<4>().0 {
                *bytes = (f32::from(bytes[0]) / 7.0).to_le_bytes();
            }
            check::<f32>(&case, 1.5, |b| f32::from_le_bytes(b.try_into().unwrap()));
        }
    }

    proptest! {
        #![proptest_config(test_support::cases(64))]

        #[test]
        fn split_sums_are_put_together(
            sums in prop::collection::vec(any::<[i16; 2]>(), 1..600),
            tile_rows in 1..40_usize,
            first in 0..20_usize,
        ) {
            let columns = sums.len().div_ceil(tile_rows);
            let element = |row: usize, column: usize| {
                sums.get(row * columns + column).copied().unwrap_or_default()
            };
            let mut tile = vec![0; columns.div_ceil(8) * 2 * tile_rows * ATOM_BYTES];
            for (row, column) in (0..tile_rows).flat_map(|m| (0..columns).map(move |n| (m, n))) {
                for (part, x) in element(row, column).into_iter().enumerate() {
                    let at = at::<i16>(2 * tile_rows, 2 * row + part, column);
                    tile[at..at + 2].copy_from_slice(&x.to_le_bytes());
                }
            }
            let rows = tile_rows.saturating_sub(first);
            let mut out = vec![i32::MIN; rows * columns];
            for (mode, times) in [(Mode::Store, 1), (Mode::Add, 2)] {
                let to = Destination { rows: &mut out, stride: columns, columns: 0..columns };
                unpack::<Split>(&tile, tile_rows, first, mode, to, |_, _, _| {});
                for (at, &sum) in out.iter().enumerate() {
                    let [high, low] = element(first + at / columns, at % columns);
                    prop_assert_eq!(sum, times * (16 * i32::from(high) + i32::from(low)));
                }
            }
        }
    }

    #[test]
    fn a_degenerate_tile_changes_nothing() {
        let mut out = [3_i32; 4];
        for (tile_rows, stride) in [(0, 4), (4, 0), (0, 0)] {
            let to = Destination {
                rows: &mut out,
                stride,
                columns: 0..4,
            };
            unpack::<i32>(&[], tile_rows, 0, Mode::Store, to, |_, _, _| {});
        }
        assert_eq!(out, [3; 4]);
    }
}
