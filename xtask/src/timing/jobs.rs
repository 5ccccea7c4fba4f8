// SPDX-License-Identifier: MIT OR Apache-2.0
//! Jobs of tiles, and how long they take on a modelled machine.

use anyhow::Result;
use rknpu_regcmd::MatmulType::Fp16ToFp16;
use rknpu_regcmd::timing::{Machine, ScheduledJob, TaskWork, schedule, seconds};

use super::tiles::TimedTile;

/// The tile that most figures are about.
pub(super) const TILE: TimedTile = TimedTile::new(Fp16ToFp16, 256, 384, 256);
/// Tasks of that tile that one job has.
pub(super) const TASKS: usize = 64;
/// The product that most figures are about: M, K, N.
pub(super) const SIZE: (u32, u32, u32) = (512, 3840, 4096);

pub(super) const US: f64 = 1e6;
pub(super) const MS: f64 = 1e3;

/// A machine at the clock of most figures.
pub(super) const FAST: Machine = Machine::RK3588;

/// Jobs of a product, or of a benchmark.
#[derive(Clone, Copy)]
pub(super) struct TileJobs {
    pub(super) files: usize,
    pub(super) each: usize,
    pub(super) chained: bool,
}

impl TileJobs {
    pub(super) const ONE: Self = Self {
        files: 1,
        each: 1,
        chained: false,
    };
    /// 320 tiles.
    pub(super) const FIVE: Self = Self {
        each: 5,
        ..Self::ONE
    };
    pub(super) const FIVE_CHAINED: Self = Self {
        chained: true,
        ..Self::FIVE
    };
}

/// Seconds from the first submit until the client of the last job wakes, where
/// each job of a file is submitted when the one before has ended.
pub(super) fn latency(machine: &Machine, jobs: TileJobs, tasks: &[TaskWork]) -> Result<f64> {
    let TileJobs {
        files,
        each,
        chained,
    } = jobs;
    let jobs: Vec<ScheduledJob> = (0..files * each)
        .map(|index| ScheduledJob {
            file: (index % files) as u32,
            tasks: tasks.to_vec(),
            after: index.checked_sub(files).into_iter().collect(),
            chained,
            ..ScheduledJob::default()
        })
        .collect();
    Ok(seconds(
        schedule(&jobs, machine)?.end_ps + machine.driver.wake_ps,
    ))
}

/// The wait for jobs of 64 tiles, seconds.
pub(super) fn wait(machine: &Machine, jobs: TileJobs) -> Result<f64> {
    latency(machine, jobs, &[TILE.work()?; TASKS])
}
