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

/// `value` plus a number times two scales: made in f64, rounded once.
#[inline(always)]
fn add_scaled(value: f32, number: f64, row_scale: f32, column_scale: f32) -> f32 {
    (f64::from(value) + number * f64::from(row_scale) * f64::from(column_scale)) as f32
}

fastest! {
    /// Adds to each float of `out` what its sum stands for. Each result is
    /// rounded to f32 once. Elements beyond the shortest slice are left alone.
    pub fn add_dequantised_row(
        sums: &[i32],
        row_scale: f32,
        column_scales: &[f32],
        out: &mut [f32],
    ) = add_dequantised_row_body;
}

#[inline(always)]
fn add_dequantised_row_body(sums: &[i32], row_scale: f32, column_scales: &[f32], out: &mut [f32]) {
    for ((out, &sum), &scale) in out.iter_mut().zip(sums).zip(column_scales) {
        *out = add_scaled(*out, sum.into(), row_scale, scale);
    }
}

fastest! {
    /// As [`add_dequantised_row`], for sums that are floats.
    pub fn add_scaled_row(
        sums: &[f32],
        row_scale: f32,
        column_scales: &[f32],
        out: &mut [f32],
    ) = add_scaled_row_body;
}

#[inline(always)]
fn add_scaled_row_body(sums: &[f32], row_scale: f32, column_scales: &[f32], out: &mut [f32]) {
    for ((out, &sum), &scale) in out.iter_mut().zip(sums).zip(column_scales) {
        *out = add_scaled(*out, sum.into(), row_scale, scale);
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

        #[test]
        fn sums_are_added_with_their_scales(
            columns in prop::collection::vec((any::<i32>(), scale(), scale()), 0..100),
            row_scale in scale(),
        ) {
            let (sums, scales): (Vec<_>, Vec<_>) = columns.iter().map(|c| (c.0, c.1)).unzip();
            let floats: Vec<f32> = sums.iter().map(|&sum| sum as f32).collect();
            let mut out: Vec<f32> = columns.iter().map(|c| c.2).collect();
            out.push(77.0);
            let mut from_floats = out.clone();
            add_dequantised_row(&sums, row_scale, &scales, &mut out);
            add_scaled_row(&floats, row_scale, &scales, &mut from_floats);
            prop_assert_eq!(out.pop(), Some(77.0));
            prop_assert_eq!(from_floats.pop(), Some(77.0));
            for (at, (sum, scale, old)) in columns.into_iter().enumerate() {
                for (number, got) in [(f64::from(sum), out[at]), (floats[at].into(), from_floats[at])] {
                    let scaled = number * f64::from(row_scale) * f64::from(scale);
                    let want = (f64::from(old) + scaled) as f32;
                    let same = got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan();
                    prop_assert!(same, "{got} for {want}");
                }
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
