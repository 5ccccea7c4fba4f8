// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of each number format in each precision.

use super::*;
use crate::types::tests::BF16;

/// Multiplies one row of weights by ones, in a format and a precision.
fn row_sum(id: u32, precision: ComputeType, row: &[u8], k: usize) -> Result<f32, String> {
    let activations = vec![1.0_f32; k];
    let mut out = [0.0];
    let shape = Shape {
        m: 1,
        n: 1,
        k,
        matrices: [1, 1],
        repeats: [1, 1],
    };
    let matmul = MulMat {
        offload: Offload {
            precision,
            shape,
            experts: None,
        },
        decoder: decoder(id),
        weights: TensorBytes {
            bytes: row,
            row_bytes: row.len(),
            nb: [1, row.len(), row.len(), row.len()],
        },
        stored: stored(id, [k, 1, 1, 1], [1, row.len(), row.len(), row.len()], row),
        ids: None,
        activations: TensorBytes {
            bytes: activations.as_bytes(),
            row_bytes: 4 * k,
            nb: [4, 4 * k, 4 * k, 4 * k],
        },
        out: NodeOutput::InPlace(&mut out),
        kept: None,
        errors: None,
    };
    run_one(matmul).map_err(|error| error.to_string())?;
    Ok(out[0])
}

/// FP16 alone would turn these into an infinity or a zero.
#[test]
fn float_weights_beyond_fp16_are_scaled_exactly() {
    for size in [1.5e30_f32, 131_072.0, 1.0, 2e-6, 3e-30] {
        let row = [size, size / 2.0, -size / 4.0, 0.0];
        let expected: f32 = row.iter().sum();
        let sum = row_sum(type_id::F32, ComputeType::Fp16, row.as_bytes(), 4).unwrap();
        assert!(
            (sum - expected).abs() <= size.abs() / 1024.0,
            "{size}: {sum}"
        );
        let row = row.map(half::bf16::from_f32);
        let sum = row_sum(BF16, ComputeType::Fp16, row.as_bytes(), 4).unwrap();
        assert!((sum - expected).abs() <= size.abs() / 64.0, "{size}: {sum}");
    }
}

#[test]
fn any_format_takes_either_precision() {
    let row = [1.0_f32, -0.5, 0.25, 2.0];
    let sum = row_sum(type_id::F32, ComputeType::Int8Hadamard, row.as_bytes(), 4).unwrap();
    // Half a step of the weights and of the activations, which are rotated: four terms each.
    assert!((sum - 2.75).abs() <= 4.0 * (4.0 + 4.0) / 254.0, "{sum}");
    let weights = q8_0_weights();
    let expected: f32 = (0..32).map(|k| weight([k, 1, 0, 0]) / 2.0).sum();
    assert_eq!(
        row_sum(Q8_0, ComputeType::Fp16, &weights[34..68], 32),
        Ok(expected)
    );
}

#[test]
fn damaged_float_weights_are_an_error_in_either_precision() {
    for bad in [f32::NAN, f32::INFINITY] {
        for precision in ComputeType::ALL {
            let row = [1.0, bad];
            let error = row_sum(type_id::F32, precision, row.as_bytes(), 2).unwrap_err();
            assert!(error.contains("row 0"), "{error}");
        }
    }
}
