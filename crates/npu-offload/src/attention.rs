// SPDX-License-Identifier: MIT OR Apache-2.0
//! The number of rows from which attention is faster on the NPU.

use npu_matmul::attention::AttentionBatch;

use crate::cost::PlanTarget;
use crate::cpu::{CpuSpeed, ps};
use crate::rows;

/// Number of keys above which a decision no longer changes: both times grow with them alike.
const MOST_KEYS: usize = 4096;

/// Longest head. Sizes up to it are used as they are; larger sizes are numbers of keys.
const LONGEST_HEAD: usize = 1024;

/// Rounds a size of keys or values, like [`AttentionSize::rounded`].
pub(crate) fn rounded(size: usize) -> usize {
    match size {
        0..=LONGEST_HEAD => size,
        _ => size.min(MOST_KEYS).next_power_of_two(),
    }
}

/// Size of attention without its rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AttentionSize {
    /// Elements of a query or key, and of a value.
    pub head: [usize; 2],
    /// Heads of the queries.
    pub heads: usize,
    /// Heads of keys and values.
    pub kv_heads: usize,
    /// Keys of each row, including masked ones.
    pub keys: usize,
}

/// Which attention is offloaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AttentionChoice {
    /// None.
    Never,
    /// Like matmuls if the user set `min_rows`, but never one row. Otherwise where the modelled
    /// times show a gain.
    #[default]
    Auto,
    /// From this number of rows.
    From(usize),
}

/// The most sequences that a server decodes together. The rows of a call may be one token of each
/// sequence, which sees only the keys of its sequence. The CPU skips the keys that the mask hides
/// from a row, the NPU only those that it hides from all rows of a tile.
const SEQUENCES: usize = 32;

impl AttentionSize {
    /// Returns the size whose decision this one shares: a KV cache grows, and each decision takes
    /// planning.
    #[must_use]
    pub(crate) fn rounded(self) -> Self {
        Self {
            keys: self.keys.min(MOST_KEYS).next_power_of_two(),
            ..self
        }
    }

    /// Attention of the last `rows` tokens of a sequence. Each sees itself and those before it.
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

    /// Returns the fewest rows from which the NPU takes no longer than the CPU. They are always
    /// more than the [`SEQUENCES`] of a server.
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

#[cfg(test)]
mod tests {
    use crate::{NumberFormat, OffloadRules};

    use super::*;

    /// The table of docs/attention.md, with 512 rows and 2048 keys: both matmuls on the CPU and on
    /// the NPU, and attention as one operation with its softmax.
    #[test]
    fn one_operation_is_faster_than_its_matmuls() {
        let (rows, keys) = (512, 2048);
        let f16 = NumberFormat::named("F16").unwrap();
        for (heads, kv_heads, head) in [(12, 12, 64), (32, 8, 64), (16, 8, 128), (4, 1, 256)] {
            let together = rows * heads / kv_heads;
            let sizes = [[keys, head], [head, keys]];
            for clock in [200, 600] {
                let rules = OffloadRules::new(PlanTarget::at_clock(clock * 1_000_000));
                let ms = |ps: u64| ps as f64 / 1e9;
                let of_heads = |each: &dyn Fn([usize; 2]) -> u64| {
                    kv_heads as f64 * ms(sizes.into_iter().map(each).sum())
                };
                let cpu = of_heads(&|size| rules.cpu.matmul_ps(f16, size, together));
                let npu = of_heads(&|size| rules.packed_call_ps(size, together).unwrap());
                let size = AttentionSize {
                    head: [head; 2],
                    heads,
                    kv_heads,
                    keys,
                };
                let one = ms(rules.target.attention(&size.batch(rows)).unwrap().call_ps);
                println!(
                    "{heads}, {kv_heads}, {head} at {clock} MHz: CPU {cpu:.0} ms, both products {npu:.0} ms, \
                     one operation {one:.0} ms"
                );
                assert!(1.7 * one < npu && npu < 2.9 * one && 1.5 * one < cpu);
            }
        }
    }
}
