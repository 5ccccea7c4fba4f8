// SPDX-License-Identifier: MIT OR Apache-2.0
//! Softmax in place on a tile of FP16 scores, in the layout that the NPU writes and reads.
//!
//! The tile has surfaces of eight keys; a surface has one atom for each row:
//!
//! ```text
//!   surface 0: | row 0: keys 0..8  | row 1: keys 0..8  | ...
//!   surface 1: | row 0: keys 8..16 | row 1: keys 8..16 | ...
//! ```
//!
//! Three passes run over whole surfaces: masks and caps, if any; the maximum of each row; then
//! `2^(log2(e) * (score - maximum))`, rounded to FP16. The NPU computes the sums, by multiplying
//! with a column of ones.
//!
//! An exponential is within 2^-11.6 of the true value (half an ulp of FP16, and 1.02e-4 from the
//! polynomial), and 0 below 2^-26. All versions give the same bits as `exponential`, which fuses
//! each multiplication with its addition.

use half::f16;

use crate::half::{from_f16, to_f16};

#[cfg(target_arch = "aarch64")]
mod neon;
mod powers;
#[cfg(target_arch = "x86_64")]
mod x86;

use powers::ROUND;
pub use powers::{Atom, LANES};

/// The largest score of each lane, encoded by `ordered`.
pub type Maxima = [i16; LANES];

/// Maxima before any score: minus infinity.
pub const NO_MAXIMUM: Maxima = [ordered(f16::NEG_INFINITY.to_bits().cast_signed()); LANES];

/// Polynomial of degree 5 for 2^f, f from -1/2 to 1/2, with an error of 1e-7, for results that are
/// subtracted from similar numbers.
const FINE_POWERS: [f32; 5] = [
    std::f32::consts::LN_2,
    0.240_222_42,
    0.055_507_336,
    0.009_671_514,
    0.001_326_472_8,
];

/// Maps binary16 to integers in the same order. Its own inverse.
#[inline(always)]
const fn ordered(half: i16) -> i16 {
    half ^ ((half >> 15).cast_unsigned() >> 1).cast_signed()
}

fastest! {
    /// Updates the maxima with the scores of whole surfaces, which have one row for each element of
    /// `maxima`.
    pub fn take_maxima(surfaces: &[Atom], maxima: &mut [Maxima]) {
        for surface in surfaces.chunks_exact(maxima.len().max(1)) {
            // One long loop, which compilers vectorise.
            let scores = surface.as_flattened().as_chunks::<2>().0;
            for (most, score) in maxima.as_flattened_mut().iter_mut().zip(scores) {
                *most = (*most).max(ordered(i16::from_le_bytes(*score)));
            }
        }
    }
}

/// The largest score of a row.
#[must_use]
pub fn maximum(maxima: &Maxima) -> f16 {
    let most = maxima.iter().copied().fold(NO_MAXIMUM[0], i16::max);
    f16::from_bits(ordered(most).cast_unsigned())
}

/// The offset that [`exponentials`] adds to the scaled scores of a row with this maximum.
#[must_use]
pub fn offset(maximum: f16) -> f32 {
    if maximum == f16::NEG_INFINITY {
        return 0.0;
    }
    let most = maximum.to_f32().clamp(f16::MIN.to_f32(), f16::MAX.to_f32());
    -(most * std::f32::consts::LOG2_E)
}

/// Turns the scores of whole surfaces into exponentials. Row `r` uses `offsets[r]`; see [`offset`].
#[allow(unsafe_code)]
pub fn exponentials(surfaces: &mut [Atom], offsets: &[f32]) {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("fma")
        && is_x86_feature_detected!("f16c")
    {
        // SAFETY: the host has AVX2, FMA and F16C.
        return unsafe { x86::exponentials(surfaces, offsets) };
    }
    #[cfg(target_arch = "aarch64")]
    {
        const { assert!(cfg!(target_feature = "neon")) }
        // SAFETY: this target has NEON in its baseline, as was just asserted.
        unsafe { neon::exponentials(surfaces, offsets) }
    }
    #[cfg(not(target_arch = "aarch64"))]
    reference(surfaces, offsets);
}

/// The definition of [`exponentials`].
#[cfg(any(test, not(target_arch = "aarch64")))]
fn reference(surfaces: &mut [Atom], offsets: &[f32]) {
    for surface in surfaces.chunks_exact_mut(offsets.len().max(1)) {
        for (atom, &offset) in surface.iter_mut().zip(offsets) {
            for half in atom.as_chunks_mut::<2>().0 {
                let score = f16::from_le_bytes(*half).to_f32();
                *half = f16::from_f32(exponential(score, offset)).to_le_bytes();
            }
        }
    }
}

/// 2^(log2(e) * score + offset), at most 1; a NaN counts as -infinity.
#[cfg(any(test, not(target_arch = "aarch64")))]
#[expect(
    clippy::manual_clamp,
    reason = "a NaN becomes the minimum; `clamp` would keep it"
)]
fn exponential(score: f32, offset: f32) -> f32 {
    let y = score.mul_add(std::f32::consts::LOG2_E, offset);
    let y = y.max(powers::EXPONENT_MIN).min(0.0);
    let rounded = y + ROUND;
    let f = y - (rounded - ROUND);
    let [c1, c2, c3] = powers::POWERS;
    let power = c3.mul_add(f, c2).mul_add(f, c1).mul_add(f, 1.0);
    f32::from_bits(power.to_bits().wrapping_add(rounded.to_bits() << 23))
}

/// Removes keys from a row of a tile of `rows` rows: those with a negative mask (-inf) or beyond
/// the mask get -inf. The others, whose mask is 0, are unchanged.
pub fn cut_row(tile: &mut [Atom], rows: usize, row: usize, mask: &[f16]) {
    let (whole, rest) = mask.as_chunks::<LANES>();
    let mut last = [f16::NEG_INFINITY; LANES];
    last[..rest.len()].copy_from_slice(rest);
    let of_row = tile.get_mut(row..).unwrap_or_default();
    let mut atoms = of_row.chunks_mut(rows.max(1)).map(|atoms| &mut atoms[0]);
    // The masks first: a zip may take an element of its left side too many.
    for (mask, atom) in whole.iter().chain([&last]).zip(atoms.by_ref()) {
        cut(atom, mask);
    }
    let beyond = [f16::NEG_INFINITY; LANES];
    atoms.for_each(|atom| cut(atom, &beyond));
}

fn cut(atom: &mut Atom, mask: &[f16; LANES]) {
    const CUT: u16 = f16::NEG_INFINITY.to_bits();
    let mut scores: [u16; LANES] = zerocopy::transmute!(*atom);
    for (score, mask) in scores.iter_mut().zip(mask) {
        let is_cut = (mask.to_bits().cast_signed() >> 15).cast_unsigned();
        *score = (*score & !is_cut) | (CUT & is_cut);
    }
    *atom = zerocopy::transmute!(scores);
}

/// Changes to the scores of a row besides removing keys.
#[derive(Clone, Copy, Debug)]
pub struct Bias {
    /// The bound `c` of `c * tanh(score / c)`; 0 disables it.
    pub softcap: f32,
    /// Factor of the mask.
    pub slope: f32,
}

/// Caps the scores of a row of a tile of `rows` rows, then adds the mask. `mask` has `keys`
/// elements, if any. Keys from `keys` on and keys with mask -inf get -inf. `scratch` is reused from
/// call to call.
pub fn bias_row(
    tile: &mut [Atom],
    [rows, row]: [usize; 2],
    keys: usize,
    mask: Option<&[f16]>,
    bias: Bias,
    scratch: &mut BiasScratch,
) {
    let BiasScratch {
        halves,
        scores,
        masks,
    } = scratch;
    halves.clear();
    halves.extend(tile.iter().skip(row).step_by(rows.max(1)));
    let halves = halves.as_flattened_mut();
    let keys = keys.min(halves.len() / 2);
    scores.resize(keys, 0.0);
    from_f16(&halves[..2 * keys], scores);
    if bias.softcap != 0.0 {
        cap(scores, bias.softcap);
    }
    if let Some(mask) = mask {
        masks.resize(keys, 0.0);
        from_f16(zerocopy::IntoBytes::as_bytes(&mask[..keys]), masks);
        add_masks(scores, masks, bias.slope);
    }
    to_f16(scores, &mut halves[..2 * keys]);
    let beyond = halves[2 * keys..].as_chunks_mut::<2>().0;
    beyond.fill(f16::NEG_INFINITY.to_le_bytes());
    let atoms = tile.iter_mut().skip(row).step_by(rows.max(1));
    for (atom, halves) in atoms.zip(halves.as_chunks().0) {
        *atom = *halves;
    }
}

/// Scratch memory of [`bias_row`].
#[derive(Debug, Default)]
pub struct BiasScratch {
    halves: Vec<Atom>,
    scores: Vec<f32>,
    masks: Vec<f32>,
}

fastest! {
    /// `c * tanh(x / c)` for each score.
    fn cap(scores: &mut [f32], softcap: f32) {
        for x in scores {
            *x = softcap * tanh(*x / softcap);
        }
    }
}

/// (e^2x - 1) / (e^2x + 1). Beyond 16 it is 1 in binary32.
#[inline(always)]
fn tanh(x: f32) -> f32 {
    let y = (x * (2.0 * std::f32::consts::LOG2_E)).clamp(-48.0, 48.0);
    let rounded = y + ROUND;
    let f = y - (rounded - ROUND);
    let [c1, c2, c3, c4, c5] = FINE_POWERS;
    let power = ((((c5 * f + c4) * f + c3) * f + c2) * f + c1) * f + 1.0;
    let power = f32::from_bits(power.to_bits().wrapping_add(rounded.to_bits() << 23));
    (power - 1.0) / (power + 1.0)
}

fastest! {
    /// Adds `slope` times the mask; the result is -inf if the mask is.
    fn add_masks(scores: &mut [f32], masks: &[f32], slope: f32) {
        for (score, &mask) in scores.iter_mut().zip(masks) {
            let biased = *score + slope * mask;
            *score = if mask == f32::NEG_INFINITY {
                mask
            } else {
                biased
            };
        }
    }
}

/// Adds the scores of `more`; rounds to binary16.
pub fn add_scores(surfaces: &mut [Atom], more: &[Atom]) {
    /// Atoms that are converted at a time.
    const ATOMS: usize = 32;
    let mut floats = [[0.0; ATOMS * LANES]; 2];
    for (atoms, more) in surfaces.chunks_mut(ATOMS).zip(more.chunks(ATOMS)) {
        let scores = atoms.len().min(more.len()) * LANES;
        let [sums, others] = floats.each_mut().map(|floats| &mut floats[..scores]);
        from_f16(atoms.as_flattened(), sums);
        from_f16(more.as_flattened(), others);
        for (sum, other) in sums.iter_mut().zip(others) {
            *sum += *other;
        }
        to_f16(sums, atoms.as_flattened_mut());
    }
}

#[cfg(test)]
mod tests;
