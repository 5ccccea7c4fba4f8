// SPDX-License-Identifier: MIT OR Apache-2.0
//! From how many rows on attention pays.

use npu_matmul::attention::AttentionBatch;

use crate::cost::PlanTarget;
use crate::cpu::{CpuSpeed, ps};
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

/// Sequences that a server decodes together, at most. As many rows may be a token of each, which
/// sees the keys of its own sequence alone: the CPU skips what a mask hides from a row, the NPU
/// only what it hides from all rows of a tile.
const SEQUENCES: usize = 32;

impl AttentionSize {
    /// The size whose decision this one shares: a KV cache grows, and each answer takes planning.
    #[must_use]
    pub(crate) fn rounded(self) -> Self {
        Self {
            keys: self.keys.min(MOST_KEYS).next_power_of_two(),
            ..self
        }
    }

    /// The last `rows` of a sequence of so many keys, of which each sees itself and those before it.
    pub(crate) const fn batch(self, rows: usize) -> AttentionBatch {
        let [head_dim, value_dim] = self.head;
        AttentionBatch {
            heads: self.heads,
            kv_heads: self.kv_heads,
            rows,
            keys: self.keys,
            head_dim,
            value_dim,
            window: Some(usize::MAX),
        }
    }

    /// The fewest rows from which on the NPU takes no longer than the CPU; more than the
    /// [`SEQUENCES`] of a server.
    pub(crate) fn fewest_rows(self, target: &PlanTarget, cpu: &CpuSpeed) -> Option<usize> {
        let elements = self.head.iter().sum::<usize>() as u64;
        let cpu_ps = |rows: usize| {
            let seen = rows * self.keys - (rows * rows.saturating_sub(1) / 2).min(rows * self.keys);
            let macs = (seen as u64).saturating_mul(self.heads as u64);
            ps(macs.saturating_mul(elements), cpu.attention)
        };
        let npu_ps = |rows| Some(target.attention(&self.batch(rows))?.call_ps);
        let fewest = rows::fewest(npu_ps, cpu_ps)?;
        Some(fewest.max(SEQUENCES + 1))
    }
}
