// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tiles of a matmul as librocketnpu's planner makes them, the work that the timing model reads
//! from their register programs, and the time of jobs of them on a modelled machine.

use anyhow::{Context, Result};
use rknpu_regcmd::TaskType::Fp16ToFp16;
use rknpu_regcmd::regs::{cna, dpu_rdma};
use rknpu_regcmd::timing::{Machine, ScheduledJob, TaskWork, schedule, seconds};
use rknpu_regcmd::{BufferId, ChipProfile, MatmulTask, Register, TaskRegisters, TaskType, tasks};

/// DPU_RDMA FEATURE_MODE_CFG of librocketnpu's accumulating fp16 programs:
/// MRDMA and ERDMA share the operand, fp16 in memory.
const SHARED_OPERAND_FP16: u32 = 0x0001_7d40;
/// ERDMA_CFG of the same programs: one 16-bit element for each pixel.
const ELEMENTS_16_BIT: u32 = 0x4000_0008;

/// The tile of most figures.
pub(super) const TILE: TimedTile = TimedTile::new(Fp16ToFp16, 256, 384, 256);

/// One tile of a matmul as a task, for the timing model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TimedTile {
    pub(super) ty: TaskType,
    /// M, K, N.
    pub(super) size: [u32; 3],
    /// Adds to the result of the tile before it, with EW (FP16 only).
    pub(super) adds: bool,
    /// Reuses its rows of A in CBUF.
    pub(super) reuses: bool,
}

impl TimedTile {
    pub(super) const fn new(ty: TaskType, m: u32, k: u32, n: u32) -> Self {
        Self {
            ty,
            size: [m, k, n],
            adds: false,
            reuses: false,
        }
    }

    /// Bytes and operations of the tile's program.
    pub(super) fn work(&self) -> Result<TaskWork> {
        let nowhere = BufferId(0).at(0);
        let ([m, k, n], [a, b, c]) = (self.size, [nowhere; 3]);
        let task = MatmulTask {
            ty: self.ty,
            m,
            k,
            n,
            a,
            b,
            c,
        };
        let program = task.program(&ChipProfile::RK3588)?;
        let words = program.words();
        let task = tasks(words).next().context("a program without a task")?;
        let TaskRegisters {
            mut regs, enable, ..
        } = task;
        if self.adds {
            regs.put(dpu_rdma::FeatureModeCfg::from_bits(SHARED_OPERAND_FP16));
            regs.put(dpu_rdma::ErdmaCfg::from_bits(ELEMENTS_16_BIT));
        }
        if self.reuses {
            let cbuf = regs.get::<cna::CbufCon0>();
            regs.put(cbuf.with_data_reuse(1)?);
        }
        Ok(TaskWork::of(&regs, enable)?.fetching(words.len() as u64))
    }
}

/// Jobs of a matmul or a benchmark.
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
}

/// Seconds from the first submit until the client of the last job wakes. Each job of a file is
/// submitted after the one before it has ended.
pub(super) fn latency(machine: &Machine, jobs: TileJobs, tasks: &[TaskWork]) -> Result<f64> {
    let TileJobs {
        files,
        each,
        chained,
    } = jobs;
    let job = |index: usize| ScheduledJob {
        file: (index % files) as u32,
        tasks: tasks.to_vec(),
        after: index.checked_sub(files).into_iter().collect(),
        chained,
        ..ScheduledJob::default()
    };
    let jobs: Vec<ScheduledJob> = (0..files * each).map(job).collect();
    Ok(seconds(
        schedule(&jobs, machine)?.end_ps + machine.driver.wake_ps,
    ))
}

#[cfg(test)]
mod tests {
    use rknpu_regcmd::DmaEngine;

    use super::*;

    #[test]
    fn an_accumulating_tile_reads_what_it_writes_and_reuse_reads_no_features() {
        let adding = TimedTile {
            adds: true,
            reuses: true,
            ..TILE
        };
        let (plain, adding) = (TILE.work().unwrap(), adding.work().unwrap());
        let of = |work: &TaskWork, engine| work.bytes.of(engine);
        assert_eq!(of(&plain, DmaEngine::Feature), 256 * 384 * 2);
        assert_eq!(of(&adding, DmaEngine::Feature), 0);
        let operand = of(&adding, DmaEngine::Mrdma) + of(&adding, DmaEngine::Erdma);
        assert_eq!(operand, of(&plain, DmaEngine::DpuWrite));
        assert_eq!(operand, 256 * 256 * 2);
    }
}
