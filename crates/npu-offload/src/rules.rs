// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rules that decide the precision of a matmul, and from how many rows it is offloaded.

use std::collections::HashMap;
use std::hash::Hash;
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, PoisonError};

use npu_matmul::attention::AttentionBatch;
use npu_matmul::plan::WeightPlan;
use npu_matmul::quantise::INT8_K_MAX;

use crate::attention::{self, AttentionChoice, AttentionSize};
use crate::cost::PlanTarget;
use crate::cpu::CpuSpeed;
use crate::format::{FormatClass, NumberFormat};
use crate::large;
use crate::precision::{ComputeType, PrecisionChoice};
use crate::rows::{self, FEWEST_ROWS, MOST_ROWS};

/// The smallest block of a rotation with which a real model keeps the promise of `auto`: MiniLM,
/// with rows of 384. Smaller blocks spread outliers over fewer channels. In blocks of 64, SmolLM2's
/// rows of 576 break the promise with some texts (docs/quality.md).
const ROTATED_MIN: usize = 128;

/// Everything that the answers of [`OffloadRules`] depend on, beside the question.
#[derive(Debug, Clone)]
pub struct OffloadSettings {
    /// The user's choice of precision.
    pub choice: PrecisionChoice,
    /// Number of rows from which the user wants matmuls offloaded; `None` leaves it to the modelled
    /// times.
    pub min_rows: Option<usize>,
    /// Which attention the user wants offloaded.
    pub attention: AttentionChoice,
    /// The NPU, and the CPU's share of offloaded matmuls.
    pub target: PlanTarget,
    /// Speed of the CPU without the NPU.
    pub cpu: CpuSpeed,
    /// Whether the times of `target` were measured on this machine.
    pub is_calibrated: bool,
}

/// Decides, for one machine, what is offloaded. The same question always gets the same answer, which
/// is cached: it takes milliseconds of planning. Access to change the settings forgets all answers.
#[derive(Debug)]
pub struct OffloadRules {
    settings: OffloadSettings,
    known: KnownAnswers,
}

/// Cached answers.
#[derive(Debug, Default)]
struct KnownAnswers {
    weights: Mutex<HashMap<WeightQuestion, MatmulDecision>>,
    attention: Mutex<HashMap<AttentionSize, Option<usize>>>,
    packing: Mutex<HashMap<PackingQuestion, Option<u64>>>,
}

impl Deref for OffloadRules {
    type Target = OffloadSettings;

    fn deref(&self) -> &OffloadSettings {
        &self.settings
    }
}

impl DerefMut for OffloadRules {
    fn deref_mut(&mut self) -> &mut OffloadSettings {
        self.known = KnownAnswers::default();
        &mut self.settings
    }
}

/// Answers that a table keeps: far more than a model has sizes. With each length of a prompt come
/// a few.
const ANSWERS_KEPT: usize = 4096;

/// Weights of `n x k`: everything that a decision about them depends on, beside the rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct WeightQuestion {
    format: NumberFormat,
    size: [usize; 2],
}

/// Weights of `n x k` that are packed for one matmul of so many rows: everything that their time
/// depends on, beside the rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct PackingQuestion {
    size: [usize; 2],
    rows: usize,
}

/// A decision about all matmuls with the same weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MatmulDecision {
    /// The precision that they are computed in.
    pub precision: ComputeType,
    /// Number of rows from which they are offloaded; `None` if never, because with the NPU even
    /// [`MOST_ROWS`] rows take longer.
    pub fewest_rows: Option<usize>,
    /// Modelled time of a call with [`MOST_ROWS`] rows, picoseconds; `None` if there is no plan.
    pub call_ps: Option<u64>,
}

impl OffloadRules {
    /// Creates the default rules for this NPU and the CPU of the RK3588.
    #[must_use]
    pub fn new(target: PlanTarget) -> Self {
        Self {
            settings: OffloadSettings {
                choice: PrecisionChoice::Auto,
                min_rows: None,
                attention: AttentionChoice::Auto,
                is_calibrated: target.options.profile.is_calibrated(),
                target,
                cpu: CpuSpeed::RK3588,
            },
            known: KnownAnswers::default(),
        }
    }

    /// Returns the decision about matmuls with weights of `n x k`. It is cached.
    #[must_use]
    pub fn decide(&self, format: NumberFormat, size: [usize; 2]) -> MatmulDecision {
        let question = WeightQuestion { format, size };
        remembered(&self.known.weights, question, |question| {
            self.decide_now(question)
        })
    }

    fn decide_now(&self, WeightQuestion { format, size }: WeightQuestion) -> MatmulDecision {
        let precision = self.precision(format, size);
        let call_ps = self.call_ps(precision, size);
        let most_ps = call_ps(MOST_ROWS);
        let npu_ps = |rows| match rows {
            MOST_ROWS => most_ps,
            _ => call_ps(rows),
        };
        MatmulDecision {
            precision,
            fewest_rows: self.fewest_rows(format, size, npu_ps),
            call_ps: most_ps,
        }
    }

    /// Returns the precision of matmuls with weights of `n x k`.
    ///
    /// With trained weights, `auto` makes a promise: against F16, the model loses at most 1.5 times
    /// what its file already loses on the CPU. With random weights it is about twice the file's
    /// loss.
    ///
    /// | weights | row length K | computed in |
    /// |---|---|---|
    /// | F32, F16, BF16 | any | FP16: the file has lost nothing |
    /// | quantised | a multiple of 128, at most 133,144 | rotated INT8: half of FP16's memory |
    /// | quantised | any other: a rotation helps little | FP16 |
    ///
    /// Rotated INT8 is chosen for its memory. On a calibrated board, FP16 is chosen for sizes in
    /// which it is faster.
    ///
    /// Four-bit weights break the promise with trained weights, even for files of four bits. They
    /// are experimental and need [`PrecisionChoice::Always`].
    fn precision(&self, weights: NumberFormat, size: [usize; 2]) -> ComputeType {
        if let PrecisionChoice::Always(precision) = self.choice {
            return precision;
        }
        let k = size[1];
        let rotates = k.is_multiple_of(ROTATED_MIN) && (1..=INT8_K_MAX).contains(&k);
        if weights.class != FormatClass::Quantised || !rotates {
            return ComputeType::Fp16;
        }
        let call_ps = |precision| self.call_ps(precision, size)(MOST_ROWS);
        let is_faster = || call_ps(ComputeType::Fp16) < call_ps(ComputeType::Int8Hadamard);
        if self.is_calibrated && is_faster() {
            ComputeType::Fp16
        } else {
            ComputeType::Int8Hadamard
        }
    }

    /// Returns the number of rows from which matmuls with weights of `n x k` are offloaded:
    /// `min_rows`, if the user set it. Otherwise it is the least number from which the whole call
    /// (the NPU, and the CPU's work for it) takes no longer than the CPU alone at its published
    /// speed; `None` if even [`MOST_ROWS`] rows take longer. `npu_ps` is the time of that call by
    /// its rows. The number is at least [`FEWEST_ROWS`], since a token of one sequence is never offloaded.
    fn fewest_rows(
        &self,
        weights: NumberFormat,
        size: [usize; 2],
        npu_ps: impl Fn(usize) -> Option<u64>,
    ) -> Option<usize> {
        let cpu_ps = |rows| self.cpu.matmul_ps(weights, size, rows);
        self.min_rows.or_else(|| rows::fewest(npu_ps, cpu_ps))
    }

    /// Returns the modelled time of calls with weights of `n x k` by their rows, `None` for all if
    /// there is no plan. It searches plans of weights once.
    fn call_ps(
        &self,
        precision: ComputeType,
        size: [usize; 2],
    ) -> impl Fn(usize) -> Option<u64> + '_ {
        let [n, k] = size;
        let plan = |n| self.target.weight_plan(precision, [n, k]);
        // Not each size has a plan for which smaller ones have one.
        let planned = plan(n).and_then(|whole| {
            let plan = |of| {
                if of == n {
                    Some(whole.clone())
                } else {
                    plan(of)
                }
            };
            let plans = large::modelled_rows(size).into_iter().map(plan);
            let plans = plans.map(|plan| Some([(precision, plan?)]));
            plans.collect::<Option<Vec<_>>>()
        });
        move |rows| {
            let plans = planned.as_ref()?.iter();
            let time = |plan: &[(_, WeightPlan)]| {
                let (_, weights) = plan.first()?;
                Some((weights.n, self.target.planned(plan, rows)?.call_ps))
            };
            large::extended(
                &plans.map(|plan| time(plan)).collect::<Option<Vec<_>>>()?,
                n,
            )
        }
    }

    /// Whether a matmul of `tokens` tokens with weights of `n x k` is offloaded. `together` rows
    /// are multiplied by the same weights: as many as tokens, except with experts, or where heads
    /// are rows. From [`MOST_ROWS`] tokens, experts are offloaded if any number of rows gains: the
    /// rows of each expert are not known, and all experts share the jobs of one batch.
    #[must_use]
    pub fn is_worth(
        &self,
        weights: NumberFormat,
        size: [usize; 2],
        tokens: usize,
        together: usize,
    ) -> bool {
        if let Some(least) = self.min_rows {
            return tokens >= least;
        }
        let pays = |fewest| tokens >= MOST_ROWS || together >= fewest;
        tokens >= FEWEST_ROWS && self.decide(weights, size).fewest_rows.is_some_and(pays)
    }

    /// Whether a matmul of `tokens` tokens is offloaded when its weights of `n x k` change with
    /// each call, so that they are packed in FP16 for this call alone. Such weights are the keys or
    /// values of attention that is not one operation. `together` rows are multiplied by the same
    /// weights.
    #[must_use]
    pub fn is_worth_packing(
        &self,
        weights: NumberFormat,
        size: [usize; 2],
        tokens: usize,
        together: usize,
    ) -> bool {
        let size = size.map(attention::rounded);
        let npu_ps = || self.packed_call_ps(size, together);
        match self.wanted_attention_rows() {
            Some(None) => false,
            Some(Some(fewest)) => tokens >= fewest && npu_ps().is_some(),
            None => npu_ps().is_some_and(|ps| ps <= self.cpu.matmul_ps(weights, size, together)),
        }
    }

    /// Time in which weights of `n x k` are packed and multiplied by `rows` rows in FP16,
    /// picoseconds; `None` if that is impossible. It is cached.
    pub(crate) fn packed_call_ps(&self, size: [usize; 2], rows: usize) -> Option<u64> {
        let question = PackingQuestion { size, rows };
        remembered(
            &self.known.packing,
            question,
            |PackingQuestion { size, rows }| {
                let call_ps = self.call_ps(ComputeType::Fp16, size)(rows);
                call_ps.map(|ps| ps.saturating_add(self.target.packing_ps(size)))
            },
        )
    }

    /// Number of rows from which the user wants attention offloaded, or `Some(None)` for never;
    /// `None` leaves it to the modelled times.
    fn wanted_attention_rows(&self) -> Option<Option<usize>> {
        match (self.attention, self.min_rows) {
            (AttentionChoice::Never, _) => Some(None),
            (AttentionChoice::From(rows), _) => Some(Some(rows)),
            (AttentionChoice::Auto, Some(FEWEST_ROWS..)) => Some(self.min_rows),
            (AttentionChoice::Auto, Some(_)) => Some(Some(FEWEST_ROWS)),
            (AttentionChoice::Auto, None) => None,
        }
    }

    /// Returns the precision of [`Self::decide`], without planning if the weights' type decides.
    #[must_use]
    pub fn compute_type(&self, weights: NumberFormat, size: [usize; 2]) -> ComputeType {
        match weights.class {
            FormatClass::Quantised => self.decide(weights, size).precision,
            FormatClass::Float | FormatClass::Other => self.precision(weights, size),
        }
    }

    /// Returns the number of rows from which attention like `batch` is offloaded, whatever its own
    /// rows and its window; `None` if it never is. One row, the token of a single sequence, is
    /// offloaded only at the user's request: llama.cpp asks with one row whether the CPU computes
    /// attention, and if not switches flash attention off.
    #[must_use]
    pub fn fewest_attention_rows(&self, batch: AttentionBatch) -> Option<usize> {
        if let Some(fewest) = self.wanted_attention_rows() {
            return fewest;
        }
        remembered(&self.known.attention, AttentionSize::of(batch), |size| {
            attention::fewest_rows(size, &self.target, &self.cpu)
        })
    }
}

/// Returns the answer to `question`, which `known` caches. `answer` depends on the question only.
fn remembered<K: Copy + Eq + Hash, V: Copy>(
    known: &Mutex<HashMap<K, V>>,
    question: K,
    answer: impl FnOnce(K) -> V,
) -> V {
    // A panic can at most leave a table with fewer entries.
    let known = || known.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(found) = known().get(&question) {
        return *found;
    }
    // Not under the lock: it takes milliseconds.
    let new = answer(question);
    let mut known = known();
    if known.len() >= ANSWERS_KEPT {
        known.clear();
    }
    known.insert(question, new);
    new
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;
    use test_support::assert_each_field_counts;

    use super::*;
    use crate::cost;
    use crate::models::ModelShape;

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
            let profile = Arc::make_mut(&mut rules.target.options.profile);
            profile.host.cores = cores;
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
            let rules = rules(600);
            let tasks_of = |work: &dyn Fn() -> Option<usize>| {
                let before = cost::tests::modelled_tasks();
                (work(), cost::tests::modelled_tasks() - before)
            };
            let decide = || rules.decide(format(name), size);
            let (fewest, tasks) = tasks_of(&|| decide().fewest_rows);
            let MatmulDecision {
                precision, call_ps, ..
            } = decide();
            let exact = |rows| Some(rules.target.matmul(precision, size, rows)?.call_ps);
            let (exact_fewest, all) = tasks_of(&|| rules.fewest_rows(format(name), size, exact));
            println!("{name} {size:?}: {tasks} tasks of {all}");
            assert!(tasks <= 50_000, "{name} {size:?}: {tasks} tasks");
            let ratio = call_ps.unwrap() as f64 / exact(MOST_ROWS).unwrap() as f64;
            // No model has longer rows.
            let is_real = size[1] <= 1 << 16;
            assert!(
                !is_real || (ratio - 1.0).abs() < 0.1,
                "{name} {size:?}: {ratio}"
            );
            // At most the next step.
            let ratio = fewest.unwrap() as f64 / exact_fewest.unwrap() as f64;
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
            |settings| settings.choice = PrecisionChoice::Always(ComputeType::W4A8Hadamard),
            |settings| settings.min_rows = Some(7),
            |settings| settings.attention = AttentionChoice::From(7),
            |settings| settings.target = PlanTarget::at_clock(50_000_000),
            |settings| settings.cpu.float = 1,
            |settings| settings.is_calibrated = true,
        ];
        // On one core FP16 is faster for these, which only a calibrated board follows.
        let new = || {
            let mut rules = rules(600);
            Arc::make_mut(&mut rules.target.options.profile).host.cores = 1;
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
        rules.choice = PrecisionChoice::Always(ComputeType::W4A8Hadamard);
        rules.min_rows = Some(7);
        let decision = rules.decide(format("F16"), SIZE);
        assert_eq!(decision.precision, ComputeType::W4A8Hadamard);
        assert_eq!(decision.fewest_rows, Some(7));
        for (rows, is_worth) in [(6, false), (7, true)] {
            assert_eq!(rules.is_worth(format("F16"), SIZE, rows, 1), is_worth);
        }
    }

    #[test]
    fn a_faster_npu_and_a_slower_cpu_are_used_earlier_and_never_for_a_token() {
        let rows = |rules: OffloadRules| rules.decide(format("Q8_0"), SIZE).fewest_rows;
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

    const HEADS: AttentionBatch = AttentionBatch {
        window: None,
        ..ModelShape::LLAMA32_1B.attention(512, 2048)
    };

    #[test]
    fn attention_is_offloaded_from_as_many_rows_on_as_pay_and_never_one_by_itself() {
        let mut rules = rules(600);
        let fewest = rules.fewest_attention_rows(HEADS);
        assert!(fewest.is_some_and(|rows| rows > 32), "{fewest:?}");
        // Numbers of keys share an answer up to a power of two, and all very large ones.
        let with = |keys| rules.fewest_attention_rows(AttentionBatch { keys, ..HEADS });
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
        rules.cpu.attention = u64::MAX;
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
}
