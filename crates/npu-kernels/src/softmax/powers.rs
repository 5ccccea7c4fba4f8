// SPDX-License-Identifier: MIT OR Apache-2.0
//! Constants and types shared by all versions of the exponential.

/// Keys of an atom.
pub const LANES: usize = 8;

/// The scores of one row for eight keys: binary16, little endian.
pub type Atom = [u8; 2 * LANES];

/// Exponents below this become 0 in binary16, whose smallest number is 2^-24.
pub(super) const EXPONENT_MIN: f32 = -26.0;

/// Adding this to a float rounds it to an integer in its low bits.
pub(super) const ROUND: f32 = 12_582_912.0;

/// 2^f for f from -1/2 to 1/2, 1 at 0: the cubic with the least maximum of the relative error,
/// 1.02e-4.
pub(super) const POWERS: [f32; 3] = [0.693_282_96, 0.242_211_06, 0.055_008_937];
