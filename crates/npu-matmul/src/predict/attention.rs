// SPDX-License-Identifier: MIT OR Apache-2.0
//! Predicts the time of an attention call with the timing model.
//!
//! ```text
//! round:  0             1                     2
//! NPU     scores 0      values 0, scores 1    values 1, scores 2
//! CPU     pack 0        softmax 0, pack 1     collect 0, softmax 1, pack 2
//! ```
//!
//! A round takes as long as the CPU, or as the device with the most work. The whole call takes at
//! least the DRAM time for the bytes of CPU and NPU.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use crate::plan::attention::call::AttentionShape;
use crate::plan::attention::plan::{AttentionPlan, AttentionSteps, HALF, TileKey, devices_of};
use crate::plan::{JobPlan, PlanError, PlanOptions};
use crate::predict::{CallTime, TaskWorks};
use crate::profile::{KernelCost, UnpackTo, bytes_ps};

/// Upper bound for the rows of all heads: the prediction visits each tile.
const ROWS_MAX: usize = 1 << 24;

/// Picoseconds for a tile, and bytes that it moves.
#[derive(Clone, Copy, Default)]
struct TileTime {
    /// NPU time: scores, values.
    npu_ps: [u64; 2],
    /// Part of it: kicks of tasks and starts of jobs.
    driver_ps: u64,
    /// Time of the CPU's kernels: queries, softmax, results.
    cpu_ps: [u64; 3],
    /// Time of cache maintenance for each of them.
    sync_ps: [u64; 3],
    bytes: u64,
}

impl AttentionShape {
    /// Keys that any of these rows sees.
    fn seen(&self, rows: &Range<usize>) -> Range<usize> {
        let Some(window) = self.window else {
            return 0..self.keys;
        };
        // The key of row r itself: the rows are the last ones of the sequence.
        let own = |row: usize| (self.keys + row).saturating_sub(self.rows);
        let first = (own(rows.start) + 1).saturating_sub(window);
        first..(own(rows.end.saturating_sub(1)) + 1).min(self.keys)
    }

    /// Predicts the time of the call on `devices` devices, with the options' profile and limits.
    ///
    /// # Errors
    /// The sizes have no tiling.
    pub fn call(&self, devices: usize, options: &PlanOptions) -> Result<CallTime, PlanError> {
        let rows = self.rows.saturating_mul(self.heads);
        if rows > ROWS_MAX {
            let max = ROWS_MAX;
            return Err(PlanError::TooManyRows { m: rows, max });
        }
        let tiling = AttentionPlan::new(self, options)?;
        let tiling = Arc::new(tiling);
        let host = &options.profile.host;
        let mut times = Times {
            size: self,
            options,
            works: TaskWorks::default(),
            known: HashMap::new(),
        };
        let mut tiles = Vec::new();
        let mut works = Vec::new();
        for kv_head in 0..self.kv_heads {
            for (heads, rows) in tiling.tiles(self.group(), self.rows) {
                let seen = self.seen(&rows);
                let blocks = seen.start / tiling.block..seen.end.div_ceil(tiling.block);
                let m = heads.len() * rows.len();
                works.push(tiling.work(m, blocks.len()));
                let key = TileKey {
                    tiling: Arc::clone(&tiling),
                    device: 0,
                    m,
                    blocks: blocks.collect(),
                };
                tiles.push((kv_head, times.of(key)));
            }
        }
        let devices = devices.max(1);
        let mut rounds: Vec<Vec<TileTime>> = vec![Vec::new(); devices];
        let (mut heads, mut moved) = (vec![None; devices], 0_u64);
        // Each element of the blocks of K and V that a row sees is read once, and written once for
        // the NPU. The caches of the whole buffer are maintained.
        let seen = self.seen(&(0..self.rows));
        let first = seen.start / tiling.block * tiling.block;
        let last = seen.end.next_multiple_of(tiling.block).min(self.keys);
        let elements = |keys: usize| keys as u64 * (self.head_dim + self.value_dim) as u64;
        let kv = elements(last.saturating_sub(first));
        let kernels = [KernelCost::ALL_FINITE, KernelCost::PACK_COLUMNS];
        let kv_ps: u64 = kernels
            .map(|kernel| host.kernel_ps(kv, kernel))
            .iter()
            .sum();
        let kv_sync_ps = options.profile.dirty_sync_ps(2 * elements(self.keys));
        for ((kv_head, mut tile), device) in tiles.into_iter().zip(devices_of(&works, devices)) {
            if heads[device].replace(kv_head) != Some(kv_head) {
                tile.cpu_ps[0] += kv_ps;
                tile.sync_ps[0] += kv_sync_ps;
                tile.bytes += KernelCost::PACK_COLUMNS.bytes(kv);
            }
            moved = moved.saturating_add(tile.bytes);
            rounds[device].push(tile);
        }
        let device_ps = |device: &Vec<TileTime>| {
            let each = device.iter().map(|tile| tile.driver_ps);
            each.fold(0, u64::saturating_add)
        };
        let mut call = CallTime {
            driver_ps: rounds.iter().map(device_ps).max().unwrap_or(0),
            ..CallTime::default()
        };
        let count = rounds.iter().map(Vec::len).max().unwrap_or(0);
        for round in 0..count + 2 {
            // The tile that a device started so many rounds before; no work if there is none.
            let tile = |device: &Vec<TileTime>, before: usize| {
                let index = round.checked_sub(before);
                let tile = index.and_then(|index| device.get(index));
                tile.copied().unwrap_or_default()
            };
            let npu_ps = rounds.iter().map(|device| {
                let [scores, values] = [0, 1].map(|stage| tile(device, stage).npu_ps[stage]);
                scores.saturating_add(values)
            });
            let npu_ps = npu_ps.max().unwrap_or(0);
            let [pack_ps, softmax_ps, results_ps] = [0, 1, 2].map(|stage| {
                let tiles = rounds.iter().map(|device| tile(device, stage));
                // Each device has a thread, so that their caches are maintained at the same time.
                let synced = tiles.clone().filter(|tile| tile.sync_ps[stage] > 0).count() as u64;
                let together = synced.clamp(1, u64::from(host.cores.max(1)));
                let [kernels, sync] = tiles.fold([0_u64; 2], |[kernels, sync], tile| {
                    [
                        kernels.saturating_add(tile.cpu_ps[stage]),
                        sync.saturating_add(tile.sync_ps[stage]),
                    ]
                });
                kernels.saturating_add(sync / together)
            });
            let unpack_ps = softmax_ps.saturating_add(results_ps);
            let cpu_ps = pack_ps.saturating_add(unpack_ps);
            call.npu_ps += npu_ps;
            call.pack_ps += pack_ps;
            call.unpack_ps += unpack_ps;
            call.overlap_ps += npu_ps.min(cpu_ps);
            call.call_ps += npu_ps.max(cpu_ps);
        }
        call.memory_ps = bytes_ps(moved, options.profile.memory_bytes_per_second());
        call.call_ps = call.call_ps.max(call.memory_ps);
        Ok(call)
    }
}

/// Times of tiles, cached because most tiles are alike.
struct Times<'a> {
    size: &'a AttentionShape,
    options: &'a PlanOptions,
    works: TaskWorks,
    known: HashMap<TileKey, TileTime>,
}

impl Times<'_> {
    fn of(&mut self, key: TileKey) -> TileTime {
        if let Some(known) = self.known.get(&key) {
            return *known;
        }
        let [scores, values] = &AttentionSteps::new(&key).jobs;
        let (scores_ps, score_driver_ps, score_bytes) = self.job(scores);
        let (values_ps, value_driver_ps, value_bytes) = self.job(values);
        let host = &self.options.profile.host;
        let m = key.m as u64;
        let queries = m * self.size.head_dim as u64;
        let rounding = KernelCost::round(HALF);
        let pack = KernelCost::pack(HALF);
        let probabilities = values.band.activation_bytes;
        let elements = probabilities as u64 / 2;
        let parts = scores.band.k_tiles.len().max(1) as u64;
        let results = m * (self.size.value_dim as u64 + 1);
        let sums = key.blocks.len().saturating_sub(1) as u64 * results;
        let [first, more] =
            [UnpackTo::Result, UnpackTo::CachedSum].map(|to| KernelCost::unpack(HALF, to));
        let synced = |bytes: usize| host.sync_ps(bytes as u64);
        let written = |bytes: usize| self.options.profile.dirty_sync_ps(bytes as u64);
        let time = TileTime {
            npu_ps: [scores_ps, values_ps],
            driver_ps: score_driver_ps.saturating_add(value_driver_ps),
            cpu_ps: [
                host.kernel_ps(queries, rounding) + host.kernel_ps(queries, pack),
                host.kernel_ps(elements, KernelCost::SOFTMAX)
                    + host.kernel_ps((parts - 1) * elements, KernelCost::ADD_SCORES),
                host.kernel_ps(results, first) + host.kernel_ps(sums, more),
            ],
            sync_ps: [
                written(scores.band.activation_bytes),
                synced(scores.output_bytes) + written(probabilities),
                synced(values.output_bytes),
            ],
            bytes: score_bytes
                + value_bytes
                + rounding.bytes(queries)
                + pack.bytes(queries)
                // The scores of a few rows stay in the cache after the first read.
                + scores.output_bytes as u64
                + probabilities as u64
                + first.bytes(results)
                + more.bytes(sums),
        };
        self.known.insert(key, time);
        time
    }

    /// NPU time of a job, the driver's part of it, and bytes that it moves.
    fn job(&mut self, job: &JobPlan) -> (u64, u64, u64) {
        let machine = &self.options.profile.machine;
        let driver = &machine.driver;
        let tasks = self.works.of(job);
        let each = tasks.iter().map(|task| task.duration_ps(machine));
        let fixed = driver.attach_ps + driver.kick_ps * tasks.len() as u64 + driver.wake_ps;
        let bytes = tasks.iter().map(|task| task.total_bytes());
        (each.fold(fixed, u64::saturating_add), fixed, bytes.sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADS: AttentionShape = with_window(Some(usize::MAX));

    fn call(size: AttentionShape) -> CallTime {
        size.call(3, &PlanOptions::uncalibrated(600_000_000))
            .unwrap()
    }

    const fn with_window(window: Option<usize>) -> AttentionShape {
        AttentionShape {
            window,
            ..AttentionShape::LLAMA
        }
    }

    #[test]
    fn rows_see_themselves_and_what_was_before() {
        assert_eq!(HEADS.seen(&(0..1)), 0..1537);
        assert_eq!(HEADS.seen(&(100..512)), 0..2048);
        let windowed = with_window(Some(512));
        assert_eq!(windowed.seen(&(0..1)), 1025..1537);
        assert_eq!(windowed.seen(&(511..512)), 1536..2048);
        assert_eq!(with_window(None).seen(&(0..1)), 0..2048);
    }

    #[test]
    fn masks_and_fewer_keys_spare_time() {
        let [whole, causal, windowed] =
            [None, HEADS.window, Some(256)].map(|window| call(with_window(window)));
        assert!(causal.call_ps < whole.call_ps);
        assert!(windowed.call_ps < causal.call_ps);
        for call in [whole, causal, windowed] {
            assert!(call.call_ps >= call.npu_ps.max(call.cpu_ps()).max(call.memory_ps));
            assert!(call.call_ps <= call.npu_ps + call.cpu_ps() + call.memory_ps);
        }
    }

    #[test]
    fn sizes_without_tiles_have_no_time() {
        let changes: [fn(&mut AttentionShape); 5] = [
            |size| size.head_dim = usize::MAX,
            |size| size.value_dim = usize::MAX,
            |size| size.keys = usize::MAX,
            |size| size.rows = usize::MAX,
            |size| (size.heads, size.kv_heads) = (usize::MAX, usize::MAX),
        ];
        for change in changes {
            let mut size = HEADS;
            change(&mut size);
            assert!(size.call(3, &PlanOptions::default()).is_err(), "{size:?}");
        }
    }
}
