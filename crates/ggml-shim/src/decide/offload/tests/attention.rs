// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests with one good attention node, and changes for which it is declined.

use npu_matmul::attention::AttentionShape;
use npu_offload::AttentionChoice;

use super::*;

/// Attention that is offloaded: `rows` rows of 8 heads, which share 2 heads of 256 keys and values
/// of type `cache`.
pub(crate) fn attention(cache: u32, rows: i64) -> AttentionQuery {
    AttentionQuery {
        queries: floats([64, rows, 8, 1]),
        keys: packed(cache, [64, 256, 2, 1]),
        values: packed(cache, [128, 256, 2, 1]),
        mask: Some(halves([256, rows, 1, 1])),
        sinks: Some(floats([8, 1, 1, 1])),
        output: floats([128, 8, rows, 1]),
        params: AttentionParams {
            scale: 0.125,
            max_bias: 0.0,
            softcap: 0.0,
        },
        is_readable: true,
        has_more: false,
    }
}

#[test]
fn attention_is_offloaded_from_as_many_rows_on_as_matmuls() {
    let decide =
        |rows, rules: &OffloadRules| decide_attention(&attention(type_id::F16, rows), rules);
    let shape = decide(32, &policy(32)).unwrap();
    let expected = AttentionOffload {
        batch: AttentionShape {
            heads: 8,
            kv_heads: 2,
            rows: 32,
            keys: 256,
            head_dim: 64,
            value_dim: 128,
            window: None,
        },
        streams: 1,
        kv_streams: 1,
        mask: [1, 1],
        params: attention(type_id::F16, 32).params,
    };
    assert_eq!(shape, expected);
    assert_eq!(shape.outputs(), 32 * 8 * 128);
    assert_eq!(decide(31, &policy(32)), Err(DeclineReason::AttentionRows));
    // llama.cpp asks with one row whether the CPU computes attention.
    assert_eq!(decide(1, &policy(1)), Err(DeclineReason::AttentionRows));
    assert!(decide(2, &policy(1)).is_ok());
    // Attention has a switch for itself.
    let mut rules = policy(1);
    rules.attention = AttentionChoice::Never;
    assert_eq!(decide(512, &rules), Err(DeclineReason::AttentionOff));
    rules.attention = AttentionChoice::From(1);
    assert!(decide(1, &rules).is_ok());
    let mut rules = OffloadRules::new(PlanTarget::at_clock(600_000_000));
    rules.cpu.attention = u64::MAX;
    assert_eq!(decide(512, &rules), Err(DeclineReason::AttentionSlower));
}

#[test]
fn keys_and_values_of_every_type_that_is_decoded() {
    let rules = policy(32);
    for cache in [type_id::F32, type_id::F16, BF16, Q8_0] {
        let mut asked = attention(cache, 32);
        assert!(decide_attention(&asked, &rules).is_ok(), "{cache}");
        asked.keys = halves([64, 256, 2, 1]);
        assert!(decide_attention(&asked, &rules).is_ok(), "{cache}");
    }
}

/// Layouts of llama.cpp: heads of a token lie together, a cache is longer than its used part, and a
/// mask is padded.
#[test]
fn strided_operands_are_read_where_they_lie() {
    let mut asked = attention(type_id::F16, 32);
    asked.queries.nb = [4, 4 * 64 * 8, 4 * 64, 4 * 64 * 8 * 32];
    asked.keys.nb = [2, 2 * 64 * 2, 2 * 64, 2 * 64 * 2 * 4096];
    asked.mask = Some(halves([256, 64, 1, 1]));
    assert!(decide_attention(&asked, &policy(32)).is_ok());
}

#[test]
fn streams_and_heads_are_shared() {
    let mut asked = attention(type_id::F16, 32);
    asked.queries = floats([64, 32, 8, 6]);
    asked.keys = halves([64, 256, 2, 3]);
    asked.values = halves([128, 256, 2, 3]);
    asked.mask = Some(halves([256, 32, 4, 2]));
    asked.output = floats([128, 8, 32, 6]);
    let shape = decide_attention(&asked, &policy(32)).unwrap();
    assert_eq!((shape.streams, shape.kv_streams), (6, 3));
    assert_eq!(shape.mask, [4, 2]);
    (asked.mask, asked.sinks) = (None, None);
    assert!(decide_attention(&asked, &policy(32)).is_ok());
}

#[test]
fn each_reason_to_decline_attention() {
    use DeclineReason::*;
    let changes: Changes<'_, AttentionQuery> = &[
        (|a| a.has_more = true, AttentionKind),
        (|a| a.params.scale = f32::NAN, AttentionKind),
        (|a| a.is_readable = false, AttentionPlace),
        (|a| a.keys.format = format(type_id::I32), AttentionType),
        (|a| a.values.format = format(u32::MAX), AttentionType),
        (|a| a.queries = halves([64, 32, 8, 1]), AttentionType),
        (|a| a.mask = Some(floats([256, 32, 1, 1])), AttentionType),
        (|a| a.sinks = Some(halves([8, 1, 1, 1])), AttentionType),
        (|a| a.keys.nb.swap(0, 1), NotContiguous),
        (|a| a.values.nb.swap(0, 1), NotContiguous),
        (|a| a.queries.nb[2] += 2, NotContiguous),
        (|a| a.output.nb[1] += 4, NotContiguous),
        (|a| a.mask.as_mut().unwrap().nb[1] += 1, NotContiguous),
        (|a| a.sinks.as_mut().unwrap().nb[0] = 8, NotContiguous),
        (|a| a.keys = halves([32, 256, 2, 1]), Dimensions),
        (|a| a.values = halves([128, 255, 2, 1]), Dimensions),
        (|a| a.values = halves([128, 256, 1, 1]), Dimensions),
        (|a| a.queries = floats([64, 32, 7, 1]), Dimensions),
        (|a| a.queries = floats([64, 0, 8, 1]), Dimensions),
        (|a| a.mask = Some(halves([256, 31, 1, 1])), Dimensions),
        (|a| a.mask = Some(halves([256, 32, 3, 1])), Dimensions),
        (|a| a.sinks = Some(floats([7, 1, 1, 1])), Dimensions),
        (|a| a.output = floats([128, 32, 8, 1]), Dimensions),
        (
            |a| {
                a.values = halves([577, 256, 2, 1]);
                a.output = floats([577, 8, 32, 1]);
            },
            AttentionHead,
        ),
        // Dimensions that overflow.
        (
            |a| {
                (a.keys.ne[1], a.values.ne[1], a.mask) = (1 << 40, 1 << 40, None);
                (a.queries.ne[1], a.output.ne[2]) = (1 << 40, 1 << 40);
                a.output.nb[3] = (4 * 128 * 8) << 40;
            },
            Dimensions,
        ),
    ];
    let rules = policy(32);
    check_changes(
        attention(type_id::F16, 32),
        |asked| decide_attention(asked, &rules),
        changes,
    );
}

/// ALiBi's slopes for 8 heads are 2^-1 ... 2^-8 if the largest exponent is 8. The heads above a
/// power of two take the terms between.
#[test]
fn slopes_are_a_geometric_sequence() {
    let params = |max_bias| AttentionParams {
        max_bias,
        ..attention(type_id::F16, 32).params
    };
    assert_eq!(params(0.0).slopes(8), None);
    let expected: Vec<f32> = (1..=8).map(|exponent| 0.5_f32.powi(exponent)).collect();
    assert_eq!(params(8.0).slopes(8), Some(expected));
    let slopes = params(8.0).slopes(6).unwrap();
    let expected = [0.25, 0.0625, 0.015_625, 0.003_906_25, 0.5, 0.125];
    assert_eq!(slopes, expected);
    assert_eq!(params(8.0).slopes(1), Some(vec![0.003_906_25]));
}
