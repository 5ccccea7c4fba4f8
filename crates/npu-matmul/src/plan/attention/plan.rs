// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tiling of attention: tiles of rows, blocks of keys, and the two jobs of a tile.
//!
//! A tile has some rows of the heads that share a KV head. Its first job computes the scores S of
//! all keys that the tile sees. The CPU turns them into probabilities P (softmax). The second job
//! multiplies P by V:
//!
//! ```text
//!           blocks of keys                       value channels, and a column of ones
//!        +-------+-------+-------+               +-------+
//!   rows |       S, then P       |   P V:  block | block | a partial result each,
//!        +-------+-------+-------+               +-------+ which the CPU adds up
//!   runs of blocks: a task each
//! ```
//!
//! S has surfaces of four keys, whatever tasks wrote it, and P surfaces of eight keys. So the tiles of
//! S and the K tiles of P need not match.

use std::ops::Range;
use std::sync::Arc;

use rknpu_regcmd::ProgramOptions;

use super::call::AttentionShape;
use super::mask::VisibleBlock;
use crate::numbers::dtype::{Dtype, ROW_MULTIPLE};
use crate::numbers::layout::weight_bytes;
use crate::plan::kept_plan::{JobId, PlanJob, next_id};
use crate::plan::{Band, JobLimits, JobPlan, KTile, PlanError, PlanOptions, even_tile, pieces};

/// Precision of operands: binary16.
pub(crate) const HALF: Dtype = Dtype::Fp16;

/// Preferred upper bound for the probabilities of a tile, in bytes: 256 rows of 8192 keys. The scores
/// take twice as much. With fewer rows the NPU reads K and V more often, and needs more tasks.
const TILE_BYTES: usize = 4 << 20;

/// Upper bound for the keys of a block: the depth of the deepest published FP16 tiles with 256 rows
/// (E-resident-tiles) and with 384 (E-streamed-tiles).
const BLOCK_KEYS: usize = 384;

/// Sizes that all tiles of a call share.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct AttentionPlan {
    /// Parts of the vectors of Q and K; their scores are added up.
    pub(crate) parts: Vec<Range<usize>>,
    pub(crate) keys: usize,
    /// Keys of a block.
    pub(crate) block: usize,
    /// Elements of each vector of V.
    pub(crate) value_dim: usize,
    /// Query heads of a tile.
    pub(crate) heads: usize,
    /// Rows of each of these heads.
    pub(crate) rows: usize,
    /// Upper bounds for the keys of a task, and for the value channels of one.
    n_tiles: [usize; 2],
    program: ProgramOptions,
}

/// Most rows of a tile of depth `k`; `None` if no number of rows is legal and, where required,
/// known to have run.
fn most_rows(k: usize, options: &PlanOptions) -> Option<usize> {
    let rows = options.rows_max(HALF, k);
    (rows >= ROW_MULTIPLE).then_some(rows)
}

impl AttentionPlan {
    /// Chooses tiles with at least one row and head.
    pub(crate) fn new(sizes: &AttentionShape, options: &PlanOptions) -> Result<Self, PlanError> {
        let too_many_keys = || PlanError::TooManyKeys {
            keys: sizes.keys,
            head_dim: sizes.head_dim,
            value_dim: sizes.value_dim,
        };
        // Reject bad sizes before allocating.
        let longest = sizes.head_dim.max(sizes.value_dim).max(sizes.keys);
        if longest > options.limits.buffer_bytes / (2 * ROW_MULTIPLE) {
            return Err(too_many_keys());
        }
        let unit = HALF.k_tile_multiple();
        let deepest = |k: usize| {
            let deep = (1..=k.div_ceil(unit)).rev().map(|units| units * unit);
            let mut legal = deep.filter_map(|k| Some((k, most_rows(k, options)?)));
            let none = PlanError::Unmeasured {
                dtype: HALF,
                m: ROW_MULTIPLE,
                k: unit,
                n: HALF.kernel_group(),
            };
            legal.next().ok_or(none)
        };
        // CBUF limits the depth of a tile.
        let head_dim = sizes.head_dim.max(1);
        let (part, rows_of_part) = deepest(head_dim.min(1 << 14))?;
        let part = even_tile(head_dim, part, unit);
        let (block, rows_of_block) = deepest(sizes.keys.min(BLOCK_KEYS))?;
        let block = even_tile(sizes.keys.max(1), block, unit);
        let parts: Vec<_> = (0..head_dim)
            .step_by(part)
            .map(|start| start..(start + part).min(sizes.head_dim))
            .collect();

        let row_bytes = parts.len() * 2 * sizes.keys.next_multiple_of(unit);
        let m = (TILE_BYTES / row_bytes.max(1)).max(ROW_MULTIPLE);
        let m = m.min(rows_of_part).min(rows_of_block) / ROW_MULTIPLE * ROW_MULTIPLE;
        let heads = even_tile(sizes.group().max(1), m, 1);
        let rows = even_tile(sizes.rows.max(1), m / heads, 1);
        let m = heads * rows;
        let tiling = Self {
            n_tiles: [part, block].map(|k| options.n_max(HALF, k, m)),
            parts,
            keys: sizes.keys,
            block,
            value_dim: sizes.value_dim,
            heads,
            rows,
            program: options.profile.choices.program(HALF),
        };
        if tiling.fits(&options.limits) {
            Ok(tiling)
        } else {
            Err(too_many_keys())
        }
    }

    /// Whether the jobs of the largest tile stay within the limits of a job.
    fn fits(&self, limits: &JobLimits) -> bool {
        let blocks: Vec<_> = (0..self.blocks()).collect();
        let m = self.heads * self.rows;
        let fits = |job: &JobPlan| {
            u128::from(job.time_bound_ns) <= limits.time.as_nanos()
                && job.tasks.len() <= limits.tasks
                && job.output_bytes.max(job.band.activation_bytes) <= limits.buffer_bytes
        };
        // The limit applies to K and V separately.
        self.kv_bytes() / 2 <= limits.buffer_bytes
            && fits(&self.score_job(0, m, &blocks))
            && fits(&self.value_job(0, m, &blocks))
    }

    /// Splits the `group` heads of one KV head and `rows` rows into tiles.
    pub(crate) fn tiles(
        &self,
        group: usize,
        rows: usize,
    ) -> impl Iterator<Item = (Range<usize>, Range<usize>)> {
        let rows_of = move || pieces(0..rows, self.rows);
        pieces(0..group, self.heads)
            .flat_map(move |heads| rows_of().map(move |rows| (heads.clone(), rows)))
    }

    /// Amount of multiplication in a tile of `m` rows that sees `blocks` blocks.
    pub(crate) const fn work(&self, m: usize, blocks: usize) -> u64 {
        (m * blocks) as u64 * self.block as u64
    }

    /// Number of blocks of keys.
    pub(crate) const fn blocks(&self) -> usize {
        self.keys.div_ceil(self.block)
    }

    /// A block of keys, as a K tile of the second matmul.
    pub(crate) fn key_block(&self, index: usize) -> KTile {
        let start = index * self.block;
        let k = start..(start + self.block).min(self.keys);
        KTile {
            index,
            padded: k.len().next_multiple_of(HALF.k_tile_multiple()),
            k,
        }
    }

    /// Keys with padding.
    fn padded_keys(&self) -> usize {
        self.keys.next_multiple_of(HALF.k_tile_multiple())
    }

    /// Value channels, and the column of ones.
    pub(crate) const fn columns(&self) -> usize {
        self.value_dim + 1
    }

    /// Value channels and the column of ones, with padding.
    fn padded_values(&self) -> usize {
        self.columns().next_multiple_of(HALF.kernel_group())
    }

    /// Bytes of K and V for one head.
    pub(crate) fn kv_bytes(&self) -> usize {
        self.value_offset(self.blocks())
    }

    /// Offset of this part and block of K in the memory of a head. Each is a weight tile.
    pub(crate) fn key_offset(&self, part: usize, block: usize) -> usize {
        let before: usize = self.parts[..part].iter().map(padded_part).sum();
        let depth = self.parts.get(part).map_or(0, padded_part);
        let keys = (block * self.block).min(self.padded_keys());
        weight_bytes(HALF, self.padded_keys(), before) + weight_bytes(HALF, keys, depth)
    }

    /// Offset of V for this block of keys.
    pub(crate) fn value_offset(&self, block: usize) -> usize {
        let keys = (block * self.block).min(self.padded_keys());
        self.key_offset(self.parts.len(), 0) + weight_bytes(HALF, self.padded_values(), keys)
    }

    /// The job that computes the scores of `m` rows for these blocks of keys.
    pub(crate) fn score_job(&self, device: usize, m: usize, blocks: &[usize]) -> JobPlan {
        let parts = self.parts.iter().enumerate();
        let parts = parts.map(|(index, part)| KTile {
            index,
            k: part.clone(),
            padded: padded_part(part),
        });
        let band = Band::new(HALF, 0..m, parts);
        let keys: Vec<_> = runs(blocks).flat_map(|run| self.key_tiles(run)).collect();
        let all = 0..self.keys;
        JobPlan::new(HALF, self.program, device, 0, band, all).with_tasks(&keys, |part, first| {
            self.key_offset(part.index, first / self.block)
                + weight_bytes(HALF, first % self.block, part.padded)
        })
    }

    /// Keys of each task in a run of blocks.
    fn key_tiles(&self, run: Range<usize>) -> impl Iterator<Item = Range<usize>> + use<> {
        let keys = run.start * self.block..(run.end * self.block).min(self.padded_keys());
        // As many whole blocks as fit, or parts of a block that does not fit.
        let most = self.n_tiles[0];
        let step = (most / self.block * self.block)
            .max(most.min(self.block))
            .max(1);
        pieces(keys, step)
    }

    /// The job that multiplies `m` rows of probabilities by these blocks of V.
    pub(crate) fn value_job(&self, device: usize, m: usize, blocks: &[usize]) -> JobPlan {
        let k_tiles = blocks.iter().map(|&block| self.key_block(block));
        let band = Band::new(HALF, 0..m, k_tiles);
        let all = 0..self.columns();
        let columns: Vec<_> = pieces(all.clone(), self.n_tiles[1]).collect();
        JobPlan::new(HALF, self.program, device, 0, band, all)
            .with_tasks(&columns, |block, first| {
                self.value_offset(block.index) + weight_bytes(HALF, first, block.padded)
            })
    }
}

/// Depth of a part with padding.
fn padded_part(part: &Range<usize>) -> usize {
    part.len().max(1).next_multiple_of(HALF.k_multiple())
}

/// Runs of consecutive blocks.
fn runs(blocks: &[usize]) -> impl Iterator<Item = Range<usize>> {
    blocks
        .chunk_by(|a, b| a + 1 == *b)
        .map(|run| run[0]..run[0] + run.len())
}

/// Some rows of some heads that share a KV head.
pub(crate) struct AttentionTile {
    /// Index of the call.
    pub(crate) call: usize,
    pub(crate) kv_head: usize,
    pub(crate) tiling: Arc<AttentionPlan>,
    /// Heads of the call.
    pub(crate) heads: Range<usize>,
    /// Rows of each of these heads.
    pub(crate) rows: Range<usize>,
    pub(crate) blocks: Vec<VisibleBlock>,
}

impl AttentionTile {
    /// Its call and KV head.
    pub(crate) const fn head(&self) -> [usize; 2] {
        [self.call, self.kv_head]
    }

    /// Number of rows of the tile. It has all heads of the first row, then those of the next.
    pub(crate) fn m(&self) -> usize {
        self.heads.len() * self.rows.len()
    }

    pub(crate) fn m_padded(&self) -> usize {
        self.m().next_multiple_of(ROW_MULTIPLE)
    }

    /// Head and row in the call for row `at` of the tile.
    pub(crate) fn head_and_row(&self, at: usize) -> (usize, usize) {
        let heads = self.heads.len();
        (self.heads.start + at % heads, self.rows.start + at / heads)
    }

    /// Amount of multiplication.
    pub(crate) fn work(&self) -> u64 {
        self.tiling.work(self.m(), self.blocks.len())
    }
}

/// Everything that the jobs of a tile depend on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct TileKey {
    pub(crate) tiling: Arc<AttentionPlan>,
    pub(crate) device: usize,
    /// Rows of the tile.
    pub(crate) m: usize,
    /// The blocks of keys that the tile sees.
    pub(crate) blocks: Vec<usize>,
}

/// Assigns tiles to `count` devices by their amount of multiplication. Devices get equal shares of
/// adjacent tiles, so that each has as few heads as possible.
pub(crate) fn devices_of(works: &[u64], count: usize) -> impl Iterator<Item = usize> {
    let total = u128::from(works.iter().sum::<u64>().max(1));
    works.iter().scan(0, move |before, work| {
        // By the middle of its work.
        let middle = u128::from(2 * *before + work) * count as u128 / (2 * total);
        *before += work;
        Some(usize::try_from(middle).unwrap_or(0).min(count - 1))
    })
}

/// The jobs of all tiles that see the same blocks of keys.
#[derive(Debug)]
pub(crate) struct AttentionSteps {
    /// Their number, from [`next_id`].
    id: u64,
    /// The jobs of the scores and of the values.
    pub(crate) jobs: [JobPlan; 2],
}

impl AttentionSteps {
    pub(crate) fn new(key: &TileKey) -> Self {
        let (tiling, m, blocks) = (&key.tiling, key.m, &key.blocks[..]);
        Self {
            id: next_id(),
            jobs: [
                tiling.score_job(key.device, m, blocks),
                tiling.value_job(key.device, m, blocks),
            ],
        }
    }

    /// The job of this index, to be submitted.
    pub(crate) fn plan_job(&self, step: usize) -> PlanJob<'_> {
        let (plan, job) = (self.id, 0);
        PlanJob {
            id: JobId { plan, step, job },
            plan: &self.jobs[step],
        }
    }

    /// Bytes that they take.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<Self>() + self.jobs.iter().map(JobPlan::heap_bytes).sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use test_support::assert_each_field_counts;

    use super::*;
    use crate::plan::TaskPlan;

    fn tiling(sizes: &AttentionShape, options: &PlanOptions) -> Result<AttentionPlan, PlanError> {
        AttentionPlan::new(sizes, options)
    }

    fn board() -> PlanOptions {
        PlanOptions::uncalibrated(600_000_000)
    }

    const LLAMA: AttentionShape = AttentionShape::LLAMA;

    proptest! {
        #![proptest_config(test_support::cases(64))]

        #[test]
        fn keys_of_tiles_differ_in_each_field(
            numbers in prop::array::uniform2(prop::array::uniform7(1..3_usize)),
        ) {
            let [one, other] = numbers.map(|[part, keys, block, value_dim, heads, rows, tile]| {
                let tiling = AttentionPlan {
                    parts: std::iter::once(0..part).collect(),
                    keys,
                    block,
                    value_dim,
                    heads,
                    rows,
                    n_tiles: [tile; 2],
                    program: board().profile.choices.program(HALF),
                };
                TileKey {
                    tiling: Arc::new(tiling),
                    device: part,
                    m: rows,
                    blocks: vec![block],
                }
            });
            assert_each_field_counts!(TileKey { tiling, device, m, blocks }, one, other);
            assert_each_field_counts!(
                AttentionPlan { parts, keys, block, value_dim, heads, rows, n_tiles, program },
                *one.tiling,
                *other.tiling
            );
        }
    }

    /// Llama-3.2-1B: tiles are as large as the envelope allows; with more than 8192 keys they have
    /// fewer rows.
    #[test]
    fn tiles_of_a_model() {
        let short = tiling(&LLAMA, &board()).unwrap();
        assert_eq!((short.heads, short.rows, short.block), (4, 64, 352));
        let keys = 8192;
        let long = tiling(&AttentionShape { keys, ..LLAMA }, &board()).unwrap();
        assert_eq!((long.heads, long.rows, long.block), (4, 64, 384));
        let keys = 16_384;
        let longer = tiling(&AttentionShape { keys, ..LLAMA }, &board()).unwrap();
        assert_eq!((longer.heads, longer.rows), (4, 32));
        let job = long.score_job(0, 256, &[0, 1, 2, 7, 8, 21]);
        assert_eq!(job.output_bytes, 256 * (5 * 384 + 128) * 4);
        // Tasks of 256 keys in each run of blocks.
        assert_eq!(job.tasks.len(), 5 + 3 + 1);
    }

    /// The scores of the first job are in the order of the features of the second job, with twice the
    /// bytes.
    fn check_layout(tiling: &AttentionPlan, blocks: &[usize]) {
        let m = tiling.heads * tiling.rows;
        let scores = tiling.score_job(0, m, blocks);
        let values = tiling.value_job(0, m, blocks);
        let per_part = scores.output_bytes / tiling.parts.len();
        assert_eq!(2 * values.band.activation_bytes, per_part);
        let mut at = 0;
        for (index, (tile, &block)) in values.band.k_tiles.iter().zip(blocks).enumerate() {
            let keys = tiling.key_block(block);
            assert_eq!(*tile, keys);
            let tile_tasks = values.tasks_of(index);
            assert!(!tile_tasks.is_empty() && tile_tasks.iter().all(|task| task.a as usize == at));
            let same = |task: &&TaskPlan| {
                let is_first = task.activation == 0;
                is_first && task.n.start <= keys.k.start && keys.k.start < task.n.end
            };
            let task = scores.tasks.iter().find(same).unwrap();
            let surface = values.band.padded * 2;
            let into = (keys.k.start - task.n.start) * 2 * surface;
            assert_eq!(task.c as usize + into, 2 * at);
            at += keys.padded * surface;
        }
        // No task reads beyond K and V or writes output of another task.
        for job in [&scores, &values] {
            let mut end = 0;
            for task in &job.tasks {
                let bytes = 2 * task.n_padded as usize * task.k_padded as usize;
                assert!(task.b as usize + bytes <= tiling.kv_bytes());
                assert_eq!(task.c as usize, end);
                end += (task.m_padded * task.n_padded) as usize * HALF.output_bytes();
            }
            assert_eq!(end, job.output_bytes);
        }
    }

    #[test]
    fn contexts_of_131072_keys_fit() {
        for head_dim in [64, 128] {
            for options in [board(), PlanOptions::default()] {
                let sizes = AttentionShape {
                    keys: 131_072,
                    head_dim,
                    value_dim: head_dim,
                    ..LLAMA
                };
                tiling(&sizes, &options).unwrap();
            }
        }
        let keys = 1 << 24;
        let refused = tiling(&AttentionShape { keys, ..LLAMA }, &board()).unwrap_err();
        assert!(
            matches!(refused, PlanError::TooManyKeys { .. }),
            "{refused}"
        );
    }

    proptest! {
        #![proptest_config(test_support::cases(64))]

        #[test]
        fn scores_are_features(
            group in 1..300_usize,
            rows in 1..700_usize,
            keys in 1..5000_usize,
            head_dim in 0..700_usize,
            value_dim in 1..700_usize,
            seen in prop::collection::vec(any::<bool>(), 14),
            on_board in any::<bool>(),
        ) {
            let sizes = AttentionShape {
                heads: group,
                kv_heads: 1,
                rows,
                keys,
                head_dim,
                value_dim,
                window: None,
            };
            let options = if on_board { board() } else { PlanOptions::default() };
            let tiling = tiling(&sizes, &options).unwrap();
            prop_assert!(tiling.heads * tiling.rows <= 1024 && tiling.blocks() <= seen.len());
            let blocks: Vec<_> = (0..tiling.blocks()).filter(|&block| seen[block]).collect();
            if !blocks.is_empty() {
                check_layout(&tiling, &blocks);
            }
            let elements: usize = tiling.parts.iter().map(Range::len).sum();
            prop_assert_eq!(elements, head_dim);
        }
    }
}
