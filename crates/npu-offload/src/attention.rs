// SPDX-License-Identifier: MIT OR Apache-2.0
//! From how many rows on attention pays.

use crate::cost::PlanTarget;
use crate::cpu::{CpuSpeed, ps};
use crate::precision::ComputeType;
use crate::rows;

/// Keys beyond which a decision does not change any more: both times grow with them alike.
const MOST_KEYS: usize = 4096;

/// Size of attention, but for its rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AttentionSize {
    /// Elements of a query and of a key, and of a value.
    pub head: [usize; 2],
    /// Heads of the queries.
    pub heads: usize,
    /// Heads of keys and values.
    pub kv_heads: usize,
    /// Keys that each row meets, masked ones too.
    pub keys: usize,
}

/// Which attention is offloaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AttentionChoice {
    /// None.
    Never,
    /// From as many rows on as products, if that is fixed, and never one row; else where the times
    /// say that it pays.
    #[default]
    Auto,
    /// From so many rows on.
    From(usize),
}

impl AttentionSize {
    /// The size whose decision this one shares: a KV cache grows, and each answer takes
    /// milliseconds of planning.
    #[must_use]
    pub(crate) fn rounded(self) -> Self {
        Self {
            keys: self.keys.min(MOST_KEYS).next_power_of_two(),
            ..self
        }
    }

    /// The fewest rows from which on the NPU takes no longer than the CPU.
    pub(crate) fn fewest_rows(self, target: &PlanTarget, cpu: &CpuSpeed) -> Option<usize> {
        let pairs = |rows: usize| (rows * self.heads) as u64 * self.keys as u64;
        let [d, dv] = self.head;
        let cpu_ps = |rows| ps(pairs(rows).saturating_mul((d + dv) as u64), cpu.attention);
        let npu_ps = |rows: usize| {
            let together = rows * (self.heads / self.kv_heads.max(1));
            let cost = |size| Some(target.cost(ComputeType::Fp16, size, together)?.call_ps);
            let head_ps = cost([self.keys, d])?.checked_add(cost([dv, self.keys])?)?;
            // The softmax, which reads and writes each score once in FP16.
            let softmax_ps = ps(pairs(rows).checked_mul(4)?, cpu.bytes);
            head_ps
                .checked_mul(self.kv_heads as u64)?
                .checked_add(softmax_ps)
        };
        rows::fewest(npu_ps, cpu_ps)
    }
}
