// SPDX-License-Identifier: MIT OR Apache-2.0
//! How attention is cut: tiles of rows, blocks of keys, and the two jobs of a tile.
//!
//! A tile has some rows of the heads that share a KV head. Its first job computes the
//! scores of all keys that the tile sees, its second one multiplies what the softmax made
//! of them by V:
//!
//! ```text
//!           blocks of keys                       value channels, and a column of ones
//!        +-------+-------+-------+               +-------+
//!   rows |       S, then P       |   P V:  block | block | a partial result each,
//!        +-------+-------+-------+               +-------+ which the CPU adds up
//!   runs of blocks: a task each
//! ```
//!
//! S is in surfaces of eight keys, whatever tasks wrote it, and so are the features of the
//! second job: where one tile of S ends and the next K tile of P begins does not matter.

use std::ops::Range;
use std::sync::Arc;

use rknpu_regcmd::{MatmulType, ProgramOptions};

use crate::dtype::{Dtype, ROW_MULTIPLE};
use crate::layout;
use crate::plan::{
    ActivationTile, Band, JobLimits, JobPlan, KTile, PlanError, PlanOptions, Step, TaskPlan,
    task_time_bound_ns,
};
use crate::prepared::next_id;

/// Operands and scores are binary16.
pub(super) const HALF: Dtype = Dtype::Fp16;

/// Bytes of scores that a tile should not exceed: the CPU meets them three times, in what
/// the last-level cache of an RK3588 (3 MiB) holds.
const TILE_BYTES: usize = 2 << 20;

/// Keys of a block at most: the depth of the deepest published FP16 tile that has 384 rows
/// (E-streamed-tiles).
const BLOCK_KEYS: usize = 384;

/// Sizes that all tiles of a call have in common.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Tiling {
    /// Parts of the vectors of Q and K, whose scores are added up.
    pub(super) parts: Vec<Range<usize>>,
    /// Keys.
    pub(super) keys: usize,
    /// Keys of a block.
    pub(super) block: usize,
    /// Elements of V's vectors.
    pub(super) value_dim: usize,
    /// Query heads of a tile.
    pub(super) heads: usize,
    /// Rows of each of these.
    pub(super) rows: usize,
    /// Most keys of a task, and most value channels of one.
    n_tiles: [usize; 2],
    program: ProgramOptions,
}

/// What a tiling is for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    /// Query heads that share a KV head.
    pub(super) group: usize,
    /// Rows of each head.
    pub(super) rows: usize,
    pub(super) keys: usize,
    pub(super) head_dim: usize,
    pub(super) value_dim: usize,
}

/// Cuts `total` into as few parts as `max` does, but even ones.
fn even(total: usize, max: usize, unit: usize) -> usize {
    let max = max.max(1);
    let even = total.div_ceil(total.div_ceil(max).max(1));
    even.next_multiple_of(unit).clamp(1, max)
}

/// `tile` if some rows of it are legal, and known to have run where that counts.
fn most_rows(k: usize, options: &PlanOptions) -> Option<usize> {
    let rows = options.rows_max(HALF, k);
    (rows >= ROW_MULTIPLE).then_some(rows)
}

impl Tiling {
    /// Chooses tiles; each has at least one row and head.
    pub(super) fn new(
        sizes: Sizes,
        options: &PlanOptions,
        program: ProgramOptions,
    ) -> Result<Self, PlanError> {
        // Before anything is made for sizes that make no sense.
        let longest = sizes.head_dim.max(sizes.value_dim).max(sizes.keys);
        if longest > options.limits.buffer_bytes / (2 * ROW_MULTIPLE) {
            return Err(PlanError::JobLimits {
                m: ROW_MULTIPLE,
                k: sizes.head_dim,
                n: sizes.keys.max(sizes.value_dim),
                limits: options.limits,
            });
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
        // No tile is deeper than CBUF.
        let head_dim = sizes.head_dim.max(1);
        let (part, rows_of_part) = deepest(head_dim.min(1 << 14))?;
        let part = even(head_dim, part, unit);
        let (block, rows_of_block) = deepest(sizes.keys.min(BLOCK_KEYS))?;
        let block = even(sizes.keys, block, unit);
        let parts: Vec<_> = (0..head_dim)
            .step_by(part)
            .map(|start| start..(start + part).min(sizes.head_dim))
            .collect();

        let row_bytes = parts.len() * 2 * sizes.keys.next_multiple_of(unit);
        let m = (TILE_BYTES / row_bytes.max(1)).max(ROW_MULTIPLE);
        let m = m.min(rows_of_part).min(rows_of_block) / ROW_MULTIPLE * ROW_MULTIPLE;
        let heads = even(sizes.group, m, 1);
        let rows = even(sizes.rows, m / heads, 1);
        let m = heads * rows;
        let tiling = Self {
            n_tiles: [part, block].map(|k| options.n_max(HALF, k, m)),
            parts,
            keys: sizes.keys,
            block,
            value_dim: sizes.value_dim,
            heads,
            rows,
            program,
        };
        tiling.check(&options.limits)?;
        Ok(tiling)
    }

    /// Whether the jobs of the largest tile stay within the bounds of one.
    fn check(&self, limits: &JobLimits) -> Result<(), PlanError> {
        let blocks: Vec<_> = (0..self.blocks()).collect();
        let m = self.heads * self.rows;
        let fits = |job: &JobPlan| {
            let time = |task: &TaskPlan| {
                let [m, k, n] = [task.m_padded, task.k_padded, task.n_padded];
                task_time_bound_ns(HALF, m as usize, k as usize, n as usize)
            };
            let time: u64 = job.tasks.iter().map(time).sum();
            u128::from(time) <= limits.time.as_nanos()
                && job.tasks.len() <= limits.tasks
                && job.output_bytes.max(job.band.activation_bytes) <= limits.buffer_bytes
        };
        // K and V each.
        let fit = self.kv_bytes() / 2 <= limits.buffer_bytes
            && fits(&self.score_job(0, m, &blocks))
            && fits(&self.value_job(0, m, &blocks));
        match fit {
            true => Ok(()),
            false => Err(PlanError::JobLimits {
                m: m.next_multiple_of(ROW_MULTIPLE),
                k: self.parts.first().map_or(0, Range::len),
                n: self.keys,
                limits: *limits,
            }),
        }
    }

    /// Blocks of keys.
    pub(super) const fn blocks(&self) -> usize {
        self.keys.div_ceil(self.block)
    }

    /// A block of keys, as a K tile of the second product.
    pub(super) fn key_block(&self, index: usize) -> KTile {
        let start = index * self.block;
        let k = start..(start + self.block).min(self.keys);
        KTile {
            index,
            padded: k.len().next_multiple_of(HALF.k_tile_multiple()),
            k,
        }
    }

    /// Keys in memory.
    fn padded_keys(&self) -> usize {
        self.keys.next_multiple_of(HALF.k_tile_multiple())
    }

    /// Value channels, and one of ones.
    pub(super) const fn columns(&self) -> usize {
        self.value_dim + 1
    }

    /// The same in memory.
    fn padded_values(&self) -> usize {
        self.columns().next_multiple_of(HALF.kernel_group())
    }

    /// Bytes of K and V of one head.
    pub(super) fn kv_bytes(&self) -> usize {
        self.value_offset(self.blocks())
    }

    /// Where K of this part and block of keys is in the memory of a head: a tile of
    /// weights.
    pub(super) fn key_offset(&self, part: usize, block: usize) -> usize {
        let before: usize = self.parts[..part].iter().map(padded_part).sum();
        let depth = self.parts.get(part).map_or(0, padded_part);
        let keys = (block * self.block).min(self.padded_keys());
        2 * (before * self.padded_keys() + keys * depth)
    }

    /// Where V of this block of keys is.
    pub(super) fn value_offset(&self, block: usize) -> usize {
        let keys = (block * self.block).min(self.padded_keys());
        self.key_offset(self.parts.len(), 0) + 2 * keys * self.padded_values()
    }

    /// The job that computes the scores of `m` rows and these blocks of keys.
    pub(super) fn score_job(&self, device: usize, m: usize, blocks: &[usize]) -> JobPlan {
        let mut job = JobBuilder::new(MatmulType::Fp16ToFp16, m);
        for (index, part) in self.parts.iter().enumerate() {
            let activation = job.activation(KTile {
                index,
                k: part.clone(),
                padded: padded_part(part),
            });
            for keys in runs(blocks).flat_map(|run| self.key_tiles(run)) {
                let from_block = self.key_offset(index, keys.start / self.block);
                let in_block = keys.start % self.block * padded_part(part) * 2;
                job.task(activation, keys, from_block + in_block);
            }
        }
        job.finish(device, self.program, self.keys)
    }

    /// Keys of the tasks of a run of blocks.
    fn key_tiles(&self, run: Range<usize>) -> impl Iterator<Item = Range<usize>> + use<> {
        let keys = run.start * self.block..(run.end * self.block).min(self.padded_keys());
        // As many blocks as fit; of one that does not, a part.
        let most = self.n_tiles[0];
        let step = (most / self.block * self.block)
            .max(most.min(self.block))
            .max(1);
        let tiles = keys.clone().step_by(step);
        tiles.map(move |start| start..(start + step).min(keys.end))
    }

    /// The job that multiplies `m` rows of probabilities by these blocks of V.
    pub(super) fn value_job(&self, device: usize, m: usize, blocks: &[usize]) -> JobPlan {
        let mut job = JobBuilder::new(MatmulType::Fp16ToFp32, m);
        for &block in blocks {
            let k_tile = self.key_block(block);
            let depth = k_tile.padded;
            let activation = job.activation(k_tile);
            let columns = self.columns();
            for start in (0..columns).step_by(self.n_tiles[1].max(1)) {
                let n = start..(start + self.n_tiles[1]).min(columns);
                let b = self.value_offset(block) + start * depth * 2;
                job.task(activation, n, b);
            }
        }
        job.finish(device, self.program, self.columns())
    }
}

/// Depth of a part in memory.
fn padded_part(part: &Range<usize>) -> usize {
    part.len().max(1).next_multiple_of(HALF.k_multiple())
}

/// Runs of consecutive blocks.
fn runs(blocks: &[usize]) -> impl Iterator<Item = Range<usize>> {
    blocks
        .chunk_by(|a, b| a + 1 == *b)
        .map(|run| run[0]..run[0] + run.len())
}

/// A job that is being put together.
struct JobBuilder {
    ty: MatmulType,
    rows: usize,
    activations: Vec<ActivationTile>,
    activation_bytes: usize,
    tasks: Vec<TaskPlan>,
    output_bytes: usize,
}

impl JobBuilder {
    const fn new(ty: MatmulType, rows: usize) -> Self {
        Self {
            ty,
            rows,
            activations: Vec::new(),
            activation_bytes: 0,
            tasks: Vec::new(),
            output_bytes: 0,
        }
    }

    /// A tile of A behind the others.
    fn activation(&mut self, k_tile: KTile) -> usize {
        let padded = self.rows.next_multiple_of(ROW_MULTIPLE);
        let bytes = layout::activation_bytes(HALF, padded, k_tile.padded);
        self.activations.push(ActivationTile {
            rows: 0..self.rows,
            padded,
            k_tile,
            offset: self.activation_bytes,
        });
        self.activation_bytes += bytes;
        self.activations.len() - 1
    }

    /// A task that writes behind the others.
    fn task(&mut self, activation: usize, n: Range<usize>, b: usize) {
        let a = &self.activations[activation];
        let n_padded = n.len().next_multiple_of(HALF.kernel_group());
        let size = |value: usize| u32::try_from(value).unwrap_or(u32::MAX);
        self.tasks.push(TaskPlan {
            activation,
            n,
            m_padded: size(a.padded),
            k_padded: size(a.k_tile.padded),
            n_padded: size(n_padded),
            a: size(a.offset),
            b: size(b),
            c: size(self.output_bytes),
        });
        self.output_bytes += layout::output_bytes(self.ty, a.padded, n_padded);
    }

    fn finish(self, device: usize, program: ProgramOptions, n: usize) -> JobPlan {
        let k_tiles = self.activations.iter().map(|a| a.k_tile.clone()).collect();
        JobPlan {
            device,
            block: 0,
            ty: self.ty,
            program,
            band: Arc::new(Band {
                rows: 0..self.rows,
                k_tiles,
                activations: self.activations,
                activation_bytes: self.activation_bytes,
            }),
            n: 0..n,
            tasks: self.tasks,
            output_bytes: self.output_bytes,
        }
    }
}

/// All that the jobs of a tile depend on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct TileKey {
    pub(super) tiling: Arc<Tiling>,
    pub(super) device: usize,
    /// Rows of the tile.
    pub(super) m: usize,
    /// The blocks of keys that it sees.
    pub(super) blocks: Vec<usize>,
}

impl TileKey {
    /// How much there is to multiply.
    pub(super) fn work(&self) -> u64 {
        (self.m * self.blocks.len()) as u64 * self.tiling.block as u64
    }
}

/// Which of `count` devices computes a tile of so much work, with so much before it of `total`:
/// each has as much to multiply, and tiles of as few heads as that allows.
pub(super) fn device_of(before: u64, work: u64, total: u64, count: usize) -> usize {
    // By the middle of its work.
    let middle = u128::from(2 * before + work) * count as u128 / u128::from(2 * total.max(1));
    usize::try_from(middle).unwrap_or(0).min(count - 1)
}

/// The jobs of tiles that see the same blocks of keys.
#[derive(Debug)]
pub(super) struct TileSteps {
    /// For their programs.
    pub(super) id: u64,
    /// The scores, and what they are for: a job each.
    pub(super) steps: [Step; 2],
}

impl TileSteps {
    pub(super) fn new(key: &TileKey) -> Self {
        let step = |job| Step { jobs: vec![job] };
        let (tiling, m, blocks) = (&key.tiling, key.m, &key.blocks[..]);
        Self {
            id: next_id(),
            steps: [
                step(tiling.score_job(key.device, m, blocks)),
                step(tiling.value_job(key.device, m, blocks)),
            ],
        }
    }

    pub(super) fn scores(&self) -> &JobPlan {
        &self.steps[0].jobs[0]
    }

    pub(super) fn values(&self) -> &JobPlan {
        &self.steps[1].jobs[0]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tiling(sizes: Sizes, options: &PlanOptions) -> Result<Tiling, PlanError> {
        Tiling::new(sizes, options, options.profile.choices.program(HALF))
    }

    fn board() -> PlanOptions {
        PlanOptions::uncalibrated(600_000_000)
    }

    const LLAMA: Sizes = Sizes {
        group: 4,
        rows: 512,
        keys: 2048,
        head_dim: 64,
        value_dim: 64,
    };

    /// Llama-3.2-1B: tiles are as large as the envelope lets them be, and scores of more
    /// keys are of fewer rows.
    #[test]
    fn tiles_of_a_model() {
        let short = tiling(LLAMA, &board()).unwrap();
        assert_eq!((short.heads, short.rows, short.block), (4, 86, 352));
        let keys = 8192;
        let long = tiling(Sizes { keys, ..LLAMA }, &board()).unwrap();
        assert_eq!((long.heads, long.rows, long.block), (4, 32, 384));
        let job = long.score_job(0, 128, &[0, 1, 2, 7, 8, 21]);
        assert_eq!(job.output_bytes, 128 * (5 * 384 + 128) * 2);
        // A task for each run of blocks.
        assert_eq!(job.tasks.len(), 3);
    }

    /// The scores that the first job writes are the features that the second one reads.
    fn check_layout(tiling: &Tiling, blocks: &[usize]) {
        let m = tiling.heads * tiling.rows;
        let (scores, values) = (
            tiling.score_job(0, m, blocks),
            tiling.value_job(0, m, blocks),
        );
        let per_part = scores.output_bytes / tiling.parts.len();
        assert_eq!(values.band.activation_bytes, per_part);
        let mut at = 0;
        for (tile, &block) in values.band.activations.iter().zip(blocks) {
            let keys = tiling.key_block(block);
            assert_eq!((&tile.k_tile, tile.offset), (&keys, at));
            let same = |task: &&TaskPlan| {
                let is_first = task.activation == 0;
                is_first && task.n.start <= keys.k.start && keys.k.start < task.n.end
            };
            let task = scores.tasks.iter().find(same).unwrap();
            let surface = tile.padded * 2;
            let into = (keys.k.start - task.n.start) * surface;
            assert_eq!(task.c as usize + into, at);
            at += keys.padded * surface;
        }
        // No task reads beyond K and V, nor writes what another does.
        for job in [&scores, &values] {
            let mut end = 0;
            for task in &job.tasks {
                let bytes = 2 * task.n_padded as usize * task.k_padded as usize;
                assert!(task.b as usize + bytes <= tiling.kv_bytes());
                assert_eq!(task.c as usize, end);
                end += (task.m_padded * task.n_padded * job.ty.out_bytes()) as usize;
            }
            assert_eq!(end, job.output_bytes);
        }
    }

    #[test]
    fn contexts_of_131072_keys_fit() {
        for head_dim in [64, 128] {
            for options in [board(), PlanOptions::default()] {
                let sizes = Sizes {
                    keys: 131_072,
                    head_dim,
                    value_dim: head_dim,
                    ..LLAMA
                };
                tiling(sizes, &options).unwrap();
            }
        }
        let keys = 1 << 24;
        let refused = tiling(Sizes { keys, ..LLAMA }, &board()).unwrap_err();
        assert!(matches!(refused, PlanError::JobLimits { .. }), "{refused}");
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
            let sizes = Sizes { group, rows, keys, head_dim, value_dim };
            let options = if on_board { board() } else { PlanOptions::default() };
            let tiling = tiling(sizes, &options).unwrap();
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
