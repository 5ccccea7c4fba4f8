// SPDX-License-Identifier: MIT OR Apache-2.0
//! Output tiles -> rows of the result, stored or added to what is there.

use crate::dtype::ATOM_BYTES;

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

/// Reads row `m` of an output tile of `tile_rows` rows into `row`: column n of
/// the tile into element n. Elements of `row` that the tile does not have stay
/// as they are.
pub fn unpack_row<T: Partial>(
    tile: &[u8],
    tile_rows: usize,
    m: usize,
    mode: Mode,
    row: &mut [T::Sum],
) {
    let (atoms, _) = tile.as_chunks::<ATOM_BYTES>();
    let atoms = atoms.iter().skip(m).step_by(tile_rows.max(1));
    for (sums, &bytes) in row.chunks_mut(ATOM_BYTES / size_of::<T>()).zip(atoms) {
        let atom = T::atom(bytes);
        let elements = sums.iter_mut().zip(atom.as_ref());
        match mode {
            Mode::Store => elements.for_each(|(sum, x)| *sum = x.widen()),
            Mode::Add => elements.for_each(|(sum, x)| *sum = x.add_to(*sum)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::dtype::Precision;
    use crate::layout;

    /// One element by the layout's formula.
    fn element<const N: usize>(tile: &[u8], at: usize) -> [u8; N] {
        tile[at..at + N].try_into().unwrap()
    }

    fn check<T: Partial>(
        precision: Precision,
        tile: &[u8],
        rows: usize,
        read: impl Fn(usize) -> T::Sum,
        add: impl Fn(T::Sum, T::Sum) -> T::Sum,
        old: &[T::Sum],
    ) where
        T::Sum: PartialEq + std::fmt::Debug,
    {
        for m in 0..rows {
            let mut stored = old.to_vec();
            unpack_row::<T>(tile, rows, m, Mode::Store, &mut stored);
            let mut added = old.to_vec();
            unpack_row::<T>(tile, rows, m, Mode::Add, &mut added);
            for n in 0..old.len() {
                let at = layout::output(precision, rows, m, n);
                if at >= tile.len() {
                    assert_eq!((stored[n], added[n]), (old[n], old[n]));
                } else {
                    assert_eq!(stored[n], read(at));
                    assert_eq!(added[n], add(old[n], read(at)));
                }
            }
        }
    }

    proptest! {
        #![proptest_config(test_support::cases(32))]

        #[test]
        fn equals_the_formula(
            bytes in prop::collection::vec(any::<u8>(), 2048),
            rows in 1..16_usize,
            columns in 1..40_usize,
        ) {
            let surfaces = bytes.len() / ATOM_BYTES / rows;
            let tile = &bytes[..surfaces * rows * ATOM_BYTES];
            let old: Vec<i32> = (0..columns).map(|n| i32::MAX - n as i32).collect();
            check::<i32>(
                Precision::Int8, tile, rows,
                |at| i32::from_le_bytes(element(tile, at)), i32::wrapping_add, &old,
            );
            check::<i16>(
                Precision::Int4, tile, rows,
                |at| i32::from(i16::from_le_bytes(element(tile, at))), i32::wrapping_add, &old,
            );
        }

        #[test]
        fn floats_equal_the_formula(
            values in prop::collection::vec(-1e6_f32..1e6, 64),
            rows in 1..16_usize,
        ) {
            let surfaces = values.len() * 4 / ATOM_BYTES / rows;
            let tile: Vec<u8> = values[..surfaces * rows * 4]
                .iter()
                .flat_map(|v| v.to_le_bytes())
                .collect();
            check::<f32>(
                Precision::Fp16, &tile, rows,
                |at| f32::from_le_bytes(element(&tile, at)), |a, b| a + b, &[1.5; 18],
            );
        }
    }
}
