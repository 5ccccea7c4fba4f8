// SPDX-License-Identifier: MIT OR Apache-2.0
//! Quantises rows of floats to 8-bit integers, and finds their largest magnitude.

/// Largest magnitude of a quantised element. -128 is not used, so that negation stays in range.
pub const INT8_MAX: f32 = 127.0;

/// Adding 1.5 * 2^23 to an f32 of magnitude below 2^22 rounds it to an integer, halves to even, and
/// leaves that integer in the low mantissa bits. Rounding is one addition, which vectorises on any
/// target.
const ROUND_TO_INTEGER: f32 = 12_582_912.0;

/// Mask of an f32 without its sign. As integers these bits order magnitudes, with infinity and NaN
/// above every finite value.
const MAGNITUDE_BITS: u32 = 0x7fff_ffff;

fastest! {
    /// The largest magnitude of a row, as the bits of an f32 without sign; 0 for an empty row. A
    /// value of infinity or more means that the row has an infinity or a NaN.
    #[must_use]
    pub fn largest_magnitude(row: &[f32]) -> u32 {
        row.iter()
            .fold(0, |max, x| max.max(x.to_bits() & MAGNITUDE_BITS))
    }
}

fastest! {
    /// Computes `out = round(row * inverse)`, halves to even, clamped to +-[`INT8_MAX`]. A NaN
    /// becomes [`INT8_MAX`]. Elements beyond the shorter slice are unchanged.
    pub fn quantise(row: &[f32], inverse: f32, out: &mut [i8]) {
        for (q, &x) in out.iter_mut().zip(row) {
            let within = clamped(x * inverse, INT8_MAX);
            // The cast keeps the low byte: the integer in two's complement.
            *q = (within + ROUND_TO_INTEGER).to_bits() as i8;
        }
    }
}

/// Clamps to `-limit..=limit`; a NaN becomes `limit`. Each form takes two instructions: comparisons
/// on x86-64, of which the first is false for a NaN; `min` and `max` on aarch64, which drop a NaN.
#[inline(always)]
fn clamped(number: f32, limit: f32) -> f32 {
    if cfg!(target_arch = "aarch64") {
        return number.min(limit).max(-limit);
    }
    let below = if number < limit { number } else { limit };
    if below > -limit { below } else { -limit }
}

/// The bits of infinity. The bits of any finite magnitude are below it.
const INFINITY_BITS: u32 = 0x7f80_0000;

/// Quantises a row to integers q with x ~ scale * q, and returns the scale: max|x| / 127. Nothing
/// is clamped: |x / scale| is at most 127 * (1 + 2^-22).
///
/// The scale is 0 for a row of zeros, or if it would be subnormal, and NaN for a row with a NaN or
/// infinity; then the integers are zeros.
pub fn quantise_row(row: &[f32], out: &mut [i8]) -> f32 {
    let largest = largest_magnitude(row);
    let scale = f32::from_bits(largest) / INT8_MAX;
    let special = match largest {
        INFINITY_BITS.. => f32::NAN,
        _ if scale < f32::MIN_POSITIVE => 0.0,
        _ => {
            quantise(row, scale.recip(), out);
            return scale;
        }
    };
    out.fill(0);
    special
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn reference(row: &[f32], inverse: f32) -> Vec<i8> {
        let number = |x: f32| if x.is_nan() { INT8_MAX } else { x };
        row.iter()
            .map(|x| {
                number(x * inverse)
                    .clamp(-INT8_MAX, INT8_MAX)
                    .round_ties_even() as i8
            })
            .collect()
    }

    proptest! {
        #![proptest_config(test_support::cases(256))]

        #[test]
        fn any_bits(
            row in prop::collection::vec(any::<u32>().prop_map(f32::from_bits), 0..300),
            inverse in any::<u32>().prop_map(f32::from_bits),
        ) {
            let mut out = vec![1; row.len()];
            quantise(&row, inverse, &mut out);
            prop_assert_eq!(out, reference(&row, inverse));
            let largest = row.iter().map(|x| x.abs().to_bits()).max().unwrap_or(0);
            prop_assert_eq!(largest_magnitude(&row), largest);
        }

        #[test]
        fn halves_and_their_neighbours(
            row in prop::collection::vec((-300..=300_i32, -1..=1_i32), 1..200),
        ) {
            let row: Vec<f32> = row
                .into_iter()
                .map(|(half, ulps)| {
                    let x = half as f32 / 2.0;
                    f32::from_bits(x.to_bits().wrapping_add_signed(if x == 0.0 { 0 } else { ulps }))
                })
                .collect();
            let mut out = vec![0; row.len()];
            quantise(&row, 1.0, &mut out);
            prop_assert_eq!(out, reference(&row, 1.0));
        }
    }

    #[test]
    fn lengths_that_differ() {
        let mut out = [9; 3];
        quantise(&[1.0, 2.0], 1.0, &mut out);
        assert_eq!(out, [1, 2, 9]);
        quantise(&[3.0; 9], 1.0, &mut out);
        assert_eq!(out, [3; 3]);
    }
}
