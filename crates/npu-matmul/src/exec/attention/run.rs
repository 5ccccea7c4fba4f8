// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs attention. Each device computes tile after tile; the two jobs of a tile and the CPU's work
//! overlap with those of its neighbours.
//!
//! ```text
//! round:          0       1       2       3
//! device  scores  tile 0  tile 1  tile 2  ...
//!         values          tile 0  tile 1  ...
//! CPU     softmax         tile 0  tile 1  ...     while the device has the next scores
//!         collect                 tile 0  ...
//! ```
//!
//! Each device has its own tiles. All devices start each round together, so results, buffers and
//! programs do not depend on the speed of a device.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use rayon::prelude::*;
use rocket_uapi::{Bo, Deadline, FinishedJob, FrozenBo, PendingJob};

use super::finite::LostKeys;
use super::operands::{pack_keys_and_values, pack_queries};
use super::scores;
use crate::device::times::Section;
use crate::engine::Engine;
use crate::exec::{Again, DeviceWork};
use crate::plan::JobPlan;
use crate::plan::attention::call::{AttentionCall, AttentionShape};
use crate::plan::attention::mask::MaskBlocks;
use crate::plan::attention::plan::{
    AttentionPlan, AttentionSteps, AttentionTile, HALF, TileKey, devices_of,
};
use crate::plan::error::{EngineCallError, Error};
use crate::plan::first_run::MatmulKind;
use crate::plan::observe::Activity;

/// A submitted job of a tile.
struct Running {
    /// Index among the device's tiles.
    tile: usize,
    pending: PendingJob,
    at: Instant,
    /// Its features: queries or probabilities.
    a: FrozenBo,
    /// K and V of its head.
    kv: FrozenBo,
    /// One number for each row: the factor of its scores, then the maximum of its scores.
    rows: Vec<f32>,
}

/// A job of a tile that has ended.
struct Ended {
    tile: usize,
    /// Its output buffer.
    c: Bo,
    /// As [`Running::rows`].
    rows: Vec<f32>,
}

/// The tiles of one device, and its jobs in flight.
struct DeviceAttention<'e> {
    on: DeviceWork<'e>,
    tiles: Vec<(AttentionTile, Arc<AttentionSteps>)>,
    /// The head whose K and V are packed (call, KV head), and their buffer.
    head: Option<([usize; 2], FrozenBo)>,
    scores: VecDeque<Running>,
    values: VecDeque<Running>,
}

/// Calls in progress.
struct AttentionRun<'e, 'c> {
    engine: &'e Engine,
    calls: Vec<AttentionCall<'c>>,
    /// For each call: the blocks of keys that any tile sees.
    used: Vec<Vec<bool>>,
    lost: LostKeys,
}

/// Computes calls with checked operands.
pub(super) fn attend(
    engine: &Engine,
    calls: Vec<AttentionCall<'_>>,
    again: Again<'_>,
) -> Result<(), EngineCallError> {
    let run = AttentionRun {
        engine,
        used: Vec::with_capacity(calls.len()),
        calls,
        lost: LostKeys::default(),
    };
    let token = engine.observer.token();
    engine.workers.run(|| run.finish(token, again))
}

impl AttentionRun<'_, '_> {
    fn finish(mut self, token: u64, again: Again<'_>) -> Result<(), EngineCallError> {
        let mut tiles = Vec::new();
        for index in 0..self.calls.len() {
            let added = self.add_tiles(index, &mut tiles);
            added.map_err(EngineCallError::of(index))?;
        }
        let mut devices = share(tiles, (self.engine, token, again));
        let done = self.rounds(&mut devices);
        devices.into_iter().for_each(DeviceAttention::end);
        done?;
        let mut totals = self.engine.totals();
        for call in &self.calls {
            totals.calls += 1;
            totals.macs = totals.macs.saturating_add(macs(&call.batch()));
        }
        Ok(())
    }

    /// Adds the tiles of a call that see any key. The results of the others are zeros.
    fn add_tiles(&mut self, index: usize, tiles: &mut Vec<AttentionTile>) -> Result<(), Error> {
        let engine = self.engine;
        let call = &mut self.calls[index];
        self.used.push(Vec::new());
        if call.out.is_empty() || call.k.rows() == 0 {
            call.out.fill(0.0);
            return Ok(());
        }
        if !engine.is_usable(HALF) {
            return Err(Error::Distrusted {
                kind: MatmulKind::resident(HALF),
            });
        }
        let sizes = call.batch();
        let tiling = AttentionPlan::new(&sizes, &engine.current_options())?;
        let (tiling, group) = (Arc::new(tiling), sizes.group());
        let masks = &engine.attention.masks;
        let visible = MaskBlocks::new(call, tiling.block, masks)?;
        call.out.fill(0.0);
        let mut used = vec![false; tiling.blocks()];
        for kv_head in 0..call.k.heads() {
            let first = kv_head * group;
            for (heads, rows) in tiling.tiles(group, sizes.rows) {
                let heads = first + heads.start..first + heads.end;
                let blocks = visible.visible(heads.clone(), rows.clone());
                for block in &blocks {
                    used[block.block] = true;
                }
                if !blocks.is_empty() {
                    tiles.push(AttentionTile {
                        call: index,
                        kv_head,
                        tiling: Arc::clone(&tiling),
                        heads,
                        rows,
                        blocks,
                    });
                }
            }
        }
        visible.recycle(masks);
        self.used[index] = used;
        Ok(())
    }

    fn rounds(&mut self, devices: &mut [DeviceAttention<'_>]) -> Result<(), EngineCallError> {
        let tiles = devices.iter().map(|device| device.tiles.len()).max();
        // The last tile is collected two rounds after its first job.
        for round in 0..tiles.map_or(0, |tiles| tiles + 2) {
            let run = &*self;
            each(devices, |device| device.start_scores(run, round))?;
            each(devices, |device| device.start_values(run, round))?;
            let ended = each(devices, |device| device.end_values(round))?;
            for (device, ended) in devices.iter().zip(ended) {
                if let Some(ended) = ended {
                    device.collect(self, ended)?;
                }
            }
        }
        Ok(())
    }
}

/// Multiply-accumulates of a call, as if no mask hid any key.
fn macs(sizes: &AttentionShape) -> u64 {
    let dims = sizes.head_dim + sizes.value_dim;
    (sizes.heads as u64)
        .saturating_mul(sizes.rows as u64)
        .saturating_mul(sizes.keys as u64)
        .saturating_mul(dims as u64)
}

/// Runs a function on all devices in parallel; returns the error of the first device that failed.
fn each<'e, T: Send>(
    devices: &mut [DeviceAttention<'e>],
    work: impl Fn(&mut DeviceAttention<'e>) -> Result<T, EngineCallError> + Sync,
) -> Result<Vec<T>, EngineCallError> {
    let done: Vec<_> = devices.par_iter_mut().map(&work).collect();
    done.into_iter().collect()
}

/// Assigns tiles to devices.
fn share<'e>(
    tiles: Vec<AttentionTile>,
    (engine, token, again): (&'e Engine, u64, Again<'e>),
) -> Vec<DeviceAttention<'e>> {
    let count = engine.devices.len();
    let mut devices: Vec<_> = (0..count)
        .map(|device| DeviceAttention {
            on: DeviceWork::new(engine, device, token, again),
            tiles: Vec::new(),
            head: None,
            scores: VecDeque::new(),
            values: VecDeque::new(),
        })
        .collect();
    let works: Vec<_> = tiles.iter().map(AttentionTile::work).collect();
    for (tile, device) in tiles.into_iter().zip(devices_of(&works, count)) {
        let key = TileKey {
            tiling: Arc::clone(&tile.tiling),
            device,
            m: tile.m(),
            blocks: tile.blocks.iter().map(|block| block.block).collect(),
        };
        let make = |key: &TileKey| {
            engine.totals().plans += 1;
            Ok::<_, Infallible>(Arc::new(AttentionSteps::new(key)))
        };
        let Ok(jobs) = engine.attention.tiles.get_or_make(key, make, drop);
        devices[device].tiles.push((tile, jobs));
    }
    devices
}

impl DeviceAttention<'_> {
    /// Packs the operands of tile `round` and submits its score job.
    fn start_scores(
        &mut self,
        run: &AttentionRun<'_, '_>,
        round: usize,
    ) -> Result<(), EngineCallError> {
        let Some((tile, jobs)) = self.tiles.get(round) else {
            return Ok(());
        };
        let (call, on) = (&run.calls[tile.call], self.on);
        let mut start = || {
            let kv = packed_head(&mut self.head, on, run, tile)?;
            let [job, _] = &jobs.jobs;
            let (state, clock) = (&run.engine.attention, &run.engine.clock);
            let mut factors = state.floats.take(tile.m_padded())?;
            let bytes = job.band.activation_bytes;
            let a = on.filled(bytes, Activity::Pack { bytes }, |memory| {
                let queries = (&state.queries, &mut factors[..]);
                pack_queries(call, tile, job, queries, clock, memory)
            })?;
            Running::start(on, (jobs, SCORES), round, [a, kv], factors)
        };
        let running = start().map_err(EngineCallError::of(tile.call))?;
        self.scores.push_back(running);
        Ok(())
    }

    /// Computes the softmax of the tile before `round` and submits its value job.
    fn start_values(
        &mut self,
        run: &AttentionRun<'_, '_>,
        round: usize,
    ) -> Result<(), EngineCallError> {
        let Some(running) = due(&mut self.scores, round, 1) else {
            return Ok(());
        };
        let (index, on) = (running.tile, self.on);
        let (tile, jobs) = &self.tiles[index];
        let (call, engine) = (&run.calls[tile.call], run.engine);
        let start = || {
            let kv = running.kv.clone();
            let [scores, values] = &jobs.jobs;
            let mut ended = end(on, scores, running)?;
            let memory = ended.c.read(Deadline::FOREVER).map_err(on.failed())?;
            let (state, clock) = (&engine.attention, &engine.clock);
            let bytes = scores.output_bytes;
            let done = Activity::Softmax { bytes };
            let a = on.filled(values.band.activation_bytes, done, |probabilities| {
                let memory = (&memory[..], probabilities);
                scores::softmax(call, tile, scores, state, clock, memory, &mut ended.rows)
            })?;
            on.buffers().put(ended.c);
            Running::start(on, (jobs, VALUES), index, [a, kv], ended.rows)
        };
        let running = start().map_err(EngineCallError::of(tile.call))?;
        self.values.push_back(running);
        Ok(())
    }

    /// Waits for the value job of the tile two before `round`.
    fn end_values(&mut self, round: usize) -> Result<Option<Ended>, EngineCallError> {
        let Some(running) = due(&mut self.values, round, 2) else {
            return Ok(None);
        };
        let (tile, jobs) = &self.tiles[running.tile];
        let ended = end(self.on, &jobs.jobs[VALUES], running);
        ended.map(Some).map_err(EngineCallError::of(tile.call))
    }

    /// Stores the results of a value job.
    fn collect(&self, run: &mut AttentionRun<'_, '_>, ended: Ended) -> Result<(), EngineCallError> {
        let (tile, jobs) = &self.tiles[ended.tile];
        let (on, job) = (self.on, &jobs.jobs[VALUES]);
        let failed = |error| EngineCallError::of(tile.call)(on.failed()(error));
        let memory = ended.c.read(Deadline::FOREVER).map_err(failed)?;
        let from = Instant::now();
        let lost = run.lost.of_head(tile.head());
        let call = &mut run.calls[tile.call];
        let rows = (&ended.rows[..], &lost[..]);
        scores::collect(call, tile, job, rows, &on.engine.clock, &memory);
        let bytes = job.output_bytes;
        on.done(Activity::Unpack { bytes }, from);
        on.buffers().put(ended.c);
        on.engine.attention.floats.put(ended.rows);
        Ok(())
    }

    /// Waits for jobs in flight whose results are not needed, and recycles all buffers.
    fn end(self) {
        let buffers = self.on.buffers();
        for running in self.scores.into_iter().chain(self.values) {
            self.on.abandon(running.pending);
            buffers.release(running.a);
            buffers.release(running.kv);
        }
        if let Some((_, bo)) = self.head {
            buffers.release(bo);
        }
    }
}

/// Index of the score job in [`AttentionSteps`].
const SCORES: usize = 0;

/// Index of the value job in [`AttentionSteps`].
const VALUES: usize = 1;

/// Takes the front job if it belongs to the tile `before` rounds earlier.
fn due(running: &mut VecDeque<Running>, round: usize, before: usize) -> Option<Running> {
    let is_due = running.front()?.tile + before == round;
    is_due.then(|| running.pop_front())?
}

/// K and V of the tile's head: those of the previous tile, or packed now.
fn packed_head(
    head: &mut Option<([usize; 2], FrozenBo)>,
    on: DeviceWork<'_>,
    run: &AttentionRun<'_, '_>,
    tile: &AttentionTile,
) -> Result<FrozenBo, Error> {
    match head.take() {
        Some((packed, bo)) if packed == tile.head() => {
            *head = Some((packed, bo.clone()));
            return Ok(bo);
        }
        Some((_, bo)) => on.buffers().release(bo),
        None => {}
    }
    let (call, used) = (&run.calls[tile.call], &run.used[tile.call][..]);
    let bytes = tile.tiling.kv_bytes();
    let bo = on.filled(bytes, Activity::Pack { bytes }, |memory| {
        let clock = &run.engine.clock;
        pack_keys_and_values(call, tile, used, &run.lost, clock, memory);
        Ok(())
    })?;
    *head = Some((tile.head(), bo.clone()));
    Ok(bo)
}

impl Running {
    /// Builds and submits a job of tile `tile`.
    fn start(
        on: DeviceWork<'_>,
        (jobs, step): (&AttentionSteps, usize),
        tile: usize,
        [a, kv]: [FrozenBo; 2],
        rows: Vec<f32>,
    ) -> Result<Self, Error> {
        let job = jobs.plan_job(step);
        let c = on.buffers().take(job.plan.output_bytes);
        let c = c.map_err(on.failed())?;
        let builder = on.add(on.job_builder(), job, whole(&a), whole(&kv), c)?;
        let pending = on.submit(vec![on.build(builder)?])?.pop();
        Ok(Self {
            tile,
            // One job was submitted.
            pending: pending.ok_or_else(|| on.missing())?,
            at: Instant::now(),
            a,
            kv,
            rows,
        })
    }
}

/// The range of a whole buffer.
fn whole(bo: &FrozenBo) -> (&FrozenBo, Range<usize>) {
    (bo, 0..bo.len())
}

/// Waits for a job, and checks its first tasks if the engine does that.
fn end(on: DeviceWork<'_>, job: &JobPlan, running: Running) -> Result<Ended, Error> {
    let FinishedJob { mut writes, .. } = {
        let _waiting = on.engine.stopwatch(Section::Wait);
        on.wait(running.pending)?
    };
    on.ended([job].into_iter(), running.at);
    let c = writes.pop().ok_or_else(|| on.missing())?;
    let checked = on.check(job, whole(&running.a), whole(&running.kv), &c);
    on.buffers().release(running.a);
    on.buffers().release(running.kv);
    checked?;
    Ok(Ended {
        tile: running.tile,
        c,
        rows: running.rows,
    })
}
