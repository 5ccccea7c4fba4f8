// SPDX-License-Identifier: MIT OR Apache-2.0
//! The register programs of one tile of a matrix product, as librocketnpu's
//! planner cuts it, and what the timing model reads from them.

use anyhow::{Context, Result};
use rknpu_regcmd::regs::{cna, dpu_rdma};
use rknpu_regcmd::timing::TaskWork;
use rknpu_regcmd::{
    BufferId, ChipProfile, MatmulForm, MatmulTask, MatmulType, Register, TaskRegisters, tasks,
};

/// DPU_RDMA FEATURE_MODE_CFG of librocketnpu's accumulating fp16 programs:
/// MRDMA and ERDMA share the operand, fp16 in memory.
const SHARED_OPERAND_FP16: u32 = 0x0001_7d40;
/// ERDMA_CFG of the same programs: one 16-bit element for each pixel.
const ELEMENTS_16_BIT: u32 = 0x4000_0008;

/// A tile of a product as one task, for the timing model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TimedTile {
    pub(super) ty: MatmulType,
    pub(super) m: u32,
    pub(super) k: u32,
    pub(super) n: u32,
    /// Adds to the result of the tile before, by EW (fp16 only).
    pub(super) adds: bool,
    /// Finds its rows of A in CBUF.
    pub(super) reuses: bool,
}

impl TimedTile {
    pub(super) const fn new(ty: MatmulType, m: u32, k: u32, n: u32) -> Self {
        Self {
            ty,
            m,
            k,
            n,
            adds: false,
            reuses: false,
        }
    }

    /// What the tile's program moves and computes.
    pub(super) fn work(&self) -> Result<TaskWork> {
        let nowhere = BufferId(0).at(0);
        let program = MatmulTask {
            ty: self.ty,
            m: self.m,
            k: self.k,
            n: self.n,
            a: nowhere,
            b: nowhere,
            c: nowhere,
        }
        .program_in(MatmulForm::B, &ChipProfile::RK3588)?;
        let words = program.words();
        let TaskRegisters {
            mut regs, enable, ..
        } = tasks(words).next().context("a program without a task")?;
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

#[cfg(test)]
mod tests {
    use rknpu_regcmd::DmaEngine;

    use super::*;

    #[test]
    fn an_accumulating_tile_reads_what_it_writes_and_reuse_reads_no_features() {
        let plain = TimedTile::new(MatmulType::Fp16ToFp16, 256, 384, 256);
        let adding = TimedTile {
            adds: true,
            reuses: true,
            ..plain
        };
        let (plain, adding) = (plain.work().unwrap(), adding.work().unwrap());
        let of = |work: &TaskWork, engine| work.bytes.of(engine);
        assert_eq!(of(&plain, DmaEngine::Feature), 256 * 384 * 2);
        assert_eq!(of(&adding, DmaEngine::Feature), 0);
        let operand = of(&adding, DmaEngine::Mrdma) + of(&adding, DmaEngine::Erdma);
        assert_eq!(operand, of(&plain, DmaEngine::DpuWrite));
        assert_eq!(operand, 256 * 256 * 2);
    }
}
