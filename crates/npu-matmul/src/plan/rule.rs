// SPDX-License-Identifier: MIT OR Apache-2.0
//! Chooses the depth of K tiles and the number of parts of a matmul.
//!
//! *K.* Deeper tiles write fewer partial sums. But fewer rows of A then fit into CBUF, and each
//! such group of rows fetches all of B again.
//!
//! *Parts.* A part is one job for each device. The CPU packs one part and unpacks another while the
//! NPU computes a third:
//!
//! ```text
//!   CPU   pack 0 | pack 1 | pack 2 |        unpack 0 | unpack 1 | unpack 2
//!   NPU          | part 0     | part 1     | part 2     |
//! ```
//!
//! Each part of M fetches B again. Each part of N fetches A again. Parts of K add to sums that have
//! left the caches. Each part costs a job.
//!
//! The rule counts the bytes, multiplications, kicks and jobs of each candidate without a plan. It
//! divides them by the rates of the board's profile. It takes the depth with the least time, and
//! more parts only if they save 3.5 % ([`TIME_SHARE`]).

use rknpu_regcmd::{ChipProfile, MatmulTask, ProgramOptions};

use super::options::{PACKED_BYTES_MIN, PlanOptions};
use super::tiles::{even_k_tile, even_tile, k_tile_max, tile_task, to_u32};
use crate::numbers::dtype::{Dtype, ROW_MULTIPLE};
use crate::numbers::layout;
use crate::profile::{KernelCost, UnpackTo};

/// Up to this, every number of K tiles is tried. Larger numbers are tried in growing steps, since
/// one tile more changes little.
const ALL_UP_TO: usize = 8;

/// Batch sizes that the depth is chosen for: a divisor of [`PlanOptions::batch_rows`], and the
/// weight of that size. The last batch of a prompt is smaller.
const BATCHES: [(usize, f64); 3] = [(1, 2.0), (4, 1.0), (16, 1.0)];

/// Numbers of parts to try for each of M, N and K.
const PARTS: [usize; 5] = [1, 2, 3, 4, 6];

/// A division replaces the best one so far if it takes less than this share of its time. Divisions
/// are tried from few parts to many. The other matmuls of a list also overlap with the CPU's work,
/// so that parts gain less there, and each job costs the NPU time.
const TIME_SHARE: f64 = 0.965;

const PS_PER_SECOND: f64 = 1e12;

/// A way to divide a matmul into tiles and parts.
#[derive(Clone, Copy)]
struct Cut<'o> {
    options: &'o PlanOptions,
    dtype: Dtype,
    /// M, N and K.
    size: [usize; 3],
    devices: usize,
    /// Rows, output channels and depth of a tile, at most.
    tile: [usize; 3],
    /// Parts of N and of K.
    parts: [usize; 2],
}

impl Cut<'_> {
    /// Estimated seconds of the call. The NPU runs its tasks in sequence. CPU and NPU work at the
    /// same time, except while the CPU packs the first part and unpacks the last. The DRAM serves
    /// both.
    fn seconds(&self) -> f64 {
        let Self {
            dtype,
            size: [m, n, k],
            tile: [m_tile, n_tile, k_tile],
            devices,
            parts: [n_parts, k_parts],
            ..
        } = *self;
        let profile = &self.options.profile;
        let (machine, host) = (&profile.machine, &profile.host);
        let group = dtype.kernel_group();
        let sharing = devices.min(n.div_ceil(group));
        // Of one device; the others have as many or fewer.
        let channels = n.div_ceil(group).div_ceil(devices) * group;
        let job_tiles = channels.div_ceil(n_parts).div_ceil(n_tile);
        let n_tiles = n_parts.max(channels.div_ceil(n_tile));
        let is_even = channels.is_multiple_of(n_tile.min(channels));
        let (m_tiles, k_tiles) = (m.div_ceil(m_tile), k.div_ceil(k_tile));
        let n_tile = channels.div_ceil(n_tiles).next_multiple_of(group);

        let m_tile = m.div_ceil(m_tiles).next_multiple_of(ROW_MULTIPLE);
        let program = profile.choices.program(dtype);
        let a_stays = rows_stay(dtype, [m_tile, n_tile, k_tile], &program);
        let a_fetches = if a_stays {
            (n_parts + usize::from(!is_even && job_tiles > 1)).min(n_tiles)
        } else {
            n_tiles
        };

        let bytes_in = dtype.input_bits() as f64 / 8.0;
        let bytes_out = dtype.output_bytes() as f64;
        let [rows, columns, depth] = [m, channels, k].map(|size| size as f64);
        let tasks = (m_tiles * n_tiles * k_tiles) as f64;
        let a = rows * depth * bytes_in * a_fetches as f64;
        let b = columns * depth * bytes_in * m_tiles as f64;
        let c = rows * columns * bytes_out * k_tiles as f64;
        // Bytes that a task does not move while it computes: its rows, its first kernels, its last
        // results.
        let group_part = group as f64 / n_tile as f64;
        let edges = a + (b + c) * group_part;
        let rate = machine.dram.rate(machine.clock_hz, sharing as u64) as f64;
        let macs = dtype.macs_per_clock() as f64 * machine.clock_hz.max(1) as f64;
        let flow = (rows * columns * depth / macs).max((b + c) * (1.0 - group_part) / rate);
        let jobs = (m_tiles * n_parts * k_parts) as f64;
        // The witness of a job is a task too.
        let kicks = (tasks + jobs) * machine.driver.kick_ps as f64;
        let driver = jobs * (machine.driver.submit_ps + machine.driver.attach_ps) as f64 + kicks;
        let npu = edges / rate + flow + driver / PS_PER_SECOND;

        let sharers = sharing as f64;
        let results = rows * n as f64;
        let cpu = |work: &[(f64, KernelCost)], synced: f64| {
            let (mut ps, mut moved) = (0.0, 0.0);
            for &(elements, kernel) in work {
                const MANY: u64 = 1 << 20;
                ps += elements * host.kernel_ps(MANY, kernel) as f64 / MANY as f64;
                moved += elements * f64::from(kernel.bits) / 8.0;
            }
            let synced = synced / host.sync_bytes_per_second.max(1) as f64;
            (ps / PS_PER_SECOND + synced, moved)
        };
        let packed = rows * depth;
        let (pack, pack_bytes) = cpu(
            &[(packed * sharers, KernelCost::pack(dtype))],
            packed * bytes_in,
        );
        let unpacked = [
            (1, UnpackTo::Result),
            (k_tiles - k_parts, UnpackTo::CachedSum),
            (k_parts - 1, UnpackTo::Sum),
        ]
        .map(|(times, to)| (results * times as f64, KernelCost::unpack(dtype, to)));
        let (unpack, unpack_bytes) = cpu(&unpacked, c);

        let moved = (a + b + c) * sharers + pack_bytes + unpack_bytes;
        let dram = moved / profile.memory_bytes_per_second().max(1) as f64;
        // Parts that pack little are submitted together.
        let packs = (packed * bytes_in / PACKED_BYTES_MIN as f64).floor();
        let packs = packs.clamp(1.0, (m_tiles * k_parts) as f64);
        let alone = pack / packs + unpack / jobs;
        (npu + alone).max(pack + unpack).max(dram)
    }

    /// A fast division into at most `most` parts of M, N and K, and its seconds. Each division must
    /// take less than the share `time_share` of the best one's time.
    fn in_parts(self, most: [usize; 3], time_share: f64) -> (f64, Self) {
        let all = self.options.parts.unwrap_or(usize::MAX);
        let mut best = (self.seconds(), self);
        for m_parts in PARTS.into_iter().filter(|&m| m <= most[0]) {
            let rows = self.size[0]
                .div_ceil(m_parts)
                .next_multiple_of(ROW_MULTIPLE);
            let m_tile = even_tile(self.size[0], rows.min(self.tile[0]), ROW_MULTIPLE);
            let m_tiles = self.size[0].div_ceil(m_tile);
            let cuts = PARTS.into_iter().flat_map(|n| PARTS.map(|k| [n, k]));
            for parts in cuts.filter(|&[n, k]| n <= most[1] && k <= most[2]) {
                if m_tiles * parts[0] * parts[1] > all {
                    continue;
                }
                let [_, n_tile, k_tile] = self.tile;
                let tile = [m_tile, n_tile, k_tile];
                let cut = Self {
                    tile,
                    parts,
                    ..self
                };
                let seconds = cut.seconds();
                if seconds < best.0 * time_share {
                    best = (seconds, cut);
                }
            }
        }
        best
    }
}

/// Whether a task with a tile of `[rows, n, k]` reuses the rows in CBUF, after a task with the same
/// rows and other weights of the same size.
fn rows_stay(dtype: Dtype, tile: [usize; 3], program: &ProgramOptions) -> bool {
    let [rows, n, k] = tile;
    let task = tile_task(dtype, rows, k, n);
    let next = MatmulTask {
        b: task.b.buffer.at(to_u32(layout::weight_bytes(dtype, n, k))),
        ..task
    };
    let reuse = next.reuse_after(&task, program, &ChipProfile::RK3588);
    reuse.is_ok_and(|reuse| reuse.features)
}

/// The depth of K tiles for B, `n x k`, on this number of devices.
pub(super) fn k_tile(
    dtype: Dtype,
    [n, k]: [usize; 2],
    devices: usize,
    options: &PlanOptions,
) -> usize {
    let rows = options.batch_rows.max(1);
    let (mut tiles, mut best) = (1, None::<(f64, usize)>);
    loop {
        let k_tile = even_k_tile(dtype, k, tiles);
        let fitting = if k_tile <= k_tile_max(dtype, options) {
            options.rows_max(dtype, k_tile)
        } else {
            0
        };
        if fitting > 0 {
            let slowness = BATCHES.map(|(fewer, counts)| {
                let rows = rows.div_ceil(fewer);
                let row_tile = even_tile(rows, fitting, ROW_MULTIPLE);
                let n_tile = options.n_max(dtype, k_tile, row_tile.min(rows));
                let cut = Cut {
                    options,
                    dtype,
                    size: [rows, n, k],
                    devices,
                    tile: [row_tile, n_tile, k_tile],
                    parts: [1, 1],
                };
                let most = [rows.div_ceil(ROW_MULTIPLE), n, k.div_ceil(k_tile)];
                // With logarithms 10 % more counts the same for a short time as for a long one. The
                // least time, so that the order of divisions does not decide the depth.
                counts * cut.in_parts(most, 1.0).0.ln()
            });
            let slowness = slowness.iter().sum();
            if best.is_none_or(|(least, _)| slowness < least) {
                best = Some((slowness, k_tile));
            }
        }
        // Shallower tiles hold no more of these rows, are no wider, and add partial sums.
        let width = |k_tile| options.n_max(dtype, k_tile, rows).min(n);
        let is_enough = fitting >= rows && width(k_tile) == width(dtype.k_tile_multiple());
        if is_enough || k_tile <= dtype.k_tile_multiple() {
            break;
        }
        tiles += tiles.div_ceil(ALL_UP_TO);
    }
    // If no tile is allowed, `Plan::new` fails.
    best.map_or(dtype.k_tile_multiple(), |(_, k_tile)| k_tile)
}

/// Rows of a tile, numbers of parts of N and K, and estimated seconds, for a matmul of `size` with
/// tiles of at most `tile`.
pub(super) fn parts(
    dtype: Dtype,
    size: [usize; 3],
    tile: [usize; 3],
    devices: usize,
    options: &PlanOptions,
) -> (usize, [usize; 2], f64) {
    let cut = Cut {
        options,
        dtype,
        size,
        devices,
        tile,
        parts: [1, 1],
    };
    let [m, n, k] = size;
    let rows = match options.row_tile {
        None => m.div_ceil(ROW_MULTIPLE),
        Some(_) => 1,
    };
    let most = [rows, n.div_ceil(dtype.kernel_group()), k.div_ceil(tile[2])];
    let (seconds, cut) = cut.in_parts(most, TIME_SHARE);
    (cut.tile[0], cut.parts, seconds)
}
