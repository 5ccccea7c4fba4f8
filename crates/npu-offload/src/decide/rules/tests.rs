// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the rules and of their answers.

use std::sync::Arc;

use proptest::prelude::*;
use test_support::assert_each_field_counts;

use super::*;
use crate::decide::cost;
use crate::predict::models::ModelShape;

const SIZE: [usize; 2] = [1024, 2048];

pub(crate) fn rules(megahertz: u64) -> OffloadRules {
    OffloadRules::new(PlanTarget::at_clock(megahertz * 1_000_000))
}

pub(crate) fn format(name: &str) -> NumberFormat {
    NumberFormat::named(name).unwrap()
}

#[test]
fn files_that_lost_something_are_computed_in_rotated_int8() {
    let rules = rules(200);
    for (name, format) in crate::FORMATS {
        let expected = match format.class {
            FormatClass::Quantised => ComputeType::Int8Hadamard,
            _ => ComputeType::Fp16,
        };
        assert_eq!(rules.decide(format, SIZE).precision, expected, "{name}");
    }
}

#[test]
fn rows_that_hardly_rotate_are_computed_in_fp16() {
    let rules = rules(600);
    for (k, rotates) in [
        (0, false),
        (32, false),
        (2880, false),
        (384, true),
        (11008, true),
        (INT8_K_MAX / ROTATED_MIN * ROTATED_MIN, true),
        (INT8_K_MAX.next_multiple_of(ROTATED_MIN), false),
    ] {
        let precision = rules.precision(format("Q4_0"), [64, k]);
        assert_eq!(precision == ComputeType::Int8Hadamard, rotates, "{k}");
    }
}

#[test]
fn measured_times_decide_where_there_are_some() {
    let mut rules = rules(600);
    let q8_0 = format("Q8_0");
    // A CPU on which the rotation costs more than it saves.
    let slow = |rules: &mut OffloadRules, cores| {
        let mut options = rules.target.options().clone();
        Arc::make_mut(&mut options.profile).host.cores = cores;
        rules.target = PlanTarget::new(3, options);
    };
    slow(&mut rules, 1);
    let narrow = [16, 4096];
    let time = |precision| rules.target.matmul(precision, narrow, 512).unwrap().call_ps;
    assert!(time(ComputeType::Fp16) < time(ComputeType::Int8Hadamard));
    assert_eq!(rules.precision(q8_0, narrow), ComputeType::Int8Hadamard);
    rules.is_calibrated = true;
    assert_eq!(rules.precision(q8_0, narrow), ComputeType::Fp16);
    slow(&mut rules, 4);
    assert_eq!(rules.precision(q8_0, SIZE), ComputeType::Int8Hadamard);
}

#[test]
fn tables_of_answers_are_bounded() {
    let known = Mutex::default();
    for question in 0..3 * ANSWERS_KEPT {
        assert_eq!(
            remembered(&known, question, |question| question + 1),
            question + 1
        );
        assert!(known.lock().unwrap().len() <= ANSWERS_KEPT);
    }
    assert_eq!(
        remembered(&known, 3 * ANSWERS_KEPT - 1, |_| 0),
        3 * ANSWERS_KEPT
    );
}

proptest! {
    #![proptest_config(test_support::cases(64))]

    #[test]
    fn questions_differ_in_each_field(
        formats in [0..crate::FORMATS.len(), 0..crate::FORMATS.len()],
        sizes in [[1..4_usize, 1..4], [1..4, 1..4]],
        rows in [1..4_usize, 1..4],
    ) {
        let [one, other] = [0, 1].map(|at| WeightQuestion {
            format: crate::FORMATS[formats[at]].1,
            size: sizes[at],
        });
        assert_each_field_counts!(WeightQuestion { format, size }, one, other);
        let [one, other] = [0, 1].map(|at| PackingQuestion { size: sizes[at], rows: rows[at] });
        assert_each_field_counts!(PackingQuestion { size, rows }, one, other);
    }
}

/// A first question about a large matrix models few tasks: 50,000 take some 60 ms in a
/// development build. The answer is near that of all tasks.
#[test]
fn large_matrices_are_modelled_by_smaller_ones() {
    for (name, size) in [
        ("F16", [4096, 133_120]),
        ("Q8_0", [4096, 133_120]),
        ("F16", [262_144, 8192]),
        ("F16", [128_256, 8192]),
        ("Q8_0", [151_936, 5120]),
    ] {
        // Larger matrices have more jobs for the CPU.
        let rules = OffloadRules::new(rules(600).target.npu_alone());
        let tasks_of = |work: &dyn Fn() -> Option<usize>| {
            let before = cost::tests::modelled_tasks();
            (work(), cost::tests::modelled_tasks() - before)
        };
        let decide = || rules.decide(format(name), size);
        let (fewest, tasks) = tasks_of(&|| decide().fewest_rows);
        let BreakEven {
            precision, call_ps, ..
        } = decide();
        let exact = |rows| Some(rules.target.matmul(precision, size, rows)?.call_ps);
        let (exact_fewest, all) = tasks_of(&|| rules.fewest_rows(format(name), size, exact));
        println!("{name} {size:?}: {tasks} tasks of {all}");
        assert!(tasks <= 50_000, "{name} {size:?}: {tasks} tasks");
        let ratio = call_ps.unwrap() as f64 / exact(MOST_ROWS).unwrap() as f64;
        // No model has longer rows, and the times of these are up to 6 times too long.
        if size[1] > 1 << 16 {
            assert!(ratio >= 1.0, "{name} {size:?}: {ratio}");
            continue;
        }
        assert!((ratio - 1.0).abs() < 0.1, "{name} {size:?}: {ratio}");
        // At most the next step.
        let rows = |fewest: Option<usize>| fewest.unwrap_or(2 * MOST_ROWS) as f64;
        let ratio = rows(fewest) / rows(exact_fewest);
        assert!((0.6..1.6).contains(&ratio), "{name} {size:?}: {ratio}");
    }
}

#[test]
fn a_changed_setting_forgets_all_answers() {
    let OffloadSettings {
        choice: _,
        min_rows: _,
        attention: _,
        target: _,
        cpu: _,
        is_calibrated: _,
    } = *rules(600);
    let changes: [fn(&mut OffloadSettings); 6] = [
        |settings| settings.choice = PrecisionChoice::Always(ComputeType::Int8Hadamard),
        |settings| settings.min_rows = Some(7),
        |settings| settings.attention = AttentionChoice::From(7),
        |settings| settings.target = PlanTarget::at_clock(50_000_000),
        |settings| settings.cpu.float = 1,
        |settings| settings.is_calibrated = true,
    ];
    // On one core FP16 is faster for these, which only a calibrated board follows.
    let new = || {
        let mut rules = rules(600);
        let mut options = rules.target.options().clone();
        Arc::make_mut(&mut options.profile).host.cores = 1;
        rules.target = PlanTarget::new(rules.target.fds, options);
        rules.cpu.attention /= 4;
        rules
    };
    let answers = |rules: &OffloadRules| {
        let f16 = rules.decide(format("F16"), SIZE);
        let q8_0 = rules.decide(format("Q8_0"), [16, 4096]);
        let packed_ps = rules.packed_call_ps(SIZE, 64);
        (f16, q8_0, packed_ps, rules.fewest_attention_rows(HEADS))
    };
    for (index, change) in changes.into_iter().enumerate() {
        let (mut rules, mut fresh) = (new(), new());
        let before = answers(&rules);
        change(&mut rules);
        change(&mut fresh);
        assert_ne!(answers(&rules), before, "{index}");
        assert_eq!(answers(&rules), answers(&fresh), "{index}");
    }
}

#[test]
fn the_user_has_the_last_word() {
    let mut rules = rules(600);
    rules.choice = PrecisionChoice::Always(ComputeType::Int8Hadamard);
    rules.min_rows = Some(7);
    let decision = rules.decide(format("F16"), SIZE);
    assert_eq!(decision.precision, ComputeType::Int8Hadamard);
    assert_eq!(decision.fewest_rows, Some(7));
    for (rows, is_worth) in [(6, false), (7, true)] {
        assert_eq!(rules.is_worth(format("F16"), SIZE, rows, 1), is_worth);
    }
}

#[test]
fn a_faster_npu_and_a_slower_cpu_are_used_earlier_and_never_for_a_token() {
    let large = [8192, 2048];
    let rows = |rules: OffloadRules| rules.decide(format("Q8_0"), large).fewest_rows;
    let [slow, fast] = [200, 600].map(|clock| rows(rules(clock)).unwrap());
    assert!(fast < slow && slow < MOST_ROWS, "{fast} and {slow}");
    for (speed, expected) in [(1, Some(FEWEST_ROWS)), (u64::MAX, None)] {
        let mut rules = rules(600);
        rules.cpu.eight_bits = speed;
        rules.cpu.weight_bytes = speed;
        assert_eq!(rows(rules), expected);
    }
    assert!(!rules(600).is_worth(format("Q8_0"), SIZE, 1, 1));
}

#[test]
fn rows_of_experts_are_shared_out_and_heads_of_a_token_are_no_batch() {
    let mut rules = rules(600);
    let fewest = rules.decide(format("Q8_0"), SIZE).fewest_rows.unwrap();
    assert!((3..=128).contains(&fewest), "{fewest}");
    let is_worth = |together| rules.is_worth(format("Q8_0"), SIZE, 4 * fewest, together);
    assert!(is_worth(fewest) && !is_worth(fewest - 1));
    assert!(rules.is_worth(format("Q8_0"), SIZE, MOST_ROWS, 1));
    assert!(!rules.is_worth(format("Q8_0"), SIZE, 1, MOST_ROWS));
    rules.min_rows = Some(4);
    assert!(!rules.is_worth(format("Q8_0"), SIZE, 3, MOST_ROWS));
}

#[test]
fn weights_with_which_the_npu_loses_are_never_offloaded() {
    let rotation = [64, 64];
    for clock in [200, 600, 1000] {
        let mut rules = rules(clock);
        let decision = rules.decide(format("F32"), rotation);
        assert_eq!(decision.fewest_rows, None);
        for rows in [MOST_ROWS, 100 * MOST_ROWS] {
            assert!(!rules.is_worth(format("F32"), rotation, rows, rows));
        }
        assert!(rules.is_worth(format("F32"), SIZE, MOST_ROWS, MOST_ROWS));
        rules.min_rows = Some(4);
        assert!(rules.is_worth(format("F32"), rotation, 4, 4));
    }
}

const HEADS: AttentionShape = AttentionShape {
    window: None,
    ..ModelShape::LLAMA32_1B.attention(512, 2048)
};

#[test]
fn attention_is_offloaded_from_as_many_rows_on_as_pay_and_never_one_by_itself() {
    let mut rules = rules(600);
    let fewest = rules.fewest_attention_rows(HEADS);
    assert!(fewest.is_some_and(|rows| rows > 32), "{fewest:?}");
    // Numbers of keys share an answer up to a power of two, and all very large ones.
    let with = |keys| rules.fewest_attention_rows(AttentionShape { keys, ..HEADS });
    assert_eq!(with(1280), fewest);
    assert_eq!(with(4096), with(1 << 20));
    for (min_rows, expected) in [(1, FEWEST_ROWS), (32, 32)] {
        rules.min_rows = Some(min_rows);
        assert_eq!(rules.fewest_attention_rows(HEADS), Some(expected));
    }
    rules.attention = AttentionChoice::From(1);
    assert_eq!(rules.fewest_attention_rows(HEADS), Some(1));
    rules.attention = AttentionChoice::Never;
    assert_eq!(rules.fewest_attention_rows(HEADS), None);
    let mut rules = self::rules(600);
    (rules.cpu.attention, rules.cpu.attention_most) = (u64::MAX, u64::MAX);
    assert_eq!(rules.fewest_attention_rows(HEADS), None);
}

#[test]
fn weights_of_one_matmul_pay_where_dot_products_are_long() {
    let f16 = format("F16");
    // The keys of 2048 tokens, which queries of so many heads share, and their values.
    let pays = |rules: &OffloadRules, head, heads| {
        let sizes = [[2048, head], [head, 2048]];
        sizes.map(|size| rules.is_worth_packing(f16, size, MOST_ROWS, heads * MOST_ROWS))
    };
    for (clock, head, heads, expected) in [
        (200, 64, 1, [false, false]),
        (200, 256, 4, [true, true]),
        (600, 64, 4, [true, false]),
        (600, 128, 2, [true, true]),
    ] {
        let seen = pays(&rules(clock), head, heads);
        assert_eq!(seen, expected, "{clock} MHz, {head} x {heads}");
    }
    let mut rules = rules(600);
    assert!(!rules.is_worth_packing(f16, [2048, 256], 1, 4));
    // Rounded sizes of caches share an answer, so each of them must have a plan.
    let longest = [256, 1 << 20];
    let plan = rules.target.weight_plan(ComputeType::Fp16, longest);
    assert!(plan.is_some());
    rules.min_rows = Some(1);
    assert!(!rules.is_worth_packing(f16, [2048, 64], 1, 4));
    assert!(rules.is_worth_packing(f16, [2048, 64], FEWEST_ROWS, 4));
    rules.attention = AttentionChoice::Never;
    assert_eq!(pays(&rules, 256, 4), [false, false]);
}

#[test]
fn the_order_of_questions_does_not_matter() {
    let sizes = [[64, 64], [768, 256], [16, 4096], [256, 768]];
    let answers = |sizes: &[[usize; 2]]| {
        let rules = rules(200);
        let decide = |size: &[usize; 2]| (*size, rules.decide(format("Q4_0"), *size));
        let mut all: Vec<_> = sizes.iter().map(decide).collect();
        all.sort_by_key(|(size, _)| *size);
        all
    };
    let mut reversed = sizes;
    reversed.reverse();
    assert_eq!(answers(&sizes), answers(&reversed));
}
