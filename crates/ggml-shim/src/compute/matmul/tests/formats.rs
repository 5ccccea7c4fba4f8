// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of each number format in each precision.

use super::*;
/// Multiplies one row of weights by ones, in a format and a precision.
fn row_sum(id: u32, precision: ComputeType, row: &[f32]) -> Result<f32, String> {
    let ne = [row.len(), 1, 1, 1];
    let weights = dense(id, ne, |[k, ..]| row[k]);
    let activations = dense(type_id::F32, ne, |_| 1.0);
    let mut out = [0.0];
    let computed = run_one(matmul(precision, &weights, &activations, &mut out));
    computed.map_err(|error| error.to_string())?;
    Ok(out[0])
}

/// FP16 alone would turn these into an infinity or a zero.
#[test]
fn float_weights_beyond_fp16_are_scaled_exactly() {
    for size in [1.5e30_f32, 131_072.0, 1.0, 2e-6, 3e-30] {
        let row = [size, size / 2.0, -size / 4.0, 0.0];
        let expected: f32 = row.iter().sum();
        for (id, steps) in [(type_id::F32, 1024.0), (BF16, 64.0)] {
            let sum = row_sum(id, ComputeType::Fp16, &row).unwrap();
            assert!((sum - expected).abs() <= size / steps, "{id} {size}: {sum}");
        }
    }
}

#[test]
fn any_format_takes_either_precision() {
    let sum = row_sum(type_id::F32, INT8, &[1.0, -0.5, 0.25, 2.0]).unwrap();
    // Half a step of the weights and of the activations, which are rotated: four terms each.
    assert!((sum - 2.75).abs() <= 4.0 * (4.0 + 4.0) / 254.0, "{sum}");
    let row: Vec<f32> = (0..32).map(|k| small_weight([k, 1, 0, 0])).collect();
    let sum = row_sum(Q8_0, ComputeType::Fp16, &row);
    assert_eq!(sum, Ok(row.iter().sum()));
}

#[test]
fn damaged_float_weights_are_an_error_in_either_precision() {
    for bad in [f32::NAN, f32::INFINITY] {
        for precision in ComputeType::ALL {
            let error = row_sum(type_id::F32, precision, &[1.0, bad]).unwrap_err();
            assert!(error.contains("row 0"), "{error}");
        }
    }
}
