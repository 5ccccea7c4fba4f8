// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a task uses each register. Registers keep their values from task to task, so a
//! register that a task uses and does not write has the value of another program.

use super::{ConvTask, DpuOutput, POOL_AVERAGE, Reads, takes_operand};
use crate::field::{Register, RegisterInfo};
use crate::precision::Precision;
use crate::regfile::RegisterFile;
use crate::regs::{self, cna, core, dpu, dpu_rdma, ppu, ppu_rdma};
use crate::word::{Block, EnableMask};

/// How a task uses a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegisterUse {
    /// Results depend on it.
    Computed,
    /// Whether results depend on it is not known.
    Unknown,
    /// Results do not depend on it in the modes that the task selects: bypassed
    /// stages use none of their operands.
    Unused,
}

use RegisterUse::{Computed, Unknown, Unused};

/// The offsets of registers of a block, as a pattern.
macro_rules! offsets {
    ($block:ident: $($register:ident),+) => { $($block::$register::OFFSET)|+ };
}

/// `Computed` if `so`, else `Unused`.
const fn or_unused(so: bool) -> RegisterUse {
    if so { Computed } else { Unused }
}

/// `Computed` if `so`, else `Unknown`.
const fn or_unknown(so: bool) -> RegisterUse {
    if so { Computed } else { Unknown }
}

/// How tasks of the blocks in `enable` use the register `info`, with the values in
/// `regs`.
fn use_of(regs: &RegisterFile, enable: EnableMask, info: &RegisterInfo) -> RegisterUse {
    if !info.is_operand() || !enable.contains(info.block.enable()) {
        return Unused;
    }
    match info.block {
        Block::Cna => of_cna(regs, info.offset),
        Block::Core => match info.offset {
            offsets!(core: MiscCfg, DataoutSize0, DataoutSize1, ClipTruncate) => Computed,
            _ => Unknown,
        },
        Block::Dpu => of_dpu(regs, info.offset),
        Block::DpuRdma => of_rdma(regs, info.offset),
        Block::Ppu => of_ppu(regs, info.offset),
        Block::PpuRdma => match info.offset {
            offsets!(ppu_rdma:
                CubeInWidth, CubeInHeight, CubeInChannel, SrcBaseAddr, SrcLineStride,
                SrcSurfStride, DataFormat
            ) => Computed,
            _ => Unknown,
        },
        Block::Pc => Unused,
    }
}

/// The registers that a task of the blocks in `enable` uses, or may use, and does not
/// write, each with its use. They have the values of an earlier program.
pub fn unwritten(
    regs: &RegisterFile,
    enable: EnableMask,
) -> impl Iterator<Item = (&'static RegisterInfo, RegisterUse)> + '_ {
    regs::all()
        .filter(|info| !regs.was_written(info.offset))
        .map(move |info| (info, use_of(regs, enable, info)))
        .filter(|(_, used)| *used != Unused)
}

fn of_cna(regs: &RegisterFile, offset: u16) -> RegisterUse {
    let cbuf = regs.get::<cna::CbufCon0>();
    let fetches = cbuf.data_reuse() == 0;
    match offset {
        offsets!(cna:
            ConvCon1, ConvCon2, ConvCon3, DataSize0, DataSize1, DataSize2, DataSize3,
            WeightSize0, WeightSize1, WeightSize2, CbufCon0, CbufCon1, CvtCon0,
            PadCon0, FcDataSize0, FcDataSize1
        ) => Computed,
        cna::CvtCon1::OFFSET..=cna::CvtCon4::OFFSET | cna::CvtCon5::OFFSET => {
            or_unused(regs.get::<cna::CvtCon0>().cvt_bypass() == 0)
        }
        cna::PadCon1::OFFSET => or_unused(ConvTask::decode(regs, false).pads()),
        cna::FeatureDataAddr::OFFSET => or_unused(fetches),
        cna::DmaCon1::OFFSET => {
            let lines = regs.get::<cna::FcDataSize0>().dma_height();
            or_unknown(fetches && lines > 1)
        }
        cna::DmaCon2::OFFSET => {
            let features = ConvTask::decode(regs, false).features;
            let surfaces = features.atoms(features.fetched).surfaces.count;
            or_unknown(fetches && surfaces > 1)
        }
        cna::DcompAddr0::OFFSET => or_unused(cbuf.weight_reuse() == 0),
        cna::DcompAmount0::OFFSET..=cna::DcompAmount15::OFFSET
            if regs.get::<cna::DcompCtrl>().decomp_control() == 0 =>
        {
            Unused
        }
        _ => Unknown,
    }
}

fn of_dpu(regs: &RegisterFile, offset: u16) -> RegisterUse {
    let (bs, (bn, _)) = (regs.get::<dpu::BsCfg>(), dpu::bn_as_bs(regs));
    match offset {
        offsets!(dpu:
            FeatureModeCfg, DataFormat, DstBaseAddr, DataCubeWidth, DataCubeHeight,
            BsCfg, BnCfg, EwCfg, OutCvtOffset, OutCvtScale, OutCvtShift
        ) => Computed,
        dpu::DataCubeNotchAddr::OFFSET => {
            or_unknown(regs.get::<dpu::DataCubeHeight>().height() > 0)
        }
        // Output of one atom a pixel needs neither strides nor the writer's own
        // number of channels: allbilly's flying programs write none of them.
        offsets!(dpu: DstSurfStride, SurfaceAdd) => or_unknown(!one_atom(regs)),
        offsets!(dpu: BsOwCfg, WdmaSize0) => or_unknown(!(one_atom(regs) && flying(regs))),
        dpu::BsAluCfg::OFFSET => of_alu(bs),
        dpu::BnAluCfg::OFFSET => of_alu(bn),
        dpu::BsMulCfg::OFFSET => of_multiplier(bs),
        dpu::BnMulCfg::OFFSET => of_multiplier(bn),
        dpu::BsReluxCmpValue::OFFSET => of_clip(bs),
        dpu::BnReluxCmpValue::OFFSET => of_clip(bn),
        dpu::BsOwOp::OFFSET if flying(regs) || regs.get::<dpu::BsOwCfg>().od_bypass() == 1 => {
            Unused
        }
        dpu::BsOwOp::OFFSET => {
            let core = Precision::from_code(regs.get::<core::MiscCfg>().proc_precision());
            or_unknown(!core.is_float())
        }
        _ => of_ew(regs, offset),
    }
}

fn of_alu(stage: dpu::BsCfg) -> RegisterUse {
    let on = stage.bs_bypass() == 0 && stage.bs_alu_bypass() == 0;
    or_unused(on && stage.bs_alu_src() == 0)
}

fn of_multiplier(stage: dpu::BsCfg) -> RegisterUse {
    or_unused(stage.bs_bypass() == 0 && stage.bs_mul_bypass() == 0)
}

fn of_clip(stage: dpu::BsCfg) -> RegisterUse {
    let on = stage.bs_bypass() == 0 && stage.bs_relu_bypass() == 0;
    or_unused(on && stage.bs_relux_en() == 1)
}

fn flying(regs: &RegisterFile) -> bool {
    regs.get::<dpu::FeatureModeCfg>().flying_mode() == 1
}

/// Whether the DPU's output of one pixel fits one atom.
fn one_atom(regs: &RegisterFile) -> bool {
    let output = DpuOutput::decode(regs);
    output.channels(flying(regs)) <= output.precision.per_atom()
}

fn of_ew(regs: &RegisterFile, offset: u16) -> RegisterUse {
    let ew = regs.get::<dpu::EwCfg>();
    let on = ew.ew_bypass() == 0;
    let operates = on && ew.ew_op_bypass() == 0;
    let looks_up = on && ew.ew_lut_bypass() == 0;
    match offset {
        offsets!(dpu: EwCvtOffsetValue, EwCvtScaleValue) => {
            let format = regs.get::<dpu::DataFormat>();
            let float = Precision::from_code(format.proc_precision()).is_float();
            if operates && ew.ew_op_cvt_bypass() == 0 {
                or_unknown(!float)
            } else {
                Unused
            }
        }
        dpu::EwReluxCmpValue::OFFSET => {
            or_unused(on && ew.ew_relu_bypass() == 0 && ew.ew_relux_en() == 1)
        }
        dpu::EwOpValue0::OFFSET..=dpu::EwOpValue7::OFFSET => {
            if operates && ew.ew_op_src() == 0 {
                or_unknown(!looks_up)
            } else {
                Unused
            }
        }
        offsets!(dpu: LutAccessCfg, LutAccessData) => Unused,
        offsets!(dpu:
            LutInfo, LutLeStart, LutLoEnd, LutLeSlopeScale, LutLeSlopeShift,
            LutLoSlopeScale, LutLoSlopeShift
        ) => or_unused(looks_up),
        dpu::LutCfg::OFFSET..=dpu::LutLoSlopeShift::OFFSET if !looks_up => Unused,
        _ => Unknown,
    }
}

fn of_rdma(regs: &RegisterFile, offset: u16) -> RegisterUse {
    let reads = Reads::decode(regs);
    let (main, element) = (reads.main.is_some(), reads.element.is_some());
    let (bs, bn) = (reads.bs.is_some(), reads.bn.is_some());
    let several = reads.cube[2] > reads.precision.per_atom();
    let taken = element && takes_operand(regs);
    match offset {
        offsets!(dpu_rdma: BrdmaCfg, NrdmaCfg, ErdmaCfg, FeatureModeCfg) => Computed,
        offsets!(dpu_rdma: DataCubeWidth, DataCubeHeight) => or_unknown(main || element),
        dpu_rdma::DataCubeChannel::OFFSET => or_unknown(main || element || bs || bn),
        dpu_rdma::BsBaseAddr::OFFSET => or_unused(bs),
        dpu_rdma::BnBaseAddr::OFFSET => or_unused(bn),
        dpu_rdma::SrcBaseAddr::OFFSET => or_unused(main),
        dpu_rdma::SrcDmaCfg::OFFSET if main => or_unknown(reads.cube[1] > 1),
        dpu_rdma::SurfNotch::OFFSET if main => or_unknown(several),
        dpu_rdma::PadCfg::OFFSET if main => Unknown,
        dpu_rdma::EwBaseAddr::OFFSET if element => or_unknown(taken),
        offsets!(dpu_rdma: EwSurfStride, EwSurfNotch) if element => or_unknown(taken && several),
        offsets!(dpu_rdma: SrcDmaCfg, SurfNotch, PadCfg, EwBaseAddr, EwSurfStride, EwSurfNotch) => {
            Unused
        }
        _ => Unknown,
    }
}

fn of_ppu(regs: &RegisterFile, offset: u16) -> RegisterUse {
    let average = regs.get::<ppu::OperationModeCfg>().pooling_method() == POOL_AVERAGE;
    let padded = regs.get::<ppu::PoolingPaddingCfg>().bits() != 0;
    match offset {
        offsets!(ppu:
            DataCubeInWidth, DataCubeInHeight, DataCubeOutWidth, DataCubeOutHeight,
            DataCubeOutChannel, OperationModeCfg, PoolingKernelCfg,
            PoolingPaddingCfg, DstBaseAddr, DstSurfStride, DataFormat
        ) => Computed,
        offsets!(ppu: RecipKernelWidth, RecipKernelHeight) => or_unused(average),
        ppu::PaddingValue1::OFFSET if padded => or_unknown(!average),
        offsets!(ppu: PaddingValue1, PaddingValue2) if !padded => Unused,
        _ => Unknown,
    }
}
