// SPDX-License-Identifier: MIT OR Apache-2.0
//! CORE: the MAC array and its accumulators.
//!
//! Both operands arrive as rows with the same order of taps and channels: one
//! of an output pixel's window (see [`super::patches`]), one of a kernel (see
//! [`super::weights`]). The array computes their inner product.
//!
//! # Arithmetic
//!
//! * Integers: exact sums. The accumulator is wider than any sum that the
//!   registers can ask for, and saturates to int32 on its way to the DPU
//!   (E-sums-saturate).
//! * fp16: exact products, added 64 at a time in float32 and from there on in
//!   float64, in the order that [`super::gemm`] states, and rounded once to
//!   fp32. A product passes 9 additions in float32 at most (7 of its lane, 2
//!   between lanes), each with an error below 2^-24 of a partial sum. The
//!   additions in float64 are less than 2^9 (a kernel has at most 32 KiB), with
//!   errors below 2^-44 of the sum of the magnitudes together. With the last
//!   rounding the result lies within 2^-24 of its own magnitude and 10 * 2^-24
//!   of the sum of magnitudes. Integers are exact while the sum of magnitudes
//!   is at most 2^24.
//! * Other floats: products and sums in float64, in the order stated there,
//!   rounded once to fp32. A product of two bf16 or tf32 numbers is exact in
//!   float64, so that only the sum of N products rounds: its error is below
//!   N * 2^-53 of the sum of the magnitudes, and N is at most 2^16. With the
//!   last rounding the result lies within 2^-24 of its own magnitude and 2^-37
//!   of the sum of magnitudes.
//!
//! Silicon adds floats in float32, or in a similar format, in an unknown order
//! (E-fp-order). Every NaN becomes the one NaN of [`round_sum`], on every host.

/// Longest row of int8 products that is summed in i32, in elements.
pub(crate) const INT8_ROW_MAX: usize = 1 << 16;
/// Largest int8 depthwise kernel that is summed in i32, in taps: a value is at
/// most 2^7, a weight with its offset 2^15 + 2^7.
pub(crate) const INT8_TAPS_MAX: usize = 510;
const _: () = assert!(INT8_TAPS_MAX * (1 << 7) * ((1 << 15) + (1 << 7)) <= i32::MAX as usize);

/// Exact inner product of integer rows of equal length.
pub(crate) fn dot_int(a: &[i16], b: &[i16]) -> i64 {
    a.iter()
        .zip(b)
        .map(|(&a, &b)| i64::from(i32::from(a) * i32::from(b)))
        .sum()
}

/// Rounds a float sum to fp32.
pub(crate) fn round_sum(sum: f64) -> f32 {
    one_nan(sum as f32)
}

/// Replaces any NaN by one NaN: hosts differ in the sign and payload of theirs.
pub(crate) fn one_nan(x: f32) -> f32 {
    if x.is_nan() { f32::NAN } else { x }
}

/// The greater of two floats: a number counts as greater than a NaN, and 0 than
/// -0. `f32::max` leaves zeros and signalling NaNs to the host.
pub(crate) fn greater(a: f32, b: f32) -> f32 {
    if a == b {
        f32::from_bits(a.to_bits() & b.to_bits())
    } else if b > a || a.is_nan() {
        one_nan(b)
    } else {
        a
    }
}

/// The lesser of two floats: a number counts as less than a NaN, and -0 than 0.
pub(crate) fn lesser(a: f32, b: f32) -> f32 {
    if a == b {
        f32::from_bits(a.to_bits() | b.to_bits())
    } else if b < a || a.is_nan() {
        one_nan(b)
    } else {
        a
    }
}

/// Shift of the accumulator on its way to the DPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Truncate {
    /// Arithmetic right shift, 0..=31.
    pub(crate) shift: u32,
    pub(crate) ties: Ties,
}

impl Truncate {
    /// The 32-bit value that the DPU gets.
    pub(crate) fn apply(self, accumulator: i64) -> i32 {
        saturate_i32(shift_right_rounded(accumulator, self.shift, self.ties))
    }
}

/// Direction in which rounding to nearest moves exact halves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ties {
    Even,
    /// Towards plus infinity.
    Up,
    Away,
}

impl Ties {
    /// Decodes a ROUND_TYPE field: half to even, or up (E-round-type).
    pub(crate) fn from_round_type(bit: u32) -> Self {
        if bit == 1 { Self::Up } else { Self::Even }
    }
}

/// `value / 2^shift`, rounded to nearest.
///
/// Shifts of 64 and more give 0.
pub(crate) fn shift_right_rounded(value: i64, shift: u32, ties: Ties) -> i64 {
    match shift {
        0 => return value,
        1..=63 => {}
        _ => return 0,
    }
    let floor = value >> (shift - 1) >> 1;
    let half = value >> (shift - 1) & 1;
    let beyond = value & ((1 << (shift - 1)) - 1) != 0;
    let tie_goes_up = match ties {
        Ties::Even => floor & 1 == 1,
        Ties::Up => true,
        Ties::Away => value >= 0,
    };
    floor + (half & i64::from(beyond || tie_goes_up))
}

/// Saturation at the output of the accumulator and of every integer stage.
pub(crate) fn saturate_i32(value: i64) -> i32 {
    value.clamp(i32::MIN.into(), i32::MAX.into()) as i32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ties_round_as_asked() {
        for (value, rounded) in [
            (1, [0, 1, 1]),
            (3, [2, 2, 2]),
            (5, [2, 3, 3]),
            (-1, [0, 0, -1]),
            (-3, [-2, -1, -2]),
            (-4, [-2, -2, -2]),
        ] {
            let ties = [Ties::Even, Ties::Up, Ties::Away];
            let got = ties.map(|ties| shift_right_rounded(value, 1, ties));
            assert_eq!(got, rounded, "{value} to even, up, away");
        }
        assert_eq!(shift_right_rounded(-5, 2, Ties::Even), -1);
        assert_eq!(shift_right_rounded(i64::MIN, 63, Ties::Even), -1);
        assert_eq!(shift_right_rounded(i64::MAX, 64, Ties::Up), 0);
    }

    #[test]
    fn the_accumulator_saturates() {
        let ties = Ties::Even;
        let shifted = |shift, value| Truncate { shift, ties }.apply(value);
        assert_eq!(shifted(0, 1 << 40), i32::MAX);
        assert_eq!(shifted(0, -(1 << 40)), i32::MIN);
        assert_eq!(shifted(20, 1 << 40), 1 << 20);
    }

    #[test]
    fn words_are_summed_exactly() {
        let row = vec![i16::MIN; 1000];
        assert_eq!(dot_int(&row, &row), 1000 << 30);
    }

    #[test]
    fn there_is_one_nan() {
        let odd = f64::from_bits(0xfff8_0000_dead_beef);
        assert_eq!(round_sum(odd).to_bits(), 0x7fc0_0000);
        assert_eq!(round_sum(1e300), f32::INFINITY);
    }
}
