// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests with small matrices on the software model.

use npu_offload::ComputeType;
use zerocopy::IntoBytes;

use super::*;
use crate::compute::mul_mat::tests::OPENED;
use crate::ggml::abi::type_id;
use crate::ggml::tensor_bytes::Matrix;
use crate::ggml::types::tests::format;
use crate::weights::budget::tests::accepted;
use crate::weights::pack;

/// Packs a matrix of `rows` rows.
pub(crate) fn packed(rows: usize) -> Result<PackedMatrix, MulMatError> {
    let row = [1.0_f32; 32];
    let matrix = Matrix {
        format: format(type_id::F32),
        k: row.len(),
        rows: vec![row.as_bytes(); rows],
        dense: None,
    };
    pack::load_matrix(&OPENED.engine, ComputeType::Fp16, &matrix, false)
}

/// Rows of the matrix at `index`, which gets `rows` rows if it is missing.
fn load(weights: &ResidentWeights, index: [usize; 2], rows: usize) -> usize {
    let matrix = weights.get_or_load(index, || packed(rows));
    matrix.unwrap().weights.n()
}

#[test]
fn a_matrix_is_loaded_once_until_it_is_forgotten() {
    let weights = ResidentWeights::new(0..64, accepted(2));
    assert_eq!(load(&weights, [0, 0], 1), 1);
    assert_eq!(load(&weights, [0, 0], 2), 1);
    assert_eq!(load(&weights, [1, 0], 2), 2);
    assert!(weights.are_packed());
    weights.forget();
    assert!(!weights.are_packed());
    assert_eq!(load(&weights, [0, 0], 3), 3);
    // What is inserted replaces what was there.
    for index in [[0, 0], [1, 0]] {
        weights.insert(index, packed(2).unwrap());
        assert_eq!(load(&weights, index, 1), 2);
    }
    assert!(weights.are_packed());
}

#[test]
fn a_tensor_that_cannot_be_packed_is_given_up() {
    let weights = ResidentWeights::new(0..64, accepted(2));
    assert_eq!(load(&weights, [0, 0], 1), 1);
    let failed = weights.get_or_load([1, 0], || Err(MulMatError::OutOfMemory(1)));
    assert!(failed.is_err());
    assert_eq!(weights.decision.refusal(), Some(LeftOnCpu::Failed));
    // Its other matrix gives its memory back.
    assert_eq!(load(&weights, [0, 0], 2), 2);
}

#[test]
fn threads_that_ask_together_load_once() {
    let weights = ResidentWeights::new(0..64, accepted(1));
    let loads = Mutex::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let loaded = weights.get_or_load([0, 0], || {
                    *loads.lock().unwrap() += 1;
                    packed(1)
                });
                assert!(loaded.is_ok());
            });
        }
    });
    assert_eq!(*loads.lock().unwrap(), 1);
}
