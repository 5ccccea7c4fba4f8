// SPDX-License-Identifier: MIT OR Apache-2.0
//! What all versions of the exponential have in common.

/// Keys of an atom.
pub const LANES: usize = 8;

/// The scores of one row for eight keys: binary16, little endian.
pub type Atom = [u8; 2 * LANES];

/// Exponents below this are rounded to 0 in binary16, whose smallest number is 2^-24.
pub(super) const EXPONENT_MIN: f32 = -26.0;

/// Added to a float, rounds it to an integer, which is then in its low bits.
pub(super) const ROUND: f32 = 12_582_912.0;

/// 2^f for f from -1/2 to 1/2, 1 at 0: the cubic whose largest relative error, 1.02e-4, is
/// least.
pub(super) const POWERS: [f32; 3] = [0.693_282_96, 0.242_211_06, 0.055_008_937];
