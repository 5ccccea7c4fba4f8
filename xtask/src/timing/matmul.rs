// SPDX-License-Identifier: MIT OR Apache-2.0
//! A matmul as librocketnpu computes it: weights resident, columns divided over files. Each file
//! has a client thread that packs A, submits, waits and reads.

use std::iter;

use anyhow::Result;
use npu_matmul::profile::HostCores;
use rknpu_regcmd::TaskType;
use rknpu_regcmd::timing::{Machine, ScheduledJob, TaskWork, schedule, seconds};

use super::tiles::TimedTile;

/// Most tiles of a job.
const BATCH: usize = 64;
/// Number of times that a job's output buffer passes between CPU and NPU: PREP_BO and FINI_BO
/// before and after the job.
const SYNCS_PER_JOB: u64 = 4;

/// Cores that the library pins its clients to, one after the other.
const BIG_CORES: usize = 4;

/// Bytes per second that one A76 copies (E-time-lpddr).
const COPY_BYTES_PER_SECOND: u64 = 13_400_000_000;

/// What is not known of the library's clients.
#[derive(Clone, Copy, Debug)]
pub(super) struct LibraryClient {
    /// Per mille of the fitted times that packing, reading and cache maintenance take.
    pub(super) permille: u64,
    /// Whether two clients on one core always wait for each other. At best one computes while the
    /// other waits for the NPU.
    pub(super) waits_for_core: bool,
}

impl LibraryClient {
    /// As fitted.
    pub(super) const FITTED: Self = Self {
        permille: 1000,
        waits_for_core: true,
    };
    /// Both sides of [`Self::permille`], slow first. The same call of one client was measured at
    /// 75.3 GFLOP/s and, warm, at up to 87 (E-time-client): a factor of 1.155. It is taken in both
    /// directions, since it is not known which of the two states the fitted times belong to.
    pub(super) const PERMILLE: [u64; 2] = [1155, 866];

    /// A fitted time at this client's rate.
    pub(super) const fn at_its_rate(self, ps: u64) -> u64 {
        ps / 1000 * self.permille
    }
}

/// Picoseconds to pack an element of an operand on one A76: 32 ms for the 4096x3840 weights of a
/// matmul (E-time-client). The cost of cache maintenance is that of [`HostCores`].
pub(super) const PACK_PS: u64 = 2_035;
/// Picoseconds to read an element of a result, whatever its width, since it is a gather. 76 ms for
/// 320 tiles of 256x256 with NEON (E-time-client).
pub(super) const READ_PS: u64 = 3_624;

/// A matmul and its division into tiles and files.
#[derive(Clone, Copy, Debug)]
pub(super) struct TiledMatmul {
    pub(super) ty: TaskType,
    /// M, K, N.
    pub(super) size: (u32, u32, u32),
    /// Largest tile: M, K, N.
    pub(super) tile: (u32, u32, u32),
    pub(super) files: u32,
    /// Whether the DPU adds the tiles of K: one job for each tile of K, which reads the results of
    /// the job before it; rows of A stay in CBUF from tile to tile. Otherwise the CPU reads every
    /// tile and adds it.
    pub(super) sums_on_npu: bool,
    /// Whether output buffers hold only the tiles of a job, not a batch.
    pub(super) right_sized: bool,
    /// Whether the call packs B too.
    pub(super) packs_weights: bool,
}

/// Modelled times of one matmul, seconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct MatmulTimes {
    /// From the call to the result, seconds.
    pub(super) wall: f64,
    /// Time of cache maintenance, summed over files, seconds.
    pub(super) sync: f64,
}

/// A task of a job, and the number of its result elements that the CPU reads.
type ReadTask = (TaskWork, u64);

impl TiledMatmul {
    /// An FP16 matmul with sums on the NPU and five files.
    pub(super) fn fp16(size: (u32, u32, u32)) -> Self {
        Self {
            ty: TaskType::Fp16ToFp16,
            size,
            tile: (256, 384, 256),
            files: 5,
            sums_on_npu: true,
            right_sized: false,
            packs_weights: false,
        }
    }

    /// Operations, two for each multiplication.
    pub(super) fn operations(&self) -> f64 {
        let (m, k, n) = self.size;
        2.0 * f64::from(m) * f64::from(k) * f64::from(n)
    }

    /// The matmul in int8 or int4, with tiles as deep as the library's: both operands of a tile are
    /// in CBUF, with one spare bank.
    pub(super) fn as_integers(self, ty: TaskType, k: u32) -> Self {
        Self {
            ty,
            tile: (self.tile.0, k, self.tile.2),
            sums_on_npu: false,
            ..self
        }
    }

    /// Operations per second, in units of 10^9.
    pub(super) fn gops(&self, machine: &Machine, client: LibraryClient) -> Result<f64> {
        Ok(self.operations() / self.run(machine, client)?.wall / 1e9)
    }

    /// Lengths of the tiles along one dimension.
    fn cut(length: u32, tile: u32) -> impl Iterator<Item = u32> + Clone {
        let whole = iter::repeat_n(tile, (length / tile) as usize);
        whole.chain(Some(length % tile).filter(|&rest| rest > 0))
    }

    /// Widths of the tiles of each file: an equal share of the columns, rounded up to a group of
    /// kernels, whatever the width of a tile (E-time-resident).
    fn columns(&self) -> Vec<Vec<u32>> {
        let share = self.size.2.div_ceil(self.files);
        let share = share.next_multiple_of(self.ty.n_multiple());
        Self::cut(self.size.2, share)
            .map(|columns| Self::cut(columns, self.tile.2).collect())
            .collect()
    }

    pub(super) fn run(&self, machine: &Machine, client: LibraryClient) -> Result<MatmulTimes> {
        let (m, k, n) = self.size;
        let files = self.files as usize;
        let rows = if self.packs_weights { m + n } else { m };
        let pack = client.at_its_rate(PACK_PS * u64::from(rows) * u64::from(k));
        let mut jobs: Vec<ScheduledJob> = Vec::new();
        // For each file: its last job, and the client's time after it.
        let mut tails = Vec::new();
        let mut sync_total = 0;
        for (file, columns) in self.columns().iter().enumerate() {
            // Number of clients on the core of this one.
            let core = file % BIG_CORES;
            let clients = (0..files).filter(|other| other % BIG_CORES == core).count() as u64;
            let shared = if client.waits_for_core { clients } else { 1 };
            // FP16: one thread packs A for all, each client copies it (E-time-resident).
            let mut host_ps = if self.sums_on_npu && files > 1 {
                let bytes = u64::from(m) * u64::from(k) * 2;
                pack + shared * bytes * 1_000_000 / (COPY_BYTES_PER_SECOND / 1_000_000)
            } else {
                shared * pack
            };
            let mut after = None;
            for batch in self.jobs(columns)? {
                let live = if self.right_sized { batch.len() } else { BATCH };
                let bytes = live as u64 * self.out_bytes();
                let sync = SYNCS_PER_JOB * client.at_its_rate(HostCores::RK3588.sync_ps(bytes));
                sync_total += sync;
                jobs.push(ScheduledJob {
                    file: file as u32,
                    tasks: batch.iter().map(|&(work, _)| work).collect(),
                    after: after.into_iter().collect(),
                    host_ps: host_ps + sync / 2,
                    ..ScheduledJob::default()
                });
                after = Some(jobs.len() - 1);
                let read: u64 = batch.iter().map(|&(_, elements)| elements).sum();
                host_ps = sync / 2 + shared * client.at_its_rate(READ_PS * read);
            }
            if self.sums_on_npu {
                let columns: u32 = columns.iter().sum();
                host_ps += shared * client.at_its_rate(READ_PS * u64::from(m) * u64::from(columns));
            }
            tails.push((after, host_ps));
        }
        let timeline = schedule(&jobs, machine)?;
        let ends = tails.iter().map(|&(last, host_ps)| {
            let end = last.map_or(0, |job| timeline.jobs[job].end_ps);
            end + machine.driver.wake_ps + host_ps
        });
        let wall = seconds(ends.max().unwrap_or_default());
        Ok(MatmulTimes {
            wall,
            sync: seconds(sync_total),
        })
    }

    /// Bytes of a tile's result in a buffer. The library keeps eight for each element of an integer
    /// matmul.
    fn out_bytes(&self) -> u64 {
        let (m, _, n) = self.tile;
        let each = match self.ty {
            TaskType::Int8ToInt32 | TaskType::Int4ToInt16 => 8,
            ty => ty.out_bytes(),
        };
        u64::from(m) * u64::from(n) * u64::from(each)
    }

    /// The jobs of a file: one for each tile of K, or for each batch of tiles.
    fn jobs(&self, columns: &[u32]) -> Result<Vec<Vec<ReadTask>>> {
        let (m, k, _) = self.size;
        let depths = || Self::cut(k, self.tile.1);
        let rows = || Self::cut(m, self.tile.0);
        let tile = |rows, depth, width| TimedTile::new(self.ty, rows, depth, width);
        if self.sums_on_npu {
            let job = |(step, depth)| {
                let all =
                    rows().flat_map(|rows| columns.iter().enumerate().map(move |at| (rows, at)));
                let task = |(rows, (position, &width))| {
                    let (adds, reuses) = (step > 0, position > 0);
                    let tile = TimedTile {
                        adds,
                        reuses,
                        ..tile(rows, depth, width)
                    };
                    Ok((tile.work()?, 0))
                };
                all.map(task).collect()
            };
            return depths().enumerate().map(job).collect();
        }
        let mut tiles = Vec::new();
        for &width in columns {
            for depth in depths() {
                for rows in rows() {
                    let elements = u64::from(rows) * u64::from(width);
                    tiles.push((tile(rows, depth, width).work()?, elements));
                }
            }
        }
        Ok(tiles.chunks(BATCH).map(<[_]>::to_vec).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_of_a_matmul_is_computed() {
        let fp16 = TiledMatmul::fp16((512, 3840, 4096));
        for matmul in [fp16, fp16.as_integers(TaskType::Int8ToInt32, 384)] {
            let columns = matmul.columns();
            let counts: Vec<usize> = columns.iter().map(Vec::len).collect();
            assert_eq!(counts, [4, 4, 4, 4, 3]);
            let jobs = columns
                .iter()
                .flat_map(|columns| matmul.jobs(columns).unwrap());
            let macs: Vec<u64> = jobs.flatten().map(|(work, _)| work.macs).collect();
            assert_eq!(macs.iter().sum::<u64>() * 2, matmul.operations() as u64);
            assert_eq!(macs.len(), 380);
        }
    }
}
