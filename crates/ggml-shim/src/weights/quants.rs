// SPDX-License-Identifier: MIT OR Apache-2.0
//! Converts numbers of ggml's tensors for the NPU.
//!
//! **Weights for FP16**: F16 goes to the NPU unchanged. F32 and BF16 are rounded row by row like
//! activations, see below. If a row had to be scaled, its outputs are scaled back.
//!
//! **Weights for INT8** are decoded to f32 by ggml's own routine, and then quantised again with one
//! scale per output channel: the NPU sums a whole row in one INT32, so that scales inside a row are
//! not possible. The added error is at most half a step of 1/127 of the row's largest weight.
//!
//! **F32 activations** for the FP16 path are rounded to FP16, like in ggml's own CPU backend for
//! F16 weights. FP16 ends at 65504, and how the NPU treats infinities, NaN and numbers below 2^-14
//! (subnormal) is not documented and was not measured. So rows outside a safe range are scaled by a
//! power of two, which is exact, and their outputs are scaled back. Rows with an infinity or a NaN
//! never reach the NPU. Their outputs are NaN, like the sum over such a row (or an infinity).

use half::f16;
use npu_kernels::half::to_f16;
use npu_kernels::quantise::largest_magnitude;
use zerocopy::{FromBytes, IntoBytes};

/// Largest magnitude of a row that is rounded to FP16 without scaling; below 65504 by a factor of
/// two, which leaves room for the rounding.
const LARGEST_PLAIN: f32 = 32768.0;
/// Smallest such magnitude: elements down to 2^-12 of the largest one, which
/// is the rounding of the largest one, are then still normal FP16 numbers.
const SMALLEST_PLAIN: f32 = 0.25;

/// Views the bytes of one row as FP16; `None` if they are not aligned.
pub(crate) fn as_f16(bytes: &[u8]) -> Option<&[f16]> {
    <[f16]>::ref_from_bytes(bytes).ok()
}

/// The first of the rows of `k` FP16 weights that holds an infinity or a NaN.
pub(crate) fn first_not_finite(weights: &[f16], k: usize) -> Option<usize> {
    let bad = |row: &[f16]| row.iter().any(|weight| !weight.is_finite());
    weights.chunks_exact(k).position(bad)
}

/// Multiplies the outputs of a row by its factor, and by those of the weight rows, `columns`, if
/// there are any. With a factor of NaN all outputs become NaN.
pub(crate) fn scale_outputs(factor: f32, columns: &[f32], outputs: &mut [f32]) {
    if factor.is_nan() {
        outputs.fill(f32::NAN);
    } else if !columns.is_empty() {
        for (output, column) in outputs.iter_mut().zip(columns) {
            // A large and a small factor may cancel. The value between them must neither
            // overflow nor vanish; an f64 has the range.
            *output = (f64::from(*output) * f64::from(factor) * f64::from(*column)) as f32;
        }
    } else if factor != 1.0 {
        outputs.iter_mut().for_each(|output| *output *= factor);
    }
}

/// Largest magnitude of a row; `None` if it holds an infinity or a NaN.
pub(crate) fn magnitude(row: &[f32]) -> Option<f32> {
    let largest = f32::from_bits(largest_magnitude(row));
    largest.is_finite().then_some(largest)
}

/// Number of elements that are scaled at a time, before they are rounded.
const SCALED_AT_ONCE: usize = 256;

/// Returns the power of two by which numbers are multiplied before they are rounded to FP16, if
/// `largest` is their largest magnitude. It is 1 if some are not finite; these stay so.
pub(crate) fn factor_to_f16(largest: f32) -> f32 {
    let is_plain = largest == 0.0 || (SMALLEST_PLAIN..=LARGEST_PLAIN).contains(&largest);
    if is_plain || !largest.is_finite() {
        1.0
    } else {
        power_of_two_to_unit(largest)
    }
}

/// Multiplies one row by a power of two, and rounds it to FP16 into `out`, of the same length.
pub(crate) fn round_scaled(row: &[f32], factor: f32, out: &mut [f16]) {
    if factor == 1.0 {
        return to_f16(row, out.as_mut_bytes());
    }
    let mut scaled = [0.0; SCALED_AT_ONCE];
    let parts = row.chunks(SCALED_AT_ONCE);
    for (row, out) in parts.zip(out.chunks_mut(SCALED_AT_ONCE)) {
        for (scaled, value) in scaled.iter_mut().zip(row) {
            *scaled = value * factor;
        }
        to_f16(&scaled[..row.len()], out.as_mut_bytes());
    }
}

/// Rounds one row to FP16 into `out`, of the same length. Returns the factor for its outputs: 1 or
/// another power of two, or NaN if the row holds an infinity or a NaN.
pub(crate) fn round_to_f16(row: &[f32], out: &mut [f16]) -> f32 {
    let Some(largest) = magnitude(row) else {
        out.fill(f16::ZERO);
        return f32::NAN;
    };
    let factor = factor_to_f16(largest);
    round_scaled(row, factor, out);
    1.0 / factor
}

/// Returns the power of two that scales `largest` to near one: into [1, 2), or as near as a normal
/// factor with a normal inverse can.
fn power_of_two_to_unit(largest: f32) -> f32 {
    /// Bits of an f32 below its exponent.
    const MANTISSA: u32 = f32::MANTISSA_DIGITS - 1;
    /// Exponent field of 1.0.
    const BIAS: u32 = 127;
    let exponent = (largest.to_bits() >> MANTISSA).clamp(1, 2 * BIAS - 1);
    f32::from_bits((2 * BIAS - exponent) << MANTISSA)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn misaligned_f16_is_refused_not_read() {
        let words = [0_u16; 8];
        let bytes = words.as_bytes();
        assert_eq!(as_f16(&bytes[..8]).unwrap().len(), 4);
        assert!(as_f16(&bytes[1..9]).is_none());
        assert!(as_f16(&bytes[..7]).is_none());
    }

    #[test]
    fn damaged_weights_are_found_with_their_row() {
        let mut weights = vec![f16::ONE; 12];
        assert_eq!(first_not_finite(&weights, 4), None);
        weights[9] = f16::NAN;
        assert_eq!(first_not_finite(&weights, 4), Some(2));
    }

    #[test]
    fn opposite_factors_cancel_without_overflow() {
        let mut outputs = [3.0, -1.0];
        let (huge, tiny) = (f32::from_bits(0x7e80_0000), f32::MIN_POSITIVE);
        scale_outputs(huge, &[tiny, 1.0 / huge], &mut outputs);
        assert_eq!(outputs, [3.0 * (huge * tiny), -1.0]);
        for columns in [&[][..], &[1.0, 1.0]] {
            let mut outputs = [1.0, 2.0];
            scale_outputs(f32::NAN, columns, &mut outputs);
            assert!(outputs.iter().all(|output| output.is_nan()));
        }
    }

    /// The definition of [`round_to_f16`], one element after the other.
    fn rounded_one_by_one(row: &[f32]) -> (Vec<f16>, f32) {
        if row.iter().any(|value| !value.is_finite()) {
            return (vec![f16::ZERO; row.len()], f32::NAN);
        }
        let largest = row
            .iter()
            .fold(0.0_f32, |most, value| most.max(value.abs()));
        let is_plain = largest == 0.0 || (0.25..=32768.0).contains(&largest);
        let factor = if is_plain {
            1.0
        } else {
            power_of_two_to_unit(largest)
        };
        let round = |value: &f32| f16::from_f32(value * factor);
        (row.iter().map(round).collect(), 1.0 / factor)
    }

    proptest! {
        #[test]
        fn rows_are_rounded_as_element_by_element(
            bits in proptest::collection::vec(any::<u32>(), 1..600),
            exponents in prop_oneof![Just(None), (0..255_u32).prop_map(Some)],
            keeps_bad in any::<bool>(),
        ) {
            // Elements of one magnitude, or of any; some with infinities and NaN.
            let element = |bits: u32| match exponents {
                Some(exponent) => f32::from_bits(bits & 0x807f_ffff | exponent << 23),
                None => f32::from_bits(bits),
            };
            let row = bits.into_iter().map(element);
            let row: Vec<f32> = row.filter(|value| keeps_bad || value.is_finite()).collect();
            let mut out = vec![f16::ONE; row.len()];
            let factor = round_to_f16(&row, &mut out);
            let (expected, expected_factor) = rounded_one_by_one(&row);
            let bits = |halves: &[f16]| halves.iter().map(|half| half.to_bits()).collect::<Vec<_>>();
            prop_assert_eq!(bits(&out), bits(&expected));
            prop_assert_eq!(factor.to_bits(), expected_factor.to_bits());
            // Eleven bits are kept at any size.
            let largest = row.iter().fold(0.0_f32, |largest, value| largest.max(value.abs()));
            if factor.is_nan() || largest >= 3.0e38 {
                return Ok(());
            }
            let mut back: Vec<f32> = out.iter().map(|value| value.to_f32()).collect();
            scale_outputs(factor, &[], &mut back);
            for (value, back) in row.iter().zip(back) {
                prop_assert!((f64::from(*value) - f64::from(back)).abs() <= f64::from(largest) / 2048.0 + f64::from(f32::MIN_POSITIVE));
            }
        }
    }
}
