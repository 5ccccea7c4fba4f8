// SPDX-License-Identifier: MIT OR Apache-2.0
//! Types that the NPU writes, and their conversion to results.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::ATOM_BYTES;

/// An element as the NPU writes it, and its addition on the CPU.
pub trait Partial: Copy + Default {
    /// Part of a surface for one row of the result: one atom of each of its rows in the tile.
    type Bytes: Copy + FromBytes + Immutable + IntoBytes + KnownLayout + Unaligned;

    /// The elements of these bytes.
    type Atom: AsRef<[Self]>;

    /// The type of the result.
    type Sum: Copy + Default;

    /// Elements of an atom.
    const LANES: usize = size_of::<Self::Atom>() / size_of::<Self>();

    /// Rows of the tile for each row of the result.
    const TILE_ROWS: usize = size_of::<Self::Bytes>() / ATOM_BYTES;

    /// The elements in the bytes of an atom.
    fn atom(bytes: Self::Bytes) -> Self::Atom;

    /// This element as a result.
    fn widen(self) -> Self::Sum;

    /// `sum` plus this element. Integers wrap around, so the final sum is exact if it fits.
    fn add_to(self, sum: Self::Sum) -> Self::Sum;
}

impl Partial for i32 {
    type Bytes = [u8; ATOM_BYTES];
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
    type Bytes = [u8; ATOM_BYTES];
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
    type Bytes = [u8; ATOM_BYTES];
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

/// 16 h + l, from the 16-bit sums of two rows; see [`SplitNibbles`](crate::pack::SplitNibbles).
/// Always fits in 32 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Split(i32);

impl Partial for Split {
    type Bytes = [u8; 2 * ATOM_BYTES];
    type Atom = [Self; 8];
    type Sum = i32;

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
