// SPDX-License-Identifier: MIT OR Apache-2.0
//! A product as librocketnpu computes it: weights resident, columns spread
//! over files, each of which has a client thread of its own that lays out A,
//! submits, waits and reads.

use std::iter;

use anyhow::Result;
use npu_matmul::plan::HostCores;
use rknpu_regcmd::MatmulType;
use rknpu_regcmd::timing::{Machine, ScheduledJob, TaskWork, schedule, seconds};

use super::host::HostCosts;
use super::tiles::TimedTile;

/// Tiles that one job has room for.
const BATCH: usize = 64;
/// How often a job's output buffer is handed between CPU and NPU: PREP_BO and
/// FINI_BO before it and after it.
const SYNCS_PER_JOB: u64 = 4;

/// Cores that the library pins its clients to, one after the other.
const BIG_CORES: usize = 4;

/// Where the sums over the tiles of K are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SummedOn {
    /// By the DPU: one job for each tile of K, reading what the one before
    /// wrote; rows of A stay in CBUF from tile to tile.
    OnNpu,
    /// By the CPU: every tile is read.
    OnHost,
}

/// A product and how it is cut.
#[derive(Clone, Copy, Debug)]
pub(super) struct CutProduct {
    pub(super) ty: MatmulType,
    /// M, K, N.
    pub(super) size: (u32, u32, u32),
    /// Largest tile, likewise.
    pub(super) tile: (u32, u32, u32),
    pub(super) files: u32,
    pub(super) sums: SummedOn,
    /// Whether output buffers hold only the tiles of a job, not a batch.
    pub(super) right_sized: bool,
    /// Whether the call lays out B too.
    pub(super) packs_weights: bool,
}

/// Modelled times of one product, seconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProductTimes {
    /// From the call to the result, seconds.
    pub(super) wall: f64,
    /// Sum over files of the time of cache maintenance, seconds.
    pub(super) sync: f64,
}

impl CutProduct {
    /// Operations, two for each multiplication.
    pub(super) fn operations(&self) -> f64 {
        let (m, k, n) = self.size;
        2.0 * f64::from(m) * f64::from(k) * f64::from(n)
    }

    /// The product with its int8 or int4 tiles as deep as the library has them: both
    /// operands of a tile are in CBUF, and one bank is spare.
    pub(super) fn as_integers(self, ty: MatmulType, k: u32) -> Self {
        Self {
            ty,
            tile: (self.tile.0, k, self.tile.2),
            sums: SummedOn::OnHost,
            ..self
        }
    }

    /// Operations per second, in units of 10^9.
    pub(super) fn gops(&self, machine: &Machine) -> Result<f64> {
        Ok(self.operations() / self.run(machine)?.wall / 1e9)
    }

    /// Lengths of the tiles along one side.
    fn cut(length: u32, tile: u32) -> impl Iterator<Item = u32> + Clone {
        let whole = iter::repeat_n(tile, (length / tile) as usize);
        whole.chain(Some(length % tile).filter(|&rest| rest > 0))
    }

    /// Widths of the tiles of each file: whole tiles, dealt in runs.
    fn columns(&self) -> Vec<Vec<u32>> {
        let mut tiles = Self::cut(self.size.2, self.tile.2);
        let count = tiles.clone().count();
        let files = self.files as usize;
        (0..files)
            .map(|file| {
                let share = count / files + usize::from(file < count % files);
                tiles.by_ref().take(share).collect()
            })
            .collect()
    }

    pub(super) fn run(&self, machine: &Machine) -> Result<ProductTimes> {
        let host = HostCosts::LIBROCKETNPU;
        let (m, k, n) = self.size;
        let rows = if self.packs_weights { m + n } else { m };
        let pack = host.pack_ps(u64::from(rows) * u64::from(k));
        let mut jobs: Vec<ScheduledJob> = Vec::new();
        // For each file: its last job, and what its client does after it.
        let mut tails = Vec::new();
        let mut sync_total = 0;
        for (file, columns) in self.columns().iter().enumerate() {
            let batches = match self.sums {
                SummedOn::OnNpu => self.by_depth(columns)?,
                SummedOn::OnHost => self.by_batch(columns)?,
            };
            let columns: u32 = columns.iter().sum();
            let shared = share(file, self.files as usize);
            let mut host_ps = shared * pack;
            let mut after = None;
            for batch in batches {
                let live = if self.right_sized {
                    batch.tasks.len()
                } else {
                    BATCH
                };
                let sync =
                    SYNCS_PER_JOB * HostCores::RK3588.sync_ps(live as u64 * self.out_bytes());
                sync_total += sync;
                jobs.push(ScheduledJob {
                    file: file as u32,
                    tasks: batch.tasks,
                    after: after.into_iter().collect(),
                    host_ps: host_ps + sync / 2,
                    ..ScheduledJob::default()
                });
                after = Some(jobs.len() - 1);
                host_ps = sync / 2 + shared * host.read_ps(batch.read);
            }
            if self.sums == SummedOn::OnNpu {
                host_ps += shared * host.read_ps(u64::from(m) * u64::from(columns));
            }
            tails.push((after, host_ps));
        }
        let timeline = schedule(&jobs, machine)?;
        let ends = tails.iter().map(|&(last, host_ps)| {
            let end = last.map_or(0, |job| timeline.jobs[job].end_ps);
            end + machine.driver.wake_ps + host_ps
        });
        Ok(ProductTimes {
            wall: seconds(ends.max().unwrap_or_default()),
            sync: seconds(sync_total),
        })
    }

    /// Bytes that a buffer has for a tile's result: the library keeps eight for each
    /// element of an integer product.
    fn out_bytes(&self) -> u64 {
        let (m, _, n) = self.tile;
        let each = match self.ty {
            MatmulType::Int8ToInt32 | MatmulType::Int4ToInt16 => 8,
            ty => ty.out_bytes(),
        };
        u64::from(m) * u64::from(n) * u64::from(each)
    }

    /// One job for each tile of K.
    fn by_depth(&self, columns: &[u32]) -> Result<Vec<Batch>> {
        let (m, k, _) = self.size;
        let mut batches = Vec::new();
        for (step, depth) in Self::cut(k, self.tile.1).enumerate() {
            let mut tasks = Vec::new();
            for rows in Self::cut(m, self.tile.0) {
                for (position, &width) in columns.iter().enumerate() {
                    let tile = TimedTile {
                        adds: step > 0,
                        reuses: position > 0,
                        ..TimedTile::new(self.ty, rows, depth, width)
                    };
                    tasks.push(tile.work()?);
                }
            }
            batches.push(Batch { tasks, read: 0 });
        }
        Ok(batches)
    }

    /// Jobs of as many tiles as they have room for.
    fn by_batch(&self, columns: &[u32]) -> Result<Vec<Batch>> {
        let (m, k, _) = self.size;
        let mut tiles = Vec::new();
        for &width in columns {
            for depth in Self::cut(k, self.tile.1) {
                for rows in Self::cut(m, self.tile.0) {
                    let elements = u64::from(rows) * u64::from(width);
                    tiles.push((
                        TimedTile::new(self.ty, rows, depth, width).work()?,
                        elements,
                    ));
                }
            }
        }
        Ok(tiles
            .chunks(BATCH)
            .map(|tiles| Batch {
                tasks: tiles.iter().map(|&(work, _)| work).collect(),
                read: tiles.iter().map(|&(_, elements)| elements).sum(),
            })
            .collect())
    }
}

/// How many clients share the core of client `file` of `files`.
fn share(file: usize, files: usize) -> u64 {
    (0..files)
        .filter(|other| other % BIG_CORES == file % BIG_CORES)
        .count() as u64
}

/// The tasks of a job, and how many elements of their results are read.
struct Batch {
    tasks: Vec<TaskWork>,
    read: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_of_a_product_is_computed() {
        for (sums, ty) in [
            (SummedOn::OnNpu, MatmulType::Fp16ToFp16),
            (SummedOn::OnHost, MatmulType::Int8ToInt32),
        ] {
            let product = CutProduct {
                ty,
                size: (512, 3840, 4096),
                tile: (256, 384, 256),
                files: 5,
                sums,
                right_sized: false,
                packs_weights: false,
            };
            let mut macs = 0;
            let mut tiles = 0;
            let columns = product.columns();
            let counts: Vec<usize> = columns.iter().map(Vec::len).collect();
            assert_eq!(counts, [4, 3, 3, 3, 3]);
            for columns in columns {
                let batches = match sums {
                    SummedOn::OnNpu => product.by_depth(&columns),
                    SummedOn::OnHost => product.by_batch(&columns),
                };
                for task in batches.unwrap().iter().flat_map(|batch| &batch.tasks) {
                    macs += task.macs;
                    tiles += 1;
                }
            }
            assert_eq!(macs * 2, product.operations() as u64);
            assert_eq!(tiles, 320);
        }
    }
}
