// SPDX-License-Identifier: MIT OR Apache-2.0
//! What runs on the NPU by default when several sequences are decoded together.
#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests: a failed unwrap is a failed test"
)]

use npu_matmul::attention::AttentionShape;
use npu_matmul::plan::PlanOptions;
use npu_offload::{
    FEWEST_ROWS, FormatClass, Graph, ModelShape, NumberFormat, OffloadRules, PlanTarget,
};

/// Numbers of rows for which the rule compares times.
const COMPARED: [usize; 9] = [2, 3, 4, 6, 8, 12, 16, 24, 32];
const MOST: usize = 32;

fn rules() -> impl Iterator<Item = OffloadRules> {
    let boards = [
        PlanOptions::uncalibrated(200_000_000),
        PlanOptions::uncalibrated(600_000_000),
        PlanOptions::calibrated(600_000_000),
    ];
    let rules = |options| OffloadRules::new(PlanTarget::new(3, options));
    boards.into_iter().map(rules)
}

fn formats() -> impl Iterator<Item = NumberFormat> {
    let named = |name| NumberFormat::named(name).unwrap();
    ["Q4_0", "Q8_0", "F16"].into_iter().map(named)
}

/// Rows from which a batch is a prompt: its calls follow one another, and no core is resumed.
const PROMPT: usize = 32;

/// Times of the NPU's call after a pause and of the CPU alone, picoseconds.
fn times(rules: &OffloadRules, format: NumberFormat, size: [usize; 2], rows: usize) -> [u64; 2] {
    let precision = rules.decide(format, size).precision;
    let npu = rules.target.matmul(precision, size, rows).unwrap().call_ps;
    let resume = if rows < PROMPT {
        rules.target.resume_ps()
    } else {
        0
    };
    [npu + resume, rules.cpu.matmul_ps(format, size, rows)]
}

/// The threshold for few rows comes from the same comparison as any other: each matrix runs on the
/// side where its whole call takes less time. Between two compared numbers the larger one decides.
/// So no number of sequences is slower with the NPU, and some number is faster.
#[test]
fn by_default_each_matrix_runs_on_the_faster_side() {
    let (mut on_npu, mut on_cpu) = (0, 0);
    for rules in rules() {
        for format in formats() {
            for shape in ModelShape::ALL {
                for size in shape.weights(format).iter().map(|weights| weights.size) {
                    let what = format!("{} {size:?}", shape.name);
                    assert!(!rules.is_worth(format, size, 1, 1), "{what}");
                    for rows in COMPARED {
                        let [npu, cpu] = times(&rules, format, size, rows);
                        let is_npu = rules.is_worth(format, size, rows, rows);
                        assert_eq!(is_npu, npu <= cpu, "{what} x {rows}: {npu}, {cpu}");
                        on_npu += usize::from(is_npu);
                        on_cpu += usize::from(!is_npu);
                    }
                    let fewest = rules.decide(format, size).fewest_rows;
                    for rows in FEWEST_ROWS..=MOST {
                        let is_npu = rules.is_worth(format, size, rows, rows);
                        let is_enough = fewest.is_some_and(|fewest| rows >= fewest);
                        assert_eq!(is_npu, is_enough, "{what}");
                    }
                }
                let graph = Graph::new(shape, format, &rules);
                let cpu = graph.on_cpu();
                assert_eq!(graph.step(1, 512), cpu.step(1, 512));
                for sequences in COMPARED {
                    let [npu, cpu] = [&graph, &cpu].map(|graph| graph.step(sequences, 512));
                    let [on_npu, on_cpu] = [npu.total(), cpu.total()];
                    assert!(on_npu <= on_cpu, "{} {sequences}", shape.name);
                    // F16 on a slow clock may need more rows.
                    let gains = sequences == MOST && format.class == FormatClass::Quantised;
                    assert!(on_npu < on_cpu || !gains, "{}", shape.name);
                    assert_eq!(npu.attention, cpu.attention);
                    assert_eq!(npu.offloaded_attention, 0);
                }
            }
        }
    }
    // Both sides win somewhere.
    assert!(on_npu > 100 && on_cpu > 100, "{on_npu} and {on_cpu}");
}

/// Attention of sequences that are decoded together stays on the CPU, which is faster whether each
/// sequence is one call or all share a cache and a mask.
#[test]
fn the_cpu_is_faster_with_attention_of_sequences() {
    for rules in rules() {
        for shape in ModelShape::ALL {
            for context in [128, 512, 4096] {
                let batch = |rows, keys| AttentionShape {
                    window: None,
                    ..shape.attention(rows, keys)
                };
                let fewest = rules.fewest_attention_rows(batch(1, context));
                assert!(fewest.is_none_or(|fewest| fewest > MOST));
                let npu_ps = |batch| rules.target.attention(&batch).map(|call| call.call_ps);
                let macs = (2 * shape.heads * shape.head_dim * context) as u128;
                let cpu_ps = macs * 1_000_000_000_000 / u128::from(rules.cpu.attention);
                for sequences in [1, 8, 32] {
                    let cpu_ps = cpu_ps * sequences as u128;
                    let what = format!("{} x {sequences}, {context} keys", shape.name);
                    let alone = npu_ps(batch(1, context)).unwrap();
                    let alone = u128::from(alone) * sequences as u128;
                    assert!(alone > cpu_ps, "{what}: {alone}, {cpu_ps}");
                    if let Some(shared) = npu_ps(batch(sequences, context * sequences)) {
                        assert!(u128::from(shared) > cpu_ps, "{what}: {shared}, {cpu_ps}");
                    }
                }
            }
        }
    }
}
