// SPDX-License-Identifier: MIT OR Apache-2.0
//! Softmax of a tile of binary32 scores, whose probabilities are a tile of binary16.
//!
//! Both tiles have the NPU's layout: a surface has one atom for each row, with four keys in the tile
//! of scores and eight in that of probabilities:
//!
//! ```text
//!   surface 0: | row 0: keys 0..8  | row 1: keys 0..8  | ...
//!   surface 1: | row 0: keys 8..16 | row 1: keys 8..16 | ...
//! ```
//!
//! A few rows are processed at a time, so that their scores stay in the cache: [`read_scores`] copies
//! them to rows without gaps; masks and caps, if any; the [`largest`] score of each row;
//! then [`exponentials`] writes `2^14 * exp(score - largest)`, rounded to binary16. The factor keeps
//! probabilities from 2^-28 normal numbers. The NPU computes the sums, by multiplying
//! with a column of ones.
//!
//! An exponential is within 2^-11.6 of the true value (half an ulp of FP16, and 1.02e-4 from the
//! polynomial), and 0 below 2^-40. All versions give the same bits as `exponential`, which fuses
//! each multiplication with its addition.

use half::f16;
use zerocopy::IntoBytes;

use crate::half::from_f16;
use crate::prefetch::prefetch;

#[cfg(target_arch = "aarch64")]
mod neon;
mod powers;
#[cfg(target_arch = "x86_64")]
mod x86;

pub use powers::{Atom, LANES, ONE};
#[cfg(any(test, not(target_arch = "aarch64")))]
use powers::{EXPONENT_MIN, ROUND_TO_ONE, each_atom};
use powers::{GROUP, ROUND};

/// Scores of an atom.
const SCORES: usize = 4;

/// Surfaces between the one that is read and the one that is prefetched.
const AHEAD: usize = 8;

/// Polynomial of degree 5 for 2^f, f from -1/2 to 1/2, with an error of 1e-7, for results that are
/// subtracted from similar numbers.
const FINE_POWERS: [f32; 5] = [
    std::f32::consts::LN_2,
    0.240_222_42,
    0.055_507_336,
    0.009_671_514,
    0.001_326_472_8,
];

/// Rows of a tile of scores, from `first` on.
#[derive(Clone, Copy, Debug)]
pub struct ScoreRows<'a> {
    /// The whole tile.
    pub surfaces: &'a [Atom],
    /// Rows of the tile.
    pub rows: usize,
    /// The first of these rows.
    pub first: usize,
}

/// What [`read_scores`] does with the scores that it reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadMode {
    /// Stores them.
    Store,
    /// Adds them to the scores of another part of the vectors.
    Add,
}

/// Multiplies scores by the factors of their rows, and stores them in rows of `stride` elements. The
/// number of rows is that of `factors`; it is a multiple of 4, and so are the rows of the tile.
/// Elements of `to` without a score are unchanged.
pub fn read_scores(
    from: ScoreRows<'_>,
    mode: ReadMode,
    factors: &[f32],
    to: &mut [f32],
    stride: usize,
) {
    let groups = to.chunks_exact_mut((GROUP * stride).max(1));
    let factors = factors.as_chunks().0;
    // The rows of all groups are adjacent: the first group fetches them.
    let mut fetched = GROUP * factors.len();
    for (at, (to, factors)) in groups.zip(factors).enumerate() {
        let from = ScoreRows {
            first: from.first + GROUP * at,
            ..from
        };
        match mode {
            ReadMode::Store => store_group(from, fetched, factors, to, stride),
            ReadMode::Add => add_group(from, fetched, factors, to, stride),
        }
        fetched = 0;
    }
}

fastest! {
    fn store_group(from: ScoreRows<'_>, fetched: usize, factors: &[f32; GROUP], to: &mut [f32], stride: usize) {
        read_group(from, fetched, factors, to, stride, |_, score| score);
    }
}

fastest! {
    fn add_group(from: ScoreRows<'_>, fetched: usize, factors: &[f32; GROUP], to: &mut [f32], stride: usize) {
        read_group(from, fetched, factors, to, stride, |sum, score| sum + score);
    }
}

#[inline(always)]
fn read_group(
    from: ScoreRows<'_>,
    fetched: usize,
    factors: &[f32; GROUP],
    to: &mut [f32],
    stride: usize,
    take: impl Fn(f32, f32) -> f32,
) {
    let (rows, first) = (from.rows, from.first);
    let (a, rest) = to.split_at_mut(stride);
    let (b, rest) = rest.split_at_mut(stride);
    let (c, d) = rest.split_at_mut(stride);
    let count = (stride / SCORES).min(from.surfaces.len() / rows.max(1));
    let [a, b, c, d] = [a, b, c, d].map(|row| &mut row.as_chunks_mut::<SCORES>().0[..count]);
    let mut rest = from.surfaces.get(first..).unwrap_or_default();
    for at in 0..count {
        if fetched > 0 {
            let next = rest.get(AHEAD * rows..AHEAD * rows + fetched);
            prefetch(next.unwrap_or_default().as_flattened());
        }
        let Some(atoms) = rest.first_chunk::<GROUP>() else {
            return;
        };
        let read = |to: &mut [f32; SCORES], row: usize| {
            let scores: [f32; SCORES] = zerocopy::transmute!(atoms[row]);
            for (to, score) in to.iter_mut().zip(scores) {
                *to = take(*to, score * factors[row]);
            }
        };
        read(&mut a[at], 0);
        read(&mut b[at], 1);
        read(&mut c[at], 2);
        read(&mut d[at], 3);
        rest = rest.get(rows..).unwrap_or_default();
    }
}

/// The largest score; NaN if any score is a NaN, and -inf if there is none.
#[must_use]
#[cfg_attr(target_arch = "aarch64", allow(unsafe_code))]
pub fn largest(scores: &[f32]) -> f32 {
    #[cfg(target_arch = "aarch64")]
    {
        const { assert!(cfg!(target_feature = "neon")) }
        // SAFETY: this target has NEON in its baseline, as was just asserted.
        unsafe { neon::largest(scores) }
    }
    #[cfg(not(target_arch = "aarch64"))]
    largest_by_integers(scores)
}

/// Maps binary32 to integers in the same order, with NaNs at both ends. Its own inverse.
#[cfg(any(test, not(target_arch = "aarch64")))]
#[inline(always)]
const fn ordered(bits: i32) -> i32 {
    bits ^ ((bits >> 31).cast_unsigned() >> 1).cast_signed()
}

#[cfg(any(test, not(target_arch = "aarch64")))]
fastest! {
    /// The definition of [`largest`].
    fn largest_by_integers(scores: &[f32]) -> f32 {
        const LEAST: i32 = ordered(f32::NEG_INFINITY.to_bits().cast_signed());
        const MOST: i32 = ordered(f32::INFINITY.to_bits().cast_signed());
        // Integers, so that compilers vectorise it.
        let (mut least, mut most) = (LEAST, LEAST);
        for score in scores {
            let score = ordered(score.to_bits().cast_signed());
            (least, most) = (least.min(score), most.max(score));
        }
        if least < LEAST || most > MOST {
            return f32::NAN;
        }
        f32::from_bits(ordered(most).cast_unsigned())
    }
}

/// Writes exponentials of scores less the maximum of their row, times [`ONE`]. `scores` has rows of
/// `stride` elements, as many as `maxima`; both are multiples of 4. Each of `surfaces` has the atoms
/// of these rows for the next eight keys. No score is above its maximum, and maxima are finite.
#[allow(unsafe_code)]
pub fn exponentials(scores: &[f32], stride: usize, maxima: &[f32], surfaces: &mut [&mut [Atom]]) {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("fma")
        && is_x86_feature_detected!("f16c")
    {
        // SAFETY: the host has AVX2, FMA and F16C.
        return unsafe { x86::exponentials(scores, stride, maxima, surfaces) };
    }
    #[cfg(target_arch = "aarch64")]
    {
        const { assert!(cfg!(target_feature = "neon")) }
        // SAFETY: this target has NEON in its baseline, as was just asserted.
        unsafe { neon::exponentials(scores, stride, maxima, surfaces) }
    }
    #[cfg(not(target_arch = "aarch64"))]
    reference(scores, stride, maxima, surfaces);
}

/// The definition of [`exponentials`].
#[cfg(any(test, not(target_arch = "aarch64")))]
fn reference(scores: &[f32], stride: usize, maxima: &[f32], surfaces: &mut [&mut [Atom]]) {
    let splat = |maximum| maximum;
    each_atom(
        (scores, stride),
        maxima,
        surfaces,
        splat,
        |scores, maximum| {
            let halves = scores.map(|score| f16::from_f32(exponential(score - maximum)).to_bits());
            zerocopy::transmute!(halves)
        },
    );
}

/// 2^14 * e^x, for x up to 0; a NaN counts as -infinity.
#[cfg(any(test, not(target_arch = "aarch64")))]
fn exponential(x: f32) -> f32 {
    // Returns the other operand for a NaN.
    let y = (x * std::f32::consts::LOG2_E).max(EXPONENT_MIN);
    let rounded = y + ROUND_TO_ONE;
    let f = y - (rounded - ROUND_TO_ONE);
    let [c1, c2, c3] = powers::POWERS;
    let power = c3.mul_add(f, c2).mul_add(f, c1).mul_add(f, 1.0);
    f32::from_bits(power.to_bits().wrapping_add(rounded.to_bits() << 23))
}

fastest! {
    /// Removes keys of a row: scores with a negative mask (-inf) become -inf. The others, whose mask
    /// is 0, are unchanged, and so are scores beyond the mask.
    pub fn cut_row(scores: &mut [f32], mask: &[f16]) {
        for (score, mask) in scores.iter_mut().zip(mask) {
            *score = if mask.to_bits().cast_signed() < 0 {
                f32::NEG_INFINITY
            } else {
                *score
            };
        }
    }
}

/// Changes to the scores of a row besides removing keys.
#[derive(Clone, Copy, Debug)]
pub struct Bias {
    /// The bound `c` of `c * tanh(score / c)`; 0 disables it.
    pub softcap: f32,
    /// Factor of the mask.
    pub slope: f32,
}

/// Caps the scores of a row, then adds the mask, if any. Keys with mask -inf get -inf.
pub fn bias_row(scores: &mut [f32], mask: Option<&[f16]>, bias: Bias) {
    /// Masks that are converted at a time.
    const PIECE: usize = 64;
    if bias.softcap != 0.0 {
        cap(scores, bias.softcap);
    }
    let mut masks = [0.0; PIECE];
    let pieces = mask.unwrap_or_default().chunks(PIECE);
    for (scores, mask) in scores.chunks_mut(PIECE).zip(pieces) {
        from_f16(mask.as_bytes(), &mut masks);
        add_masks(scores, &masks[..mask.len()], bias.slope);
    }
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

#[cfg(test)]
mod tests;
