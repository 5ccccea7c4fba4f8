// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests with one good matmul, and changes for which it is declined.

pub(crate) mod attention;

use std::fmt::Debug;

use npu_offload::{AttentionChoice, PlanTarget, PrecisionChoice};

use super::*;
use crate::ggml::types::tests::{BF16, Q8_0, format};

/// A tensor without gaps.
pub(crate) fn packed(type_id: u32, ne: [i64; 4]) -> TensorShape {
    let format = format(type_id);
    let size = |dimension: usize| usize::try_from(ne[dimension]).unwrap_or(0);
    let row = format.number.block_bytes * size(0) / format.number.block_elements;
    TensorShape {
        format,
        ne,
        nb: [
            format.number.block_bytes,
            row,
            row * size(1),
            row * size(1) * size(2),
        ],
    }
}

pub(crate) fn halves(ne: [i64; 4]) -> TensorShape {
    packed(type_id::F16, ne)
}

pub(crate) fn floats(ne: [i64; 4]) -> TensorShape {
    packed(type_id::F32, ne)
}

/// A matmul that is offloaded, `m` x `k` times `k` x `n`.
pub(crate) fn matmul(weights: u32, m: i64, n: i64, k: i64) -> MatmulQuery {
    MatmulQuery {
        weights: packed(weights, [k, n, 1, 1]),
        origin: WeightOrigin::Plain,
        activations: floats([k, m, 1, 1]),
        viewed_rows: None,
        ids: None,
        output: floats([n, m, 1, 1]),
        params: [0; OP_PARAM_WORDS],
    }
}

/// Rules that offload from `min_m` rows on.
pub(crate) fn policy(min_m: usize) -> OffloadRules {
    let mut rules = OffloadRules::new(PlanTarget::at_clock(600_000_000));
    rules.min_rows = Some(min_m);
    rules
}

const MIN_M: usize = 32;

#[test]
fn each_kind_of_weights_is_offloaded_in_its_precision() {
    for (weights, precision) in [
        (type_id::F32, ComputeType::Fp16),
        (type_id::F16, ComputeType::Fp16),
        (BF16, ComputeType::Fp16),
        (Q8_0, ComputeType::Int8Hadamard),
    ] {
        let offload = decide(&matmul(weights, 64, 96, 128), &policy(MIN_M)).unwrap();
        assert_eq!(offload.precision, precision);
        let MatmulSize { m, n, k, .. } = offload.shape;
        assert_eq!([m, n, k], [64, 96, 128]);
        assert_eq!([offload.shape.matrices, offload.shape.repeats], [[1; 2]; 2]);
    }
}

#[test]
fn broadcast_matrices_share_their_weights() {
    let mut asked = matmul(type_id::F16, 8, 96, 128);
    asked.weights = halves([128, 96, 3, 2]);
    asked.activations = floats([128, 8, 6, 4]);
    asked.output = floats([96, 8, 6, 4]);
    let offload = decide(&asked, &policy(MIN_M)).unwrap();
    let shape = offload.shape;
    assert_eq!((shape.matrices, shape.repeats), ([3, 2], [2, 2]));
    assert_eq!(offload.rows(), 32);
    assert_eq!(offload.outputs(), 96 * 8 * 24);
}

#[test]
fn strided_rows_are_read_where_they_lie() {
    let mut asked = matmul(type_id::F16, 64, 96, 128);
    asked.weights.nb[1] += 64;
    asked.activations.nb[1] += 8;
    assert!(decide(&asked, &policy(MIN_M)).is_ok());
}

/// Changes of a good question, and the reason why each is declined.
type Changes<'a, T> = &'a [(fn(&mut T), DeclineReason)];

/// Checks that `decide` takes `good`, and declines it after each change.
fn check_changes<T: Copy, R: Debug + PartialEq>(
    good: T,
    decide: impl Fn(&T) -> Result<R, DeclineReason>,
    changes: Changes<'_, T>,
) {
    assert!(decide(&good).is_ok());
    for (index, (change, reason)) in changes.iter().enumerate() {
        let mut asked = good;
        change(&mut asked);
        assert_eq!(decide(&asked), Err(*reason), "line {index}");
    }
}

#[test]
fn each_reason_to_decline() {
    use DeclineReason::*;
    let changes: Changes<'_, MatmulQuery> = &[
        (|p| p.origin = WeightOrigin::Computed, Computed),
        (|p| p.origin = WeightOrigin::Elsewhere, Elsewhere),
        (|p| p.origin = WeightOrigin::Asked, Asked),
        (|p| p.weights.format = format(type_id::I32), WeightType),
        (|p| p.weights.format = format(u32::MAX), WeightType),
        (
            |p| p.activations.format = format(type_id::F16),
            ActivationType,
        ),
        (|p| p.output.format = format(type_id::F16), NotContiguous),
        // The strides are those of another format.
        (|p| p.weights.format = format(type_id::F32), NotContiguous),
        // Transposed: the fastest dimension is not contiguous.
        (|p| p.weights.nb.swap(0, 1), NotContiguous),
        (|p| p.activations.nb.swap(0, 1), NotContiguous),
        (|p| p.activations.nb[1] += 2, NotContiguous),
        (|p| p.weights.nb[1] += 1, NotContiguous),
        (|p| p.output.nb[1] += 4, NotContiguous),
        (|p| p.weights.ne[0] = 64, Dimensions),
        (|p| p.weights.ne[2] = 2, Dimensions),
        (|p| p.activations.ne[1] = 65, Dimensions),
        (|p| p.output.ne[3] = 2, Dimensions),
        (|p| p.weights.ne[1] = 0, Dimensions),
        (|p| p.weights.ne[1] = -1, Dimensions),
        (
            |p| (p.weights.ne[1], p.output.ne[0]) = (i64::MAX, i64::MAX),
            NoPlan,
        ),
        // Its plan takes too much time.
        (
            |p| (p.weights.ne[1], p.output.ne[0]) = (1 << 28, 1 << 28),
            NoPlan,
        ),
        (|p| *p = matmul(type_id::F16, 31, 96, 128), SmallBatch),
    ];
    let rules = policy(MIN_M);
    check_changes(
        matmul(type_id::F16, 64, 96, 128),
        |asked| decide(asked, &rules),
        changes,
    );
}

/// Each word of `op_params` is read. Of all values only known ones are taken, and of these only
/// the ones that the precision satisfies.
#[test]
fn unknown_parameters_and_more_precision_are_declined() {
    use crate::ggml::abi::mul_mat::{ACTIVATIONS, HINT, SUMS};
    let [in_fp16, in_int8] = [type_id::F16, Q8_0].map(|weights| matmul(weights, 64, 96, 128));
    for word in 0..OP_PARAM_WORDS {
        for param in -1..=64 {
            let [fp16, int8] = match word {
                SUMS => [[0, 10, 15, 20].contains(&param); 2],
                HINT => [[0, 1].contains(&param); 2],
                ACTIVATIONS => [
                    [0, 20, 30, 40].contains(&param),
                    [0, 30, 40].contains(&param),
                ],
                _ => [param == 0; 2],
            };
            for (mut asked, is_taken) in [(in_fp16, fp16), (in_int8, int8)] {
                asked.params[word] = param;
                let answer = decide(&asked, &policy(MIN_M)).map(|_| ());
                let expected = is_taken.then_some(()).ok_or(DeclineReason::Parameters);
                assert_eq!(answer, expected, "{param} in word {word}");
            }
        }
    }
}

#[test]
fn int8_wants_some_outputs_and_whole_blocks() {
    use DeclineReason::*;
    let (auto, mut int8) = (policy(1), policy(1));
    int8.choice = PrecisionChoice::Always(ComputeType::Int8Hadamard);
    // The largest K in whole blocks.
    let deepest = i64::try_from(INT8_K_MAX / 32 * 32).unwrap();
    for (asked, rules, declined) in [
        (matmul(Q8_0, 1, 1, 256), &auto, Some(FewOutputs)),
        (matmul(Q8_0, 1, 16, 256), &auto, None),
        (matmul(type_id::F16, 1, 1, 256), &auto, None),
        (matmul(Q8_0, 64, 64, 48), &auto, Some(NotContiguous)),
        (matmul(Q8_0, 64, 64, deepest), &int8, None),
        (matmul(Q8_0, 64, 64, deepest + 32), &int8, Some(TooDeep)),
        // In FP16 too: plans of millions of elements take seconds.
        (matmul(Q8_0, 64, 64, 1 << 22), &auto, Some(TooDeep)),
        (matmul(type_id::F16, 64, 64, 1 << 22), &auto, Some(TooDeep)),
    ] {
        assert_eq!(decide(&asked, rules).err(), declined, "{asked:?}");
    }
    // What is worth nothing is still computable.
    assert!(computable(&matmul(Q8_0, 1, 1, 32), &auto).is_ok());
}

/// Keys of `kv_heads` heads in a cache, times the queries of `heads` heads.
fn scores(rows: i64, keys: i64, head: i64, [heads, kv_heads]: [i64; 2]) -> MatmulQuery {
    MatmulQuery {
        weights: halves([head, keys, kv_heads, 1]),
        origin: WeightOrigin::Cache,
        activations: floats([head, rows, heads, 1]),
        output: floats([keys, rows, heads, 1]),
        ..matmul(type_id::F16, 1, 1, head)
    }
}

/// Each line: a change of a matmul of attention that gains, and the reason why it is declined.
#[test]
fn matmuls_of_attention_are_offloaded_where_they_pay_and_else_declined_by_name() {
    use DeclineReason::*;
    type Change = fn(&mut MatmulQuery, &mut OffloadRules);
    let table: &[(Change, DeclineReason)] = &[
        // Few scores for each job.
        (|p, _| *p = scores(128, 512, 64, [12, 12]), AttentionMatmuls),
        (|p, _| *p = scores(1, 2048, 256, [4, 1]), AttentionRows),
        (|p, _| p.weights.format = format(Q8_0), AttentionType),
        (|p, _| p.weights.nb.swap(0, 1), NotContiguous),
        (
            |_, rules| rules.attention = AttentionChoice::Never,
            AttentionOff,
        ),
        (
            |_, rules| rules.attention = AttentionChoice::From(513),
            AttentionMatmuls,
        ),
    ];
    for (index, (change, reason)) in table.iter().enumerate() {
        let mut rules = OffloadRules::new(PlanTarget::at_clock(600_000_000));
        let mut asked = scores(512, 2048, 256, [4, 1]);
        // A precision that the user chose is for weights.
        for choice in [
            PrecisionChoice::Auto,
            PrecisionChoice::Always(ComputeType::Int8Hadamard),
        ] {
            rules.choice = choice;
            let offload = decide(&asked, &rules).unwrap();
            assert_eq!(offload.precision, ComputeType::Fp16);
        }
        rules.choice = PrecisionChoice::Auto;
        change(&mut asked, &mut rules);
        assert_eq!(decide(&asked, &rules), Err(*reason), "line {index}");
    }
}

#[test]
fn heads_of_a_token_are_one_row() {
    let mut asked = matmul(type_id::F16, 64, 96, 128);
    for (tokens, expected) in [
        (MIN_M - 1, Err(DeclineReason::SmallBatch)),
        (MIN_M, Ok(64)),
        (1000, Ok(64)),
    ] {
        asked.viewed_rows = Some(tokens);
        let rows = decide(&asked, &policy(MIN_M)).map(|offload| offload.rows());
        assert_eq!(rows, expected, "{tokens}");
    }
}

#[test]
fn weights_with_which_the_npu_loses_are_declined_and_not_stored() {
    let small = matmul(type_id::F32, 2048, 64, 64);
    let large = matmul(type_id::F32, 2048, 1024, 1024);
    let mut auto = policy(1);
    auto.min_rows = None;
    for rules in [&auto, &policy(1)] {
        assert!(decide(&large, rules).is_ok() && storable(&large.weights, rules).is_ok());
    }
    assert_eq!(decide(&small, &auto), Err(DeclineReason::Slower));
    assert_eq!(storable(&small.weights, &auto), Err(DeclineReason::Slower));
    // The user's choice takes precedence.
    assert!(decide(&small, &policy(1)).is_ok() && storable(&small.weights, &policy(1)).is_ok());
}

/// A matmul with 8 experts, of which each of `tokens` tokens uses 2.
pub(crate) fn by_expert(weights: u32, tokens: i64, given: i64, n: i64, k: i64) -> MatmulQuery {
    MatmulQuery {
        weights: packed(weights, [k, n, 8, 1]),
        activations: floats([k, given, tokens, 1]),
        ids: Some(packed(type_id::I32, [2, tokens, 1, 1])),
        output: floats([n, 2, tokens, 1]),
        ..matmul(weights, 1, 1, k)
    }
}

#[test]
fn experts_are_counted_by_tokens() {
    for given in [1, 2] {
        let asked = by_expert(Q8_0, 32, given, 96, 128);
        let mut offload = decide(&asked, &policy(MIN_M)).unwrap();
        assert_eq!((offload.rows(), offload.outputs()), (32, 32 * 2 * 96));
        let given = usize::try_from(given).unwrap();
        assert_eq!(offload.experts, Some(ExpertChoice { used: 2, given }));
        assert_eq!(offload.shape.matrices, [8, 1]);
        // Each expert gets a share of the rows.
        assert_eq!(offload.rows_together(), 32 * 2 / 8);
        offload.experts = None;
        assert_eq!(offload.rows_together(), 32);
    }
    let few = by_expert(Q8_0, 31, 1, 96, 128);
    assert_eq!(decide(&few, &policy(MIN_M)), Err(DeclineReason::SmallBatch));
}

#[test]
fn experts_that_do_not_fit_together_are_declined() {
    use DeclineReason::*;
    let changes: Changes<'_, MatmulQuery> = &[
        (
            |p| p.ids = Some(packed(type_id::I32, [2, 63, 1, 1])),
            Dimensions,
        ),
        (
            |p| p.ids = Some(packed(type_id::I32, [3, 64, 1, 1])),
            Dimensions,
        ),
        (|p| p.activations = floats([128, 3, 64, 1]), Dimensions),
        (|p| p.weights.ne[3] = 2, Dimensions),
        (|p| p.output.ne[1] = 1, Dimensions),
        (|p| p.ids = Some(floats([2, 64, 1, 1])), NotContiguous),
    ];
    let rules = policy(MIN_M);
    check_changes(
        by_expert(Q8_0, 64, 2, 96, 128),
        |asked| decide(asked, &rules),
        changes,
    );
}
