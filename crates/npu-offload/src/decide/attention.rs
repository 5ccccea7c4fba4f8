// SPDX-License-Identifier: MIT OR Apache-2.0
//! The number of rows from which attention is faster on the NPU.

use npu_matmul::attention::AttentionShape;

use crate::decide::cost::PlanTarget;
use crate::decide::cpu::CpuSpeed;
use crate::decide::rows;

/// Number of keys above which a decision no longer changes: both times grow with them alike.
const MOST_KEYS: usize = 4096;

/// Sizes up to it are used as they are: heads are shorter. Larger sizes are numbers of keys.
const EXACT_SIZE_MAX: usize = 1024;

/// Rounds a size of keys or values, like the keys of [`AttentionSize`].
pub(crate) fn rounded(size: usize) -> usize {
    match size {
        0..=EXACT_SIZE_MAX => size,
        _ => size.min(MOST_KEYS).next_power_of_two(),
    }
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

/// Everything that the fewest rows of attention depend on: neither its rows nor its window, and the
/// number of keys only roughly. A KV cache grows, and each decision takes planning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct AttentionSize {
    heads: usize,
    kv_heads: usize,
    /// A power of two.
    keys: usize,
    head_dim: usize,
    value_dim: usize,
}

impl AttentionSize {
    /// The size of `batch`.
    pub(crate) fn of(batch: AttentionShape) -> Self {
        let AttentionShape {
            heads,
            kv_heads,
            rows: _,
            keys,
            head_dim,
            value_dim,
            // ggml asks before the mask is filled. Only the call reads it, in ggml-shim's
            // compute/attention.rs.
            window: _,
        } = batch;
        Self {
            heads,
            kv_heads,
            keys: keys.min(MOST_KEYS).next_power_of_two(),
            head_dim,
            value_dim,
        }
    }

    /// Attention of this size of the last `rows` rows of a sequence.
    const fn batch(self, rows: usize) -> AttentionShape {
        let Self {
            heads,
            kv_heads,
            keys,
            head_dim,
            value_dim,
        } = self;
        AttentionShape {
            heads,
            kv_heads,
            rows,
            keys,
            head_dim,
            value_dim,
            window: Some(usize::MAX),
        }
    }
}

/// Returns the fewest rows of attention of this size from which the NPU takes no longer than the
/// CPU. They are always more than the [`SEQUENCES`] of a server.
pub(crate) fn fewest_rows(
    size: AttentionSize,
    target: &PlanTarget,
    cpu: &CpuSpeed,
) -> Option<usize> {
    let AttentionSize { heads, keys, .. } = size;
    let elements = (size.head_dim + size.value_dim) as u64;
    let cpu_ps = |rows: usize| {
        let seen = rows * keys - (rows * rows.saturating_sub(1) / 2).min(rows * keys);
        let macs = (seen as u64).saturating_mul(heads as u64);
        cpu.mean_attention_ps(macs.saturating_mul(elements))
    };
    let npu_ps = |rows| Some(target.attention(&size.batch(rows))?.call_ps);
    let fewest = rows::fewest(npu_ps, cpu_ps)?;
    Some(fewest.max(SEQUENCES + 1))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use test_support::assert_each_field_counts;

    use super::*;
    use crate::decide::rules::tests::{format, rules};

    proptest! {
        #![proptest_config(test_support::cases(64))]

        #[test]
        fn sizes_differ_in_each_field(
            one in [1..4_usize, 1..4, 1..9000, 1..4, 1..4],
            other in [1..4_usize, 1..4, 1..9000, 1..4, 1..4],
            rows in 1..600_usize,
            window in prop::option::of(1..9000_usize),
        ) {
            let [one, other] = [one, other].map(|[heads, kv_heads, keys, head_dim, value_dim]| {
                let batch = AttentionShape {
                    heads,
                    kv_heads,
                    rows,
                    keys,
                    head_dim,
                    value_dim,
                    window,
                };
                AttentionSize::of(batch)
            });
            assert_each_field_counts!(
                AttentionSize { heads, kv_heads, keys, head_dim, value_dim },
                one,
                other
            );
            // So an answer for the size holds for all that share it.
            prop_assert_eq!(AttentionSize::of(one.batch(rows)), one);
        }
    }

    /// With 512 rows and 2048 keys: both matmuls on the CPU and on
    /// the NPU, and attention as one operation with its softmax.
    #[test]
    fn one_operation_is_faster_than_its_matmuls() {
        let (rows, keys) = (512, 2048);
        let f16 = format("F16");
        for (heads, kv_heads, head) in [(12, 12, 64), (32, 8, 64), (16, 8, 128), (4, 1, 256)] {
            let together = rows * heads / kv_heads;
            let sizes = [[keys, head], [head, keys]];
            for clock in [200, 600] {
                let rules = rules(clock);
                let ms = |ps: u64| ps as f64 / 1e9;
                let head_times = |each: &dyn Fn([usize; 2]) -> u64| {
                    kv_heads as f64 * ms(sizes.into_iter().map(each).sum())
                };
                let cpu = head_times(&|size| rules.cpu.matmul_ps(f16, size, together));
                let npu = head_times(&|size| rules.packed_call_ps(size, together).unwrap());
                let batch = AttentionShape {
                    heads,
                    kv_heads,
                    rows,
                    keys,
                    head_dim: head,
                    value_dim: head,
                    window: Some(usize::MAX),
                };
                let one = ms(rules.target.attention(&batch).unwrap().call_ps);
                println!(
                    "{heads}, {kv_heads}, {head} at {clock} MHz: CPU {cpu:.0} ms, both products {npu:.0} ms, \
                     one operation {one:.0} ms"
                );
                assert!(one < npu && npu < 2.8 * one);
                assert!(one < cpu || clock == 200);
            }
        }
    }
}
