// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rules that decide the precision of a matmul, and from how many rows it is offloaded.

use std::collections::HashMap;
use std::hash::Hash;
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, PoisonError};

use npu_matmul::attention::AttentionShape;
use npu_matmul::plan::WeightPlan;
use npu_matmul::quantise::INT8_K_MAX;

use crate::decide::attention::{self, AttentionChoice, AttentionSize};
use crate::decide::cost::PlanTarget;
use crate::decide::cpu::CpuSpeed;
use crate::decide::format::{FormatClass, NumberFormat};
use crate::decide::large;
use crate::decide::precision::{ComputeType, PrecisionChoice};
use crate::decide::rows::{self, FEWEST_ROWS, MOST_ROWS, PROMPT_ROWS};

/// The smallest block of a rotation with which a real model keeps the promise of `auto`: MiniLM,
/// with rows of 384. Smaller blocks spread outliers over fewer channels. In blocks of 64, SmolLM2's
/// rows of 576 break the promise with some texts (docs/quality.md).
const ROTATED_MIN: usize = 128;

/// Default of [`OffloadSettings::min_rows`], for the backend and for predictions: the modelled times
/// decide. A number here would count for attention too ([`AttentionChoice::Auto`]).
pub const DEFAULT_MIN_ROWS: Option<usize> = None;

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
    weights: Mutex<HashMap<WeightQuestion, BreakEven>>,
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
pub struct BreakEven {
    /// The precision that they are computed in.
    pub precision: ComputeType,
    /// Number of rows from which they are offloaded; `None` if never, because with the NPU even
    /// [`MOST_ROWS`] rows take longer.
    pub fewest_rows: Option<usize>,
    /// Likely time of a call with [`MOST_ROWS`] rows, picoseconds; `None` if there is no plan.
    pub call_ps: Option<u64>,
}

impl OffloadRules {
    /// Creates the default rules for this NPU and the CPU of the RK3588.
    #[must_use]
    pub fn new(target: PlanTarget) -> Self {
        Self {
            settings: OffloadSettings {
                choice: PrecisionChoice::Auto,
                min_rows: DEFAULT_MIN_ROWS,
                attention: AttentionChoice::Auto,
                is_calibrated: target.options().profile.is_calibrated(),
                cpu: CpuSpeed::of(&target.options().profile),
                target,
            },
            known: KnownAnswers::default(),
        }
    }

    /// Returns the decision about matmuls with weights of `n x k`. It is cached.
    #[must_use]
    pub fn decide(&self, format: NumberFormat, size: [usize; 2]) -> BreakEven {
        let question = WeightQuestion { format, size };
        remembered(&self.known.weights, question, |question| {
            self.decide_now(question)
        })
    }

    fn decide_now(&self, WeightQuestion { format, size }: WeightQuestion) -> BreakEven {
        let precision = self.precision(format, size);
        // Jobs on the CPU make no matmul worth it: their speed is an estimate.
        let alone = self.target.npu_alone();
        let call_ps = call_ps(&self.target, precision, size);
        BreakEven {
            precision,
            fewest_rows: self.fewest_rows(format, size, |rows| call_ps(&alone, rows)),
            call_ps: call_ps(&self.target, MOST_ROWS),
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
    fn precision(&self, weights: NumberFormat, size: [usize; 2]) -> ComputeType {
        if let PrecisionChoice::Always(precision) = self.choice {
            return precision;
        }
        let k = size[1];
        let rotates = k.is_multiple_of(ROTATED_MIN) && (1..=INT8_K_MAX).contains(&k);
        if weights.class != FormatClass::Quantised || !rotates {
            return ComputeType::Fp16;
        }
        let call_ps = |precision| call_ps(&self.target, precision, size)(&self.target, MOST_ROWS);
        let is_faster = || call_ps(ComputeType::Fp16) < call_ps(ComputeType::Int8Hadamard);
        if self.is_calibrated && is_faster() {
            ComputeType::Fp16
        } else {
            ComputeType::Int8Hadamard
        }
    }

    /// Returns the number of rows from which matmuls with weights of `n x k` are offloaded:
    /// `min_rows`, if the user set it. Otherwise it is the least number from which the whole call
    /// (the NPU, and the CPU's work for it) is likely to take no longer than the CPU alone at its
    /// published speed; `None` if even [`MOST_ROWS`] rows take longer. `npu_ps` is the time of that
    /// call by its rows. Below [`PROMPT_ROWS`] rows the CPU may have generated tokens before, so
    /// the resume of the cores is added. The number is at least [`FEWEST_ROWS`], since a token of
    /// one sequence is never offloaded.
    fn fewest_rows(
        &self,
        weights: NumberFormat,
        size: [usize; 2],
        npu_ps: impl Fn(usize) -> Option<u64>,
    ) -> Option<usize> {
        let npu_ps = |rows| {
            let resume_ps = match rows {
                PROMPT_ROWS.. => 0,
                _ => self.target.resume_ps(),
            };
            Some(npu_ps(rows)?.saturating_add(resume_ps))
        };
        let cpu_ps = |rows| self.cpu.matmul_ps(weights, size, rows);
        self.min_rows.or_else(|| rows::fewest(npu_ps, cpu_ps))
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
                let call_ps = call_ps(&self.target, ComputeType::Fp16, size)(&self.target, rows);
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
    pub fn fewest_attention_rows(&self, batch: AttentionShape) -> Option<usize> {
        if let Some(fewest) = self.wanted_attention_rows() {
            return fewest;
        }
        remembered(&self.known.attention, AttentionSize::of(batch), |size| {
            attention::fewest_rows(size, &self.target, &self.cpu)
        })
    }
}

/// Returns the modelled time of calls with weights of `n x k` by target and rows, `None` for all if
/// there is no plan. It searches plans of weights once, for `target` and others that plan weights
/// alike.
fn call_ps(
    target: &PlanTarget,
    precision: ComputeType,
    size: [usize; 2],
) -> impl Fn(&PlanTarget, usize) -> Option<u64> + use<> {
    let [n, k] = size;
    let plan = |n| target.weight_plan(precision, [n, k]);
    // Not each size has a plan for which smaller ones have one.
    let planned = plan(n).and_then(|whole| {
        let plan = |of| {
            if of == n {
                Some(whole.clone())
            } else {
                plan(of)
            }
        };
        let rows = large::modelled_rows(size).into_iter();
        rows.map(|n| Some([(precision, plan(n)?)]))
            .collect::<Option<Vec<_>>>()
    });
    move |target, rows| {
        let plans = planned.as_ref()?.iter();
        let time = |plan: &[(_, WeightPlan)]| {
            let (_, weights) = plan.first()?;
            Some((weights.n, target.planned(plan, rows)?.call_ps))
        };
        large::extended(
            &plans.map(|plan| time(plan)).collect::<Option<Vec<_>>>()?,
            n,
        )
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
pub(crate) mod tests;
