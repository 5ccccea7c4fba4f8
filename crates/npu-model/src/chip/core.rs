// SPDX-License-Identifier: MIT OR Apache-2.0
//! CORE: the MAC array and its accumulators.
//!
//! Both operands arrive as rows: one of an output pixel's window (see
//! [`super::patches`]), one of a kernel (see [`super::weights`]), with the
//! same order of taps and channels. What the array does is their inner
//! product.
//!
//! # Arithmetic
//!
//! * Integers: exact sums. The accumulator is wider than any sum that the
//!   registers can ask for, and saturates to int32 where it leaves for the
//!   DPU (measured: int16 saturates, never wraps).
//! * Floats: every product is exact in fp32 (fp16, bf16 and tf32 have at most
//!   11 bits of mantissa). Silicon's order of additions is not known; its
//!   results were measured to lie within 1e-7 relative of a float64 sum. The
//!   model's order is [`FLOAT_LANES`] running sums over the row, lane
//!   `i % 16`, each kept in fp32 for [`FLOAT_CHUNK`] products and then added
//!   to a float64 total; the sixteen totals are added in order, and the sum
//!   is rounded once to fp32. The error against the exact sum stays below
//!   2^-21 of the sum of the magnitudes.

/// Running sums of a float inner product.
pub(crate) const FLOAT_LANES: usize = 16;
/// Products that are summed in fp32 before they move to float64: 8 a lane.
pub(crate) const FLOAT_CHUNK: usize = 128;
/// Products of two int8 (at most 2^14) whose sum fits an i32 for certain.
const INT8_CHUNK: usize = 1 << 16;

/// The largest magnitude of an integer operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IntRange {
    /// At most 2^7: int8 and int4.
    Byte,
    /// At most 2^15.
    Word,
}

/// Exact inner product of integer rows of equal length.
pub(crate) fn dot_int(range: IntRange, a: &[i16], b: &[i16]) -> i64 {
    match range {
        IntRange::Byte => a
            .chunks(INT8_CHUNK)
            .zip(b.chunks(INT8_CHUNK))
            .map(|(a, b)| i64::from(dot_byte_chunk(a, b)))
            .sum(),
        IntRange::Word => a
            .iter()
            .zip(b)
            .map(|(&a, &b)| i64::from(i32::from(a) * i32::from(b)))
            .sum(),
    }
}

/// The form of this loop is what compilers turn into multiply-add-pairs
/// instructions: 8 products each on baseline x86-64.
#[inline]
fn dot_byte_chunk(a: &[i16], b: &[i16]) -> i32 {
    a.iter()
        .zip(b)
        .map(|(&a, &b)| i32::from(a) * i32::from(b))
        .sum()
}

/// Inner product of float rows of equal length, in the order this module
/// states. Rows are padded with zeros to a multiple of [`FLOAT_LANES`].
pub(crate) fn dot_float(a: &[f32], b: &[f32]) -> f32 {
    let mut totals = [0f64; FLOAT_LANES];
    for (a, b) in a.chunks(FLOAT_CHUNK).zip(b.chunks(FLOAT_CHUNK)) {
        let mut lanes = [0f32; FLOAT_LANES];
        for (a, b) in a.chunks_exact(FLOAT_LANES).zip(b.chunks_exact(FLOAT_LANES)) {
            for lane in 0..FLOAT_LANES {
                lanes[lane] += a[lane] * b[lane];
            }
        }
        for (total, lane) in totals.iter_mut().zip(lanes) {
            *total += f64::from(lane);
        }
    }
    totals.iter().sum::<f64>() as f32
}

/// How the accumulator is shortened on its way to the DPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Truncate {
    /// Arithmetic right shift, 0..=31.
    pub(crate) shift: u32,
    /// Ties go up; else to even.
    pub(crate) ties_up: bool,
}

impl Truncate {
    /// The 32-bit value that the DPU gets.
    pub(crate) fn apply(self, accumulator: i64) -> i32 {
        saturate_i32(shift_right_rounded(accumulator, self.shift, self.ties_up))
    }
}

/// `value / 2^shift`, rounded to nearest.
///
/// Shifts of 63 and more give 0 or the rounding of a magnitude below one half.
pub(crate) fn shift_right_rounded(value: i64, shift: u32, ties_up: bool) -> i64 {
    if shift == 0 {
        return value;
    }
    if shift > 63 {
        return 0;
    }
    let floor = value >> (shift - 1) >> 1;
    let rest = value & ((1i64 << (shift - 1)) | ((1i64 << (shift - 1)) - 1));
    let half = 1i64 << (shift - 1);
    // `rest` as an unsigned number: for shift 63 and above it has no sign.
    let (rest, half) = (rest as u64, half as u64);
    let up = rest > half || (rest == half && (ties_up || floor & 1 == 1));
    floor + i64::from(up)
}

/// Saturation at the output of the accumulator and of every integer stage.
pub(crate) fn saturate_i32(value: i64) -> i32 {
    value.clamp(i32::MIN.into(), i32::MAX.into()) as i32
}

/// The arithmetic once more, literally: the reference that the routines above
/// are tested against.
#[cfg(test)]
pub(crate) mod reference {
    use super::{FLOAT_CHUNK, FLOAT_LANES};

    pub(crate) fn dot_int(a: &[i16], b: &[i16]) -> i64 {
        let mut sum = 0;
        for i in 0..a.len() {
            sum += i64::from(a[i]) * i64::from(b[i]);
        }
        sum
    }

    pub(crate) fn dot_float(a: &[f32], b: &[f32]) -> f32 {
        let mut sum = 0f64;
        for lane in 0..FLOAT_LANES {
            let mut total = 0f64;
            for start in (0..a.len()).step_by(FLOAT_CHUNK) {
                let end = a.len().min(start + FLOAT_CHUNK);
                let mut partial = 0f32;
                for i in (start + lane..end).step_by(FLOAT_LANES) {
                    partial += a[i] * b[i];
                }
                total += f64::from(partial);
            }
            sum += total;
        }
        sum as f32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ties_round_as_asked() {
        for (value, even, up) in [(1, 0, 1), (3, 2, 2), (-1, 0, 0), (-3, -2, -1), (5, 2, 3)] {
            assert_eq!(
                shift_right_rounded(value, 1, false),
                even,
                "{value} to even"
            );
            assert_eq!(shift_right_rounded(value, 1, true), up, "{value} up");
        }
        assert_eq!(shift_right_rounded(-5, 2, false), -1);
        assert_eq!(shift_right_rounded(i64::MIN, 63, false), -1);
        assert_eq!(shift_right_rounded(i64::MAX, 64, true), 0);
    }

    #[test]
    fn the_accumulator_saturates() {
        let keep = Truncate {
            shift: 0,
            ties_up: false,
        };
        assert_eq!(keep.apply(1 << 40), i32::MAX);
        assert_eq!(keep.apply(-(1 << 40)), i32::MIN);
        assert_eq!(
            Truncate {
                shift: 20,
                ties_up: false
            }
            .apply(1 << 40),
            1 << 20
        );
    }

    #[test]
    fn long_rows_of_extremes_stay_exact() {
        let row = vec![-128i16; 3 * INT8_CHUNK + 5];
        assert_eq!(
            dot_int(IntRange::Byte, &row, &row),
            row.len() as i64 * 16384
        );
        let row = vec![i16::MIN; 1000];
        assert_eq!(dot_int(IntRange::Word, &row, &row), 1000 << 30);
    }

    proptest! {
        #![proptest_config(test_support::cases(64))]

        #[test]
        fn integers_equal_the_reference(pairs in prop::collection::vec((-128i16..=127, -128i16..=127), 0..600)) {
            let (a, b): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
            prop_assert_eq!(dot_int(IntRange::Byte, &a, &b), reference::dot_int(&a, &b));
            prop_assert_eq!(dot_int(IntRange::Word, &a, &b), reference::dot_int(&a, &b));
        }

        #[test]
        fn floats_equal_the_reference(
            pairs in prop::collection::vec((any::<i16>(), any::<i16>()), 0..40),
            repeat in 1usize..12,
        ) {
            let half = |bits: i16| {
                let value = half::f16::from_bits(bits as u16).to_f32();
                if value.is_finite() { value } else { 1.0 }
            };
            let mut a: Vec<f32> = pairs.iter().map(|p| half(p.0)).collect();
            let mut b: Vec<f32> = pairs.iter().map(|p| half(p.1)).collect();
            a = a.repeat(repeat);
            b = b.repeat(repeat);
            let padded = a.len().next_multiple_of(FLOAT_LANES);
            a.resize(padded, 0.0);
            b.resize(padded, 0.0);
            let got = dot_float(&a, &b);
            prop_assert_eq!(got.to_bits(), reference::dot_float(&a, &b).to_bits());
            let exact: f64 = a.iter().zip(&b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum();
            let magnitude: f64 = a.iter().zip(&b).map(|(&a, &b)| f64::from(a * b).abs()).sum();
            let bound = magnitude * (-21f64).exp2() + f64::from(got.abs()) * (-24f64).exp2();
            prop_assert!((f64::from(got) - exact).abs() <= bound, "{got} against {exact}");
        }
    }
}
