// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of lists whose matmuls share activations: each result is that of the matmul alone.

use super::*;
use crate::decide::offload::ExpertChoice;

const K: usize = 32;
const N: usize = 3;
const EXPERTS: usize = 4;
const TOKENS: usize = 3;

/// How one matmul of a list reads the activations that all of them share.
#[derive(Debug, Clone, Copy)]
struct Reader {
    precision: ComputeType,
    /// Experts that each token chooses; `None` for a plain matmul.
    used: Option<usize>,
    /// Rows of a matrix of the activations.
    rows: usize,
    /// Whether the matrices of the activations lie twice as far apart.
    is_sparse: bool,
}

fn reader() -> impl Strategy<Value = Reader> {
    let precision = prop_oneof![Just(ComputeType::Fp16), Just(INT8)];
    let used = prop_oneof![Just(None), (1..=2_usize).prop_map(Some)];
    let rows = prop_oneof![Just(1_usize), Just(2)];
    (precision, used, rows, any::<bool>()).prop_map(|(precision, used, rows, is_sparse)| Reader {
        precision,
        used,
        rows,
        is_sparse,
    })
}

/// Computes the matmuls of these readers as one list. Returns all outputs.
fn compute_list(readers: &[Reader], numbers: &[i32]) -> Vec<Vec<f32>> {
    // Room for two rows of each token, twice.
    let shared = dense(type_id::F32, [K, 4 * TOKENS, 1, 1], activation);
    let weights = dense(type_id::F16, [K, N, EXPERTS, 1], weight);
    let number = |[slot, token, ..]: [usize; 4]| numbers[token * 2 + slot] as f32;
    let ids = dense(type_id::I32, [2, TOKENS, 1, 1], number);
    let outs = readers.iter().map(|reader| {
        let outputs = match reader.used {
            Some(used) => TOKENS * used * N,
            None => TOKENS * reader.rows * N,
        };
        vec![f32::NAN; outputs]
    });
    let mut outs: Vec<_> = outs.collect();
    let matmuls = readers.iter().zip(&mut outs).map(|(reader, out)| {
        let mut matmul = matmul(reader.precision, &weights, &shared, out);
        let rows = match reader.used {
            // A divisor of the experts that are used.
            Some(used) => reader.rows.min(used),
            None => reader.rows,
        };
        let tensor = &mut matmul.activations.tensor;
        tensor.ne = [K, rows, TOKENS, 1].map(|size| i64::try_from(size).unwrap());
        tensor.nb[2] = tensor.nb[1] * rows * (1 + usize::from(reader.is_sparse));
        tensor.nb[3] = tensor.nb[2] * TOKENS;
        match reader.used {
            Some(used) => {
                matmul.offload.shape.m = TOKENS;
                matmul.offload.shape.matrices = [EXPERTS, 1];
                matmul.offload.shape.repeats = [1, 1];
                matmul.offload.experts = Some(ExpertChoice { used, given: rows });
                let mut ids = ids.rows();
                ids.tensor.ne[0] = i64::try_from(used).unwrap();
                matmul.ids = Some(ids);
            }
            None => {
                matmul.offload.shape.m = rows;
                matmul.offload.shape.matrices = [1, 1];
                matmul.offload.shape.repeats = [TOKENS, 1];
                matmul.weights.tensor.ne[2] = 1;
            }
        }
        matmul
    });
    let mut matmuls: Vec<_> = matmuls.collect();
    run(&mut matmuls).unwrap();
    drop(matmuls);
    outs
}

proptest! {
    #![proptest_config(test_support::cases(96))]

    #[test]
    fn a_list_gives_each_matmul_the_result_that_it_has_alone(
        readers in proptest::collection::vec(reader(), 2..5),
        numbers in proptest::collection::vec(0..4_i32, 2 * TOKENS),
    ) {
        let together = compute_list(&readers, &numbers);
        for (reader, together) in readers.iter().zip(together) {
            let alone = compute_list(&[*reader], &numbers);
            prop_assert_eq!(&alone[0], &together, "{:?}", reader);
        }
    }
}

/// Rows of the output stand for other rows of the activations if tokens choose more experts.
#[test]
fn two_choices_of_experts_share_no_rows() {
    let reader = |used| Reader {
        precision: ComputeType::Fp16,
        used: Some(used),
        rows: 1,
        is_sparse: false,
    };
    // Of two experts of each token, expert 1 is the second of token 0: row 1 of the output. Of one,
    // expert 2 is that of token 1: row 1 too.
    let numbers = [0, 1, 2, 0, 0, 0];
    let readers = [reader(2), reader(1)];
    let together = compute_list(&readers, &numbers);
    for (reader, together) in readers.iter().zip(together) {
        assert_eq!(compute_list(&[*reader], &numbers), [together]);
    }
}
