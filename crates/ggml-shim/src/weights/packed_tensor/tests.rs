// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests with small matrices on the software model.

use proptest::prelude::*;
use test_support::assert_each_field_counts;
use zerocopy::IntoBytes;

use super::*;
use crate::compute::matmul::tests::OPENED;
use crate::ggml::abi::type_id;
use crate::ggml::tensor_data::TensorMatrix;
use crate::ggml::types::tests::format;
use crate::weights::budget::tests::accepted;
use crate::weights::pack;

/// Packs a matrix of `rows` rows.
pub(crate) fn packed(rows: usize) -> Result<PackedMatrix, NodeFailure> {
    let row = [1.0_f32; 32];
    let matrix = TensorMatrix {
        format: format(type_id::F32),
        k: row.len(),
        rows: vec![row.as_bytes(); rows],
        dense: None,
    };
    pack::load_matrix(&OPENED.engine, ComputeType::Fp16, &matrix, false)
}

/// The matrix at `index` as [`packed`] makes it.
pub(crate) const fn key(index: [usize; 2]) -> MatrixKey {
    MatrixKey {
        index,
        precision: ComputeType::Fp16,
    }
}

proptest! {
    #![proptest_config(test_support::cases(64))]

    #[test]
    fn keys_differ_in_each_field(
        indices in [[0..2_usize, 0..2], [0..2, 0..2]],
        precisions in [0..ComputeType::ALL.len(), 0..ComputeType::ALL.len()],
    ) {
        let [one, other] = [0, 1].map(|at| MatrixKey {
            index: indices[at],
            precision: ComputeType::ALL[precisions[at]],
        });
        assert_each_field_counts!(MatrixKey { index, precision }, one, other);
    }
}

/// Rows of the matrix at `index`, which gets `rows` rows if it is missing.
fn load(weights: &PackedTensor, index: [usize; 2], rows: usize) -> usize {
    let matrix = weights.get_or_load(key(index), |_| packed(rows));
    matrix.unwrap().weights.n()
}

#[test]
fn a_matrix_is_loaded_once_until_it_is_forgotten() {
    let weights = PackedTensor::new(0..64, accepted(2));
    assert_eq!(load(&weights, [0, 0], 1), 1);
    assert_eq!(load(&weights, [0, 0], 2), 1);
    assert_eq!(load(&weights, [1, 0], 2), 2);
    assert!(weights.are_packed());
    weights.forget();
    assert!(!weights.are_packed());
    assert_eq!(load(&weights, [0, 0], 3), 3);
    // What is inserted replaces what was there.
    for index in [[0, 0], [1, 0]] {
        weights.insert(key(index), packed(2).unwrap());
        assert_eq!(load(&weights, index, 1), 2);
    }
    assert!(weights.are_packed());
}

#[test]
fn a_tensor_that_cannot_be_packed_is_given_up() {
    let weights = PackedTensor::new(0..64, accepted(2));
    assert_eq!(load(&weights, [0, 0], 1), 1);
    let failed = weights.get_or_load(key([1, 0]), |_| Err(NodeFailure::OutOfMemory(1)));
    assert!(failed.is_err());
    assert_eq!(weights.decision.refusal(), Some(LeftOnCpu::Failed));
    // Its other matrix gives its memory back.
    assert_eq!(load(&weights, [0, 0], 2), 2);
}

#[test]
fn threads_that_ask_together_load_once() {
    let weights = PackedTensor::new(0..64, accepted(1));
    let loads = Mutex::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let loaded = weights.get_or_load(key([0, 0]), |_| {
                    *loads.lock().unwrap() += 1;
                    packed(1)
                });
                assert!(loaded.is_ok());
            });
        }
    });
    assert_eq!(*loads.lock().unwrap(), 1);
}
