// SPDX-License-Identifier: MIT OR Apache-2.0
//! Operands of the DPU: the engines that read them, and the stages that take them.

use alloc::format;

use super::row::{DpuPart, Found, Shows};
use crate::precision::Precision;
use crate::regs::{dpu, dpu_rdma};
use crate::task::{ChannelRead, ElementRead, MainRead, PER_CHANNEL, Reads, takes_operand};

pub(super) const OPERAND: Shows = shows![dpu::EwCfg, dpu_rdma::ErdmaCfg, dpu_rdma::FeatureModeCfg];
const STAGES: Shows = shows![
    dpu::BsCfg,
    dpu_rdma::BrdmaCfg,
    dpu::BnCfg,
    dpu_rdma::NrdmaCfg
];
rules! { pub,
    "T02-operand-not-read" ["E-operand-unread"] [..OPERAND] Error Hang:
        "EW waits for an operand from memory that no engine reads (measured)",
        "enable DPU_RDMA and clear ERDMA_DISABLE, or bypass EW (EW_CFG 0x383)",
        Dpu |task| {
            (task.takes() && task.element().is_none())
                .then(|| "ERDMA is off, or DPU_RDMA not enabled".into())
        };
    "T02-stage-operand-not-read" ["E-operand-unread"] [..STAGES] Error Hang:
        "BS or BN waits for an operand from memory that BRDMA or NRDMA does not read (inferred)",
        "enable DPU_RDMA and set the operand's bit of BRDMA_CFG or NRDMA_CFG, or take it from the register",
        Dpu |task| {
            let [bs, bn] = Stage::of(task);
            (bs.missing() || bn.missing()).then(|| bs.describe(&bn))
        };
    "T02-operand-not-used" ["E-operand-unread"] [..OPERAND] Error Hang:
        "ERDMA reads an operand that nothing takes (measured behind CORE)",
        "set ERDMA_DISABLE (ERDMA_CFG 1), or use the operand",
        Dpu |task| task.conv.and_then(|_| unused(task));
    "T02-flying-operand-not-used" ["E-operand-unread"] [..OPERAND] Warning Note:
        "ERDMA reads an operand that nothing takes; behind CORE that hangs",
        "set ERDMA_DISABLE (ERDMA_CFG 1), or use the operand",
        Dpu |task| match task.conv {
            None => unused(task),
            Some(_) => None,
        };
    "T03-erdma-without-mrdma" ["E-erdma-without-mrdma"] [..OPERAND] Error Hang:
        "behind CORE, ERDMA works only together with MRDMA, on every other surface (measured)",
        "clear MRDMA_DISABLE and set COMB_USE to 5",
        Dpu |task| {
            let alone = task.conv.is_some() && task.element().is_some() && task.main().is_none();
            alone.then(|| "ERDMA is on, MRDMA off".into())
        };
    "T01-mrdma-unfed" ["E-mrdma-unfed"] [..OPERAND] Error Hang:
        "DPU_RDMA is enabled and MRDMA armed, but nothing takes what it reads (measured)",
        "leave DPU_RDMA out of the enable mask (0x0D), or set MRDMA_DISABLE (0x7810)",
        Dpu |task| {
            let armed = task.conv.is_some() && task.main().is_some();
            (armed && !task.shares()).then(|| {
                let comb = task.reads.map_or(0, |reads| reads.comb_use);
                format!("COMB_USE is {comb}, EW takes an operand: {}", task.takes())
            })
        };
    "H06-operand-mode" [] [..OPERAND] Error Hang:
        "COMB_USE 5 with one operand for each channel: no source says what that reads",
        "set ERDMA_DATA_MODE to 1",
        Dpu |task| {
            let mode = task
                .element()
                .filter(|_| task.shares() && task.main().is_some())?
                .mode;
            (mode == PER_CHANNEL).then(|| format!("ERDMA_DATA_MODE is {mode}"))
        };
    "H05-channels" [] [dpu_rdma::DataCubeChannel, dpu::WdmaSize0] Error Hang:
        "the DPU waits for more channels than DPU_RDMA delivers (inferred)",
        "write the same number of channels to both",
        Dpu |task| {
            let reads = task.reads.filter(|_| task.conv.is_none() || task.takes())?;
            let (delivered, channels) = (reads.cube[2], task.channels());
            (delivered < channels).then(|| {
                format!("the DPU writes {channels} channels, DPU_RDMA delivers {delivered}")
            })
        };
    "H05-flying-input" [] [dpu_rdma::FeatureModeCfg, dpu_rdma::DataCubeWidth, dpu_rdma::DataCubeHeight, dpu::DataCubeWidth, dpu::DataCubeHeight] Error Hang:
        "the DPU waits for more pixels from memory than MRDMA delivers (inferred)",
        "set FLYING_MODE in both blocks, clear MRDMA_DISABLE, and give both the same size",
        Dpu |task| {
            let reads = task.flying()?;
            let delivers = reads.flying && reads.main.is_some();
            let delivered = if delivers { reads.pixels() } else { 0 };
            let pixels = task.output.pixels();
            (pixels > delivered).then(|| format!("{delivered} pixels of {pixels}"))
        };
    "flying-mismatch" [] [dpu_rdma::FeatureModeCfg, dpu::FeatureModeCfg] Error:
        "DPU and DPU_RDMA disagree about where the main input comes from",
        "set the same FLYING_MODE in both",
        Dpu |task| {
            let flying = task.conv.is_some() && task.reads?.flying;
            flying.then(|| "FLYING_MODE is 0 in the DPU, 1 in DPU_RDMA".into())
        };
    /// A flying task with two operands and COMB_USE 5.
    FLYING_DUAL "T48-comb-use-flying" ["E-flying-dual-zeros", "E-flying-dual-hangs"] [dpu_rdma::FeatureModeCfg] Error Garbage, contested "flying-dual":
        "a flying operation on two operands with COMB_USE 5 writes zeros or never ends (both measured)",
        "set COMB_USE to 0",
        Dpu |task| {
            let comb = task.flying().filter(|_| task.takes())?.comb_use;
            (comb == crate::task::COMB_SHARED).then(|| format!("COMB_USE is {comb}"))
        };
    /// A flying task with ORIG_CHANNEL 0.
    ORIG_CHANNEL "T48-orig-channel" ["E-orig-channel"] [dpu::DataCubeChannel] Error Garbage:
        "with ORIG_CHANNEL 0 only the first lane of each atom is right (measured); on the model the others are 0",
        "write the number of channels less one to both halves of DATA_CUBE_CHANNEL",
        Dpu |task| {
            task.flying()?;
            let cube = task.regs.get::<dpu::DataCubeChannel>();
            let wrong = cube.orig_channel() == 0 && cube.channel() != 0 && task.takes();
            wrong.then(|| format!("ORIG_CHANNEL is 0, CHANNEL {}", cube.channel()))
        };
    /// A flying task whose lines are too wide.
    FLYING_WIDTH "T30-width" ["E-width-limit"] [dpu::DataCubeWidth, dpu_rdma::DataCubeWidth] Error Garbage:
        "fed from memory, some 54 elements at the end of the widest lines are wrong (measured); on the model they are 0",
        "keep the width at 4096 atoms or below",
        Dpu |task| {
            let width = task.flying().map(|_| task.output.cube[0])?;
            (width >= FLYING_WIDTH_FAILED).then(|| format!("{width} atoms a line"))
        };
    "wide-flying" ["E-width-limit"] [dpu::DataCubeWidth] Warning:
        "fed from memory, lines of 8191 atoms were wrong, and of 4096 right (measured)",
        "keep the width at 4096 atoms or below",
        Dpu |task| {
            let width = task.flying().map(|_| task.output.cube[0])?;
            (width > FLYING_WIDTH_KNOWN && width < FLYING_WIDTH_FAILED)
                .then(|| format!("{width} atoms a line"))
        };
    "brdma-unused" [] [..STAGES] Warning:
        "operands are read that no stage takes",
        "clear DATA_USE of the engine",
        Dpu |task| {
            let [bs, bn] = Stage::of(task);
            let unused = |stage: &Stage| stage.wanted == 0 && stage.read != 0;
            (unused(&bs) || unused(&bn)).then(|| bs.describe(&bn))
        };
}

/// The widest line that is known to be right when fed from memory, and the
/// narrowest that is known to be wrong, atoms.
const FLYING_WIDTH_KNOWN: usize = 4096;
const FLYING_WIDTH_FAILED: usize = 8191;

fn unused(task: &DpuPart<'_>) -> Found {
    (task.element().is_some() && !task.takes())
        .then(|| "ERDMA is on, EW takes no operand from memory".into())
}

impl<'a> DpuPart<'a> {
    pub(super) fn ew(&self) -> dpu::EwCfg {
        self.regs.get()
    }

    /// Whether EW takes an operand from memory.
    pub(super) fn takes(&self) -> bool {
        takes_operand(self.regs)
    }

    pub(super) fn operates(&self, ty: u32) -> bool {
        self.takes() && self.ew().ew_op_type() == ty
    }

    /// The reads of a flying task.
    pub(super) fn flying(&self) -> Option<&'a Reads> {
        self.reads.filter(|_| self.conv.is_none())
    }

    pub(super) fn main(&self) -> Option<MainRead> {
        self.reads?.main
    }

    pub(super) fn element(&self) -> Option<ElementRead> {
        self.reads?.element
    }

    pub(super) fn float(&self) -> bool {
        let format = self.regs.get::<dpu::DataFormat>();
        Precision::from_code(format.proc_precision()).is_float()
    }

    /// Whether MRDMA and ERDMA share EW's operand behind CORE.
    pub(super) fn shares(&self) -> bool {
        self.takes()
            && self
                .reads
                .is_some_and(|reads| reads.shares(self.conv.is_none()))
    }
}

/// The operands that a stage takes and that are read for it, as bits of DATA_USE.
struct Stage {
    wanted: u32,
    read: u32,
}

impl Stage {
    /// The stages BS and BN.
    fn of(task: &DpuPart<'_>) -> [Self; 2] {
        let (bn, bn_mul) = dpu::bn_as_bs(task.regs);
        let stage = |cfg: dpu::BsCfg, mul: dpu::BsMulCfg, read: Option<ChannelRead>| {
            let on = cfg.bs_bypass() == 0;
            let takes = |bypass, source| u32::from(on && bypass == 0 && source == 1);
            Self {
                wanted: (takes(cfg.bs_alu_bypass(), cfg.bs_alu_src()) * ChannelRead::ALU)
                    | (takes(cfg.bs_mul_bypass(), mul.bs_mul_src()) * ChannelRead::MUL)
                    | (takes(cfg.bs_mul_bypass(), mul.bs_truncate_src()) * ChannelRead::SHIFT),
                read: read.map_or(0, |read| read.uses),
            }
        };
        let read = |of: fn(&Reads) -> Option<ChannelRead>| task.reads.and_then(of);
        let mut bs = stage(task.regs.get(), task.regs.get(), read(|reads| reads.bs));
        // The weight correction applies only to the sums of a convolution.
        let ow = task.regs.get::<dpu::BsOwCfg>();
        if task.conv.is_some() && ow.od_bypass() == 0 && ow.ow_src() == 1 {
            bs.wanted |= ChannelRead::CPEND;
        }
        [bs, stage(bn, bn_mul, read(|reads| reads.bn))]
    }

    const fn missing(&self) -> bool {
        self.wanted & !self.read != 0
    }

    fn describe(&self, bn: &Self) -> alloc::string::String {
        let of = |stage: &Self| format!("operands {:#x} and reads {:#x}", stage.wanted, stage.read);
        format!("BS takes {}, BN {}", of(self), of(bn))
    }
}
