// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decides which weights may be on the NPU, and counts those that are. Weights get memory in the
//! order in which they come, if the user wants them and they fit.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use npu_matmul::memory::{DoesNotFit, MemoryPlan, MemoryShares};
use npu_matmul::plan::WeightPlan;
use npu_offload::{MOST_ROWS, add_tensor};

use crate::ggml::reason::LeftOnCpu;
use crate::ggml::shared;

const PS_PER_SECOND: u64 = 1_000_000_000_000;
pub(crate) const MIB: u64 = 1 << 20;

/// Number and size of tensors.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct TensorCount {
    pub(crate) tensors: u64,
    /// Bytes that they take or would take on the NPU.
    pub(crate) bytes: u64,
}

impl fmt::Display for TensorCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tensors, bytes } = *self;
        let plural = if tensors == 1 { "" } else { "s" };
        let (whole, tenth) = (bytes / MIB, bytes % MIB * 10 / MIB);
        write!(f, "{tensors} tensor{plural} ({whole}.{tenth} MiB)")
    }
}

/// Largest amounts of weights on the NPU and on the CPU.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct WeightTotals {
    /// Weights packed for the NPU, when they took the most bytes.
    pub(crate) npu: TensorCount,
    /// Weights left to the CPU, when they were the most tensors.
    pub(crate) cpu: TensorCount,
}

#[derive(Debug)]
struct State {
    memory: MemoryPlan,
    limit: u64,
    /// Tensors that may be on the NPU, packed or not yet.
    chosen: u64,
    cpu: BTreeMap<LeftOnCpu, TensorCount>,
    packed: TensorCount,
    most: WeightTotals,
    /// Whether anything changed since the last report.
    fresh: bool,
    /// Number of decisions that were withdrawn.
    withdrawn: u64,
    /// Tensors that failed to load since the last report of failures, and why the first of them did.
    failed: TensorCount,
    first_failure: Option<String>,
    /// Modelled time of a prompt's matmuls with the weights chosen since the last report,
    /// picoseconds.
    prompt_ps: u64,
}

/// The NPU memory that weights may take, and that they take.
#[derive(Debug)]
pub(crate) struct Budget(Mutex<State>);

/// The decision about one tensor. Dropping it frees the budget that the tensor took.
#[derive(Debug)]
pub(crate) struct WeightDecision {
    budget: Arc<Budget>,
    /// Packs each of the tensor's matrices.
    plan: WeightPlan,
    /// Number of these.
    pub(crate) matrices: usize,
    /// Bytes of all of them.
    bytes: u64,
    /// Why the tensor may not be on the NPU; `None` if it may.
    refusal: Mutex<Option<LeftOnCpu>>,
    /// Number of packed matrices.
    packed: AtomicU64,
}

/// Counts a matrix as packed for as long as this lives.
#[derive(Debug)]
pub(crate) struct PackedCount(Arc<WeightDecision>);

impl Budget {
    /// Creates a budget of `memory`, which has the weights' share of `limit` bytes.
    pub(crate) fn new(memory: MemoryPlan, limit: u64) -> Arc<Self> {
        Arc::new(Self(Mutex::new(State {
            memory,
            limit,
            chosen: 0,
            cpu: BTreeMap::new(),
            packed: TensorCount::default(),
            most: WeightTotals::default(),
            fresh: false,
            withdrawn: 0,
            failed: TensorCount::default(),
            first_failure: None,
            prompt_ps: 0,
        })))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic leaves counts that are off by one tensor at most.
        shared::lock(&self.0)
    }

    /// Decides about a tensor of so many matrices, each packed by `plan`: all of them or none. Its
    /// matmuls take `prompt_ps` picoseconds of a prompt of [`npu_offload::MOST_ROWS`] tokens.
    pub(crate) fn decide(
        self: &Arc<Self>,
        wanted: bool,
        plan: WeightPlan,
        matrices: usize,
        prompt_ps: u64,
    ) -> Arc<WeightDecision> {
        let mut state = self.lock();
        let refusal = if wanted {
            let added = add_tensor(&mut state.memory, &plan, matrices);
            added.err().map(|error| match error {
                DoesNotFit::Memory { .. } => LeftOnCpu::Memory,
                DoesNotFit::Mappings { .. } => LeftOnCpu::Mappings,
                _ => LeftOnCpu::Addresses,
            })
        } else {
            Some(LeftOnCpu::Excluded)
        };
        let bytes = plan.device_bytes().saturating_mul(matrices as u64);
        match refusal {
            None => {
                state.chosen += 1;
                state.prompt_ps = state.prompt_ps.saturating_add(prompt_ps);
            }
            Some(why) => state.leave(why, bytes),
        }
        state.fresh = true;
        Arc::new(WeightDecision {
            budget: Arc::clone(self),
            plan,
            matrices,
            bytes,
            refusal: Mutex::new(refusal),
            packed: AtomicU64::new(0),
        })
    }

    /// Returns one line about all weights, if anything changed since the last one; on a calibrated
    /// board with the expected speed of a prompt.
    pub(crate) fn report(&self, is_calibrated: bool) -> Option<String> {
        let mut state = self.lock();
        if !std::mem::take(&mut state.fresh) {
            return None;
        }
        let chosen = TensorCount {
            tensors: state.chosen,
            bytes: state.memory.total(),
        };
        // Writing into a String cannot fail.
        let mut line = format!("weights for the NPU: {chosen}");
        if state.limit != u64::MAX {
            let most = MemoryShares::of(state.limit).weights();
            let _ = write!(line, " of at most {} MiB", most / MIB);
        }
        let mut separator = "; left to the CPU:";
        for (why, count) in &state.cpu {
            let _ = write!(line, "{separator} {count} {}", why.in_log());
            separator = ",";
        }
        let prompt_ps = std::mem::take(&mut state.prompt_ps);
        if is_calibrated && prompt_ps > 0 {
            let speed = MOST_ROWS as u64 * PS_PER_SECOND / prompt_ps;
            let _ = write!(
                line,
                "; a prompt of {MOST_ROWS} tokens at up to {speed} tokens/s (modelled, by the profile)"
            );
        }
        Some(line)
    }

    /// Returns one line about all weights that failed to load since the last one.
    pub(crate) fn report_failures(&self) -> Option<String> {
        let mut state = self.lock();
        let why = state.first_failure.take()?;
        let failed = std::mem::take(&mut state.failed);
        Some(format!(
            "{failed} of weights could not be packed for the NPU and stay on the CPU. The first is \
             {why}"
        ))
    }

    /// Returns the limit of all memory of this library, and how much of it weights left free.
    pub(crate) fn limit_and_free(&self) -> (u64, u64) {
        let state = self.lock();
        let free = state.limit.saturating_sub(state.memory.total());
        (state.limit, free)
    }

    /// A number that differs after a decision was withdrawn.
    pub(crate) fn withdrawn(&self) -> u64 {
        self.lock().withdrawn
    }

    /// Tensors and bytes on the NPU, and those left to the CPU, each at its maximum.
    pub(crate) fn most(&self) -> WeightTotals {
        self.lock().most
    }
}

impl State {
    fn left(&self) -> TensorCount {
        let add = |sum: TensorCount, count: &TensorCount| TensorCount {
            tensors: sum.tensors + count.tensors,
            bytes: sum.bytes + count.bytes,
        };
        self.cpu.values().fold(TensorCount::default(), add)
    }

    /// Counts a tensor of `bytes` bytes as left to the CPU.
    fn leave(&mut self, why: LeftOnCpu, bytes: u64) {
        let count = self.cpu.entry(why).or_default();
        count.tensors += 1;
        count.bytes += bytes;
        let left = self.left();
        if left.tensors >= self.most.cpu.tensors {
            self.most.cpu = left;
        }
    }

    /// Takes back `decision`, which has this `refusal`.
    fn forget(&mut self, refusal: Option<LeftOnCpu>, decision: &WeightDecision) {
        let Some(why) = refusal else {
            self.chosen -= 1;
            (0..decision.matrices).for_each(|_| self.memory.remove(&decision.plan));
            return;
        };
        let count = self.cpu.entry(why).or_default();
        count.tensors -= 1;
        count.bytes -= decision.bytes;
        if count.tensors == 0 {
            self.cpu.remove(&why);
        }
    }
}

impl WeightDecision {
    /// Whether the tensor may be on the NPU.
    pub(crate) fn is_accepted(&self) -> bool {
        self.refusal().is_none()
    }

    /// Why the tensor may not be on the NPU; `None` if it may.
    pub(crate) fn refusal(&self) -> Option<LeftOnCpu> {
        *shared::lock(&self.refusal)
    }

    /// Counts one of its matrices as packed.
    pub(crate) fn count_packed(self: &Arc<Self>) -> PackedCount {
        let mut state = self.budget.lock();
        // The lock orders this access.
        let is_first = self.packed.fetch_add(1, Ordering::Relaxed) == 0;
        state.packed.tensors += u64::from(is_first);
        state.packed.bytes += self.plan.device_bytes();
        if state.packed.bytes >= state.most.npu.bytes {
            state.most.npu = state.packed;
        }
        PackedCount(Arc::clone(self))
    }

    /// Withdraws a positive decision because the tensor could not be packed while it was loaded.
    /// `why` begins with its name.
    pub(crate) fn fail(&self, why: &str) {
        self.revoke(LeftOnCpu::Failed);
        let mut state = self.budget.lock();
        state.failed.tensors += 1;
        state.failed.bytes += self.bytes;
        state.first_failure.get_or_insert_with(|| why.to_owned());
    }

    /// Withdraws a positive decision.
    pub(crate) fn revoke(&self, why: LeftOnCpu) {
        let mut refusal = shared::lock(&self.refusal);
        if refusal.is_none() {
            let mut state = self.budget.lock();
            state.forget(None, self);
            state.leave(why, self.bytes);
            state.withdrawn += 1;
            // Those that fail when they are first used come one by one.
            state.fresh |= why != LeftOnCpu::Failed;
            *refusal = Some(why);
        }
    }
}

impl Drop for WeightDecision {
    fn drop(&mut self) {
        let refusal = self.refusal();
        self.budget.lock().forget(refusal, self);
    }
}

impl Drop for PackedCount {
    fn drop(&mut self) {
        let mut state = self.0.budget.lock();
        let is_last = self.0.packed.fetch_sub(1, Ordering::Relaxed) == 1;
        state.packed.tensors -= u64::from(is_last);
        state.packed.bytes -= self.0.plan.device_bytes();
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use npu_matmul::{Dtype, PlanOptions};

    use super::*;

    fn plan() -> WeightPlan {
        WeightPlan::new(Dtype::Int8, 1024, 1024, 3, &PlanOptions::default()).unwrap()
    }

    /// Numbers of tensors chosen for the NPU and left to the CPU, now.
    fn tensors(budget: &Budget) -> (u64, u64) {
        let state = budget.lock();
        (state.chosen, state.left().tensors)
    }

    /// A decision that so many matrices may be on the NPU.
    pub(crate) fn accepted(matrices: usize) -> Arc<WeightDecision> {
        wanted(&budget(matrices as u64), matrices)
    }

    /// A budget for so many matrices.
    pub(crate) fn budget(matrices: u64) -> Arc<Budget> {
        let total = matrices * (plan().device_bytes() + 160 * 1024);
        let shares = MemoryShares::for_weights(total);
        Budget::new(MemoryPlan::new(3, shares, &PlanOptions::default()), total)
    }

    /// The decision about a tensor of so many matrices that the user wants on the NPU.
    fn wanted(budget: &Arc<Budget>, matrices: usize) -> Arc<WeightDecision> {
        budget.decide(true, plan(), matrices, 0)
    }

    #[test]
    fn tensors_get_memory_in_order_and_give_it_back() {
        let budget = budget(2);
        let [first, second, third] = [(); 3].map(|()| wanted(&budget, 1));
        assert!(first.is_accepted() && second.is_accepted() && !third.is_accepted());
        let line = budget.report(false).unwrap();
        let is_chosen = line.starts_with("weights for the NPU: 2 tensors (");
        let is_left = line.contains("left to the CPU: 1 tensor (");
        let is_why = line.ends_with("beyond GGML_ROCKET_MEM");
        assert!(is_chosen && is_left && is_why, "{line}");
        assert_eq!(budget.report(false), None);
        drop(first);
        assert!(wanted(&budget, 1).is_accepted());
        drop((second, third));
        assert_eq!(tensors(&budget), (0, 0));
        assert_eq!(budget.most().cpu.tensors, 1);
        // All matrices of a tensor fit, or none.
        let three = wanted(&budget, 3);
        assert!(!three.is_accepted() && wanted(&budget, 2).is_accepted());
    }

    #[test]
    fn excluded_tensors_take_no_memory_and_are_named() {
        let budget = budget(1);
        let excluded = budget.decide(false, plan(), 1, 0);
        assert!(!excluded.is_accepted());
        let line = budget.report(false).unwrap();
        assert!(line.contains("GGML_ROCKET_TENSORS"), "{line}");
        assert_eq!(tensors(&budget), (0, 1));
    }

    #[test]
    fn a_failure_gives_back_and_is_counted_once() {
        let budget = budget(1);
        let decision = wanted(&budget, 1);
        assert_eq!(budget.withdrawn(), 0);
        decision.revoke(LeftOnCpu::Failed);
        decision.revoke(LeftOnCpu::Failed);
        assert_eq!(budget.withdrawn(), 1);
        assert!(!decision.is_accepted());
        assert_eq!(tensors(&budget), (0, 1));
        assert!(wanted(&budget, 1).is_accepted());
        drop(decision);
        assert_eq!(tensors(&budget), (0, 0));
    }

    #[test]
    fn failures_of_a_load_are_told_in_one_line() {
        let budget = budget(3);
        assert_eq!(budget.report_failures(), None);
        let tensors = ["one", "two"].map(|name| {
            let decision = wanted(&budget, 1);
            decision.fail(&format!("{name}: too large"));
            decision
        });
        // Not while it was loaded.
        wanted(&budget, 1).revoke(LeftOnCpu::Failed);
        let line = budget.report_failures().unwrap();
        assert!(line.starts_with("2 tensors (") && line.ends_with("The first is one: too large"));
        assert_eq!(budget.report_failures(), None);
        drop(tensors);
    }

    #[test]
    fn a_measured_board_tells_how_fast_a_prompt_will_be() {
        let budget = budget(4);
        let decide = || budget.decide(true, plan(), 1, PS_PER_SECOND);
        let _both = [decide(), decide()];
        let line = budget.report(true).unwrap();
        let speed = "; a prompt of 512 tokens at up to 256 tokens/s";
        assert!(line.contains(speed), "{line}");
        let _another = decide();
        assert!(!budget.report(false).unwrap().contains("prompt"));
    }

    #[test]
    fn only_packed_tensors_are_counted() {
        let budget = budget(8);
        let (experts, never) = (wanted(&budget, 3), wanted(&budget, 1));
        assert_eq!(budget.most().npu, TensorCount::default());
        let two = [experts.count_packed(), experts.count_packed()];
        let most = TensorCount {
            tensors: 1,
            bytes: 2 * plan().device_bytes(),
        };
        assert_eq!(budget.most().npu, most);
        drop((experts, never, two));
        assert_eq!(budget.lock().packed, TensorCount::default());
        assert_eq!(budget.most().npu, most);
    }
}
