// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of matmuls whose rows choose their weights.

use super::*;
use crate::decide::offload::ExpertChoice;

/// Limits a batch to one expert, by its weights.
const ONE: GroupLimits = GroupLimits { weights: 0, ..MOST };
/// Limits a batch to one expert, by its rows.
const FEW_ROWS: GroupLimits = GroupLimits { rows: 0, ..MOST };

/// Computes tokens that choose experts, and compares with the definition, element by element.
fn run_by_expert(
    numbers: &[i32],
    [n, k, count]: [usize; 3],
    experts: ExpertChoice,
    most: GroupLimits,
) -> Result<(), NodeFailure> {
    let ExpertChoice { used, given } = experts;
    let m = numbers.len() / used;
    let weights = lay_out(type_id::F16, [k, n, count, 1], ORDERS[0], 1, weight);
    let rows = [k, given, m, 1];
    let activations = lay_out(type_id::F32, rows, [2, 1, 3], 0, activation);
    // Like llama.cpp's top-k: a view of longer rows.
    let number = |[slot, token, ..]: [usize; 4]| numbers[token * used + slot] as f32;
    let ids = lay_out(type_id::I32, [used, m, 1, 1], ORDERS[0], 2, number);
    let mut out = vec![f32::NAN; m * used * n];
    let mut matmul = matmul(ComputeType::Fp16, &weights, &activations, &mut out);
    matmul.offload.shape.m = m;
    matmul.offload.shape.repeats = [1, 1];
    matmul.offload.experts = Some(experts);
    matmul.ids = Some(ids.rows());
    matmul.errors = Some(OutputErrors::default());
    let mut matmuls = [matmul];
    let computed = compute(&OPENED.engine, &SCRATCH, &mut matmuls, most, &|| false);
    computed.map_err(|FailedNode { error, .. }| error)?;
    // Compared with the experts that the rows chose.
    let errors = matmuls[0].errors.unwrap();
    let energy: f64 = out.iter().map(|x| f64::from(x * x)).sum();
    assert_eq!((errors.differences, errors.outputs), (0.0, energy));
    let mut expected: Vec<f32> = Vec::new();
    for (place, expert) in numbers.iter().enumerate() {
        let (token, slot) = (place / used, place % used);
        let expert = usize::try_from(*expert).unwrap();
        for column in 0..n {
            let terms = (0..k)
                .map(|k| weight([k, column, expert, 0]) * activation([k, slot % given, token, 0]));
            expected.push(terms.sum());
        }
    }
    assert_eq!(out, expected);
    Ok(())
}

proptest! {
    #![proptest_config(test_support::cases(64))]

    #[test]
    fn any_choice_of_experts_equals_the_definition(
        sizes in [1..4_usize, 1..9_usize, 1..6_usize],
        used in 1..4_usize,
        shared in any::<bool>(),
        numbers in proptest::collection::vec(0..5_i32, 1..8),
        most in prop_oneof![Just(MOST), Just(ONE), Just(FEW_ROWS)],
    ) {
        let [_, _, count] = sizes;
        let count = i32::try_from(count).unwrap();
        let numbers: Vec<i32> = numbers.iter().cycle().take(numbers.len() * used).copied()
            .map(|number| number % count)
            .collect();
        let experts = ExpertChoice { used, given: if shared { 1 } else { used } };
        run_by_expert(&numbers, sizes, experts, most).unwrap();
    }
}

#[test]
fn an_expert_that_does_not_exist_is_an_error() {
    let experts = ExpertChoice { used: 1, given: 1 };
    for number in [-1, 4, i32::MAX] {
        let error = run_by_expert(&[0, number], [2, 4, 4], experts, MOST).unwrap_err();
        assert!(matches!(error, NodeFailure::NoSuchExpert { .. }), "{error}");
        assert!(error.to_string().contains(&number.to_string()), "{error}");
    }
}
