// SPDX-License-Identifier: MIT OR Apache-2.0
//! Types that the NPU writes, and their conversion to results.

use crate::ATOM_BYTES;

/// An element as the NPU writes it, and its addition on the CPU.
pub trait Partial: Copy + Default {
    /// The elements of these bytes.
    type Atom: AsRef<[Self]>;

    /// The type of the result.
    type Sum: Copy + Default;

    /// Elements of an atom.
    const LANES: usize = size_of::<Self::Atom>() / size_of::<Self>();

    /// The elements in the bytes of an atom.
    fn atom(bytes: [u8; ATOM_BYTES]) -> Self::Atom;

    /// This element as a result.
    fn widen(self) -> Self::Sum;

    /// `sum` plus this element. Integers wrap around, so the final sum is exact if it fits.
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
