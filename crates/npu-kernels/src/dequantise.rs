// SPDX-License-Identifier: MIT OR Apache-2.0
//! Integer sums -> the floats that they stand for.

/// The float that an integer result stands for. The product of all three is
/// made in f64: both scales and the sum together can leave the range of f32
/// half-way to a result within it.
#[inline(always)]
#[must_use]
pub fn dequantise(sum: i32, row_scale: f32, column_scale: f32) -> f32 {
    (f64::from(sum) * f64::from(row_scale) * f64::from(column_scale)) as f32
}

fastest! {
    /// Replaces each sum of a row by the bits of its [`dequantise`]d float, in
    /// place: `sums` has the memory of the result. Sums beyond the scales are
    /// left alone.
    pub fn dequantise_row(sums: &mut [i32], row_scale: f32, column_scales: &[f32])
        = dequantise_row_body;
}

#[inline(always)]
fn dequantise_row_body(sums: &mut [i32], row_scale: f32, column_scales: &[f32]) {
    for (sum, &scale) in sums.iter_mut().zip(column_scales) {
        *sum = dequantise(*sum, row_scale, scale).to_bits().cast_signed();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The definition of one element, kept from the optimiser's loops.
    #[inline(never)]
    fn reference(sum: i32, row_scale: f32, column_scale: f32) -> f32 {
        let exact = f64::from(row_scale) * f64::from(sum);
        (exact * f64::from(column_scale)) as f32
    }

    fn scale() -> impl Strategy<Value = f32> {
        any::<u32>().prop_map(f32::from_bits)
    }

    proptest! {
        #![proptest_config(test_support::cases(256))]

        #[test]
        fn a_row_is_its_elements(
            columns in prop::collection::vec((any::<i32>(), scale()), 0..100),
            row_scale in scale(),
        ) {
            let (mut sums, scales): (Vec<_>, Vec<_>) = columns.iter().copied().unzip();
            sums.push(77);
            dequantise_row(&mut sums, row_scale, &scales);
            prop_assert_eq!(sums.pop(), Some(77));
            for ((sum, scale), value) in columns.into_iter().zip(sums) {
                let (value, expected) =
                    (f32::from_bits(value.cast_unsigned()), reference(sum, row_scale, scale));
                let same = value.to_bits() == expected.to_bits()
                    || value.is_nan() && expected.is_nan();
                prop_assert!(same, "{value} for {expected}");
            }
        }
    }

    #[test]
    fn scales_of_any_size_give_the_result_that_fits() {
        assert_eq!(dequantise(1 << 20, 1e35, 1e-35), (1 << 20) as f32);
        assert_eq!(dequantise(3, 0.0, 1e38), 0.0);
        assert!(dequantise(1 << 20, 1e35, 0.0) == 0.0);
    }
}
