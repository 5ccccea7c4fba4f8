// SPDX-License-Identifier: MIT OR Apache-2.0
//! Output tiles -> rows of the result, stored or added to what is there.
//!
//! The inverse of [`crate::pack`]: the tile holds one atom of each row, then
//! the next atom of each row. A few rows are read together, so that each cache
//! line of the tile is read once.

use std::ops::Range;

use crate::ATOM_BYTES;

/// Rows at a time; a caller that splits a tile between threads gives each a
/// multiple of it, so that none reads the lines of another.
pub const ROWS: usize = 8;

/// An element as the NPU writes it, and how it is added up on the CPU.
pub trait Partial: Copy {
    /// The elements of one atom.
    type Atom: AsRef<[Self]>;

    /// The type of the result.
    type Sum: Copy;

    /// The elements in the bytes of an atom.
    fn atom(bytes: [u8; ATOM_BYTES]) -> Self::Atom;

    /// This element as a result.
    fn widen(self) -> Self::Sum;

    /// `sum` plus this element. Integers wrap around: the sum is exact
    /// whenever the true one fits.
    fn add_to(self, sum: Self::Sum) -> Self::Sum;
}

impl Partial for i32 {
    type Atom = [Self; 4];
    type Sum = Self;

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
    type Atom = [Self; 8];
    type Sum = i32;

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
    type Atom = [Self; 4];
    type Sum = Self;

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

/// Reads rows of an output tile of `tile_rows` rows, from `first_row` on, into
/// the rows of `to`. What the tile does not have stays as it is there.
pub fn unpack<T: Partial>(
    tile: &[u8],
    tile_rows: usize,
    first_row: usize,
    mode: Mode,
    to: Destination<'_, T::Sum>,
) {
    match mode {
        Mode::Store => each_atom::<T>(tile, tile_rows, first_row, to, |sums, atom| {
            for (sum, x) in sums.iter_mut().zip(atom.as_ref()) {
                *sum = x.widen();
            }
        }),
        Mode::Add => each_atom::<T>(tile, tile_rows, first_row, to, |sums, atom| {
            for (sum, x) in sums.iter_mut().zip(atom.as_ref()) {
                *sum = x.add_to(*sum);
            }
        }),
    }
}

/// Calls `put` with each atom and its place in the result.
#[inline(always)]
fn each_atom<T: Partial>(
    tile: &[u8],
    tile_rows: usize,
    first_row: usize,
    to: Destination<'_, T::Sum>,
    put: impl Fn(&mut [T::Sum], T::Atom),
) {
    let lanes = ATOM_BYTES / size_of::<T>();
    let (atoms, _) = tile.as_chunks::<ATOM_BYTES>();
    // Behind the tile's last row begins the next atom of its first.
    let rows_left = tile_rows.saturating_sub(first_row);
    let mut out_rows = to.rows.chunks_mut(to.stride.max(1)).take(rows_left);
    for first_row in (first_row..tile_rows).step_by(ROWS) {
        let mut rows: [&mut [T::Sum]; ROWS] = std::array::from_fn(|_| {
            let row = out_rows.next().unwrap_or_default();
            row.get_mut(to.columns.clone()).unwrap_or_default()
        });
        if rows[0].is_empty() {
            return;
        }
        for (index, surface) in atoms.chunks(tile_rows).enumerate() {
            let column = index * lanes;
            if column >= rows[0].len() {
                break;
            }
            let Some(atoms) = surface.get(first_row..) else {
                break;
            };
            for (row, &bytes) in rows.iter_mut().zip(atoms) {
                let Some(sums) = row.get_mut(column..) else {
                    continue;
                };
                let atom = T::atom(bytes);
                match sums.get_mut(..lanes) {
                    // The length is known to the compiler here.
                    Some(whole) => put(whole, atom),
                    None => put(sums, atom),
                }
            }
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
            1..50_usize,
            0..20_usize,
        );
        (shape, 0..50_usize, 0..50_usize).prop_flat_map(|(shape, from, columns)| {
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
            unpack::<T>(tile, tile_rows, first, mode, case.to(&mut fast));
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

    #[test]
    fn a_degenerate_tile_changes_nothing() {
        let mut out = [3_i32; 4];
        for (tile_rows, stride) in [(0, 4), (4, 0), (0, 0)] {
            let to = Destination {
                rows: &mut out,
                stride,
                columns: 0..4,
            };
            unpack::<i32>(&[], tile_rows, 0, Mode::Store, to);
        }
        assert_eq!(out, [3; 4]);
    }
}
