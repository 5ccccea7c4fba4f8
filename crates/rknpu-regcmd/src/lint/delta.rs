// SPDX-License-Identifier: MIT OR Apache-2.0
//! Registers that a task uses without writing them.
//!
//! Registers keep their values from task to task, job to job and process to
//! process. A register counts as used if its block is started and the modes
//! that the task selects look at it: bypassed stages use none of their
//! operands.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::{Findings, View};
use crate::field::{Register, RegisterInfo};
use crate::regs::{self, cna, dpu, dpu_rdma, ppu};
use crate::rules::words as rules;
use crate::word::{Block, EnableMask};

/// Without these a program did not even write (measured, rockchip-npu-notes):
/// sizes, destination, precisions.
const ESSENTIAL: [(EnableMask, &RegisterInfo); 6] = [
    (EnableMask::CNA, cna::ConvCon1::INFO),
    (EnableMask::CNA, cna::DataSize0::INFO),
    (EnableMask::CNA, cna::DataSize1::INFO),
    (EnableMask::DPU, dpu::DataFormat::INFO),
    (EnableMask::DPU, dpu::DstBaseAddr::INFO),
    (EnableMask::PPU, ppu::DstBaseAddr::INFO),
];

/// Operands of stages that are taken from registers.
const OPERANDS: [u16; 4] = [
    dpu::BsAluCfg::OFFSET,
    dpu::BsMulCfg::OFFSET,
    dpu::BnAluCfg::OFFSET,
    dpu::BnMulCfg::OFFSET,
];

/// `zeroed`: whether registers that no task here wrote hold 0.
pub(super) fn check(view: &View<'_>, zeroed: bool, findings: &mut Findings) {
    let missing: Vec<&'static RegisterInfo> = ESSENTIAL
        .into_iter()
        .filter(|&(block, info)| view.runs(block) && !view.writes(info))
        .map(|(_, info)| info)
        .collect();
    if !missing.is_empty() {
        let message = format!("{} are not written", names(&missing));
        findings.report(view, &rules::DELTA, &missing, message);
    }
    check_decompression(view, zeroed, findings);
    let mut alone = Vec::new();
    for info in regs::all() {
        if !info.is_operand()
            || !view.runs(info.block.enable())
            || view.writes(info)
            || !uses(view, info)
        {
            continue;
        }
        let value = view.task.regs.value(info.offset);
        if value != 0 {
            let message = format!("{}.{} still holds {value:#010x}", info.block, info.name);
            findings.report(view, &rules::LEFT_BY_EARLIER, &[info], message);
        } else if OPERANDS.contains(&info.offset) && !zeroed {
            let message = format!("{}.{} is used and not written", info.block, info.name);
            findings.report(view, &rules::OPERAND_LEFT, &[info], message);
        } else {
            alone.push(info);
        }
    }
    if !alone.is_empty() {
        let message = format!(
            "{} used registers are not written: {}",
            alone.len(),
            names(&alone)
        );
        findings.report(view, &rules::LEFT_TO_CHANCE, &[], message);
    }
}

/// Weights are raw only if the program says so.
fn check_decompression(view: &View<'_>, zeroed: bool, findings: &mut Findings) {
    if !view.runs(EnableMask::CNA) || view.get::<cna::CbufCon0>().weight_reuse() == 1 {
        return;
    }
    for info in [cna::DcompCtrl::INFO, cna::DcompRegnum::INFO] {
        let value = view.task.regs.value(info.offset);
        if view.writes(info) {
            continue;
        }
        if value != 0 {
            let message = format!("CNA.{} still holds {value:#010x}", info.name);
            findings.report(view, &rules::LEFT_BY_EARLIER, &[info], message);
        } else if !zeroed {
            let message = format!("CNA.{} is not written", info.name);
            findings.report(view, &rules::DCOMP_LEFT, &[info], message);
        }
    }
}

fn names(registers: &[&RegisterInfo]) -> String {
    let mut text = String::new();
    for register in registers {
        if !text.is_empty() {
            text.push_str(", ");
        }
        text.push_str(register.block.name());
        text.push('.');
        text.push_str(register.name);
    }
    text
}

/// Whether the task looks at the register, under the modes that it selects.
fn uses(view: &View<'_>, info: &RegisterInfo) -> bool {
    match info.block {
        Block::Cna => uses_cna(view, info.offset),
        Block::Dpu => uses_dpu(view, info.offset),
        Block::DpuRdma => uses_rdma(view, info.offset),
        Block::Ppu => uses_ppu(view, info.offset),
        Block::Core | Block::PpuRdma => true,
        Block::Pc => false,
    }
}

fn uses_cna(view: &View<'_>, offset: u16) -> bool {
    match offset {
        cna::CvtCon1::OFFSET..=cna::CvtCon4::OFFSET | cna::CvtCon5::OFFSET => {
            view.get::<cna::CvtCon0>().cvt_bypass() == 0
        }
        cna::DcompAmount0::OFFSET..=cna::DcompAmount15::OFFSET => {
            view.get::<cna::DcompCtrl>().decomp_control() != 0
        }
        // Have a rule of their own.
        cna::DcompCtrl::OFFSET | cna::DcompRegnum::OFFSET => false,
        cna::FeatureDataAddr::OFFSET => view.get::<cna::CbufCon0>().data_reuse() == 0,
        cna::DcompAddr0::OFFSET => view.get::<cna::CbufCon0>().weight_reuse() == 0,
        cna::PadCon1::OFFSET => view.conv.pads(),
        _ => true,
    }
}

fn uses_dpu(view: &View<'_>, offset: u16) -> bool {
    let bs = view.get::<dpu::BsCfg>();
    let bn = view.get::<dpu::BnCfg>();
    let ew = view.get::<dpu::EwCfg>();
    let (bs_on, bn_on, ew_on) = (
        bs.bs_bypass() == 0,
        bn.bn_bypass() == 0,
        ew.ew_bypass() == 0,
    );
    let operation = ew_on && ew.ew_op_bypass() == 0;
    match offset {
        dpu::BsAluCfg::OFFSET => bs_on && bs.bs_alu_bypass() == 0 && bs.bs_alu_src() == 0,
        dpu::BsMulCfg::OFFSET => bs_on && bs.bs_mul_bypass() == 0,
        dpu::BsReluxCmpValue::OFFSET => bs_on && bs.bs_relux_en() == 1,
        dpu::BsOwOp::OFFSET => {
            let conv = view.get::<dpu::FeatureModeCfg>().flying_mode() == 0;
            conv && view.get::<dpu::BsOwCfg>().od_bypass() == 0
        }
        dpu::BnAluCfg::OFFSET => bn_on && bn.bn_alu_bypass() == 0 && bn.bn_alu_src() == 0,
        dpu::BnMulCfg::OFFSET => bn_on && bn.bn_mul_bypass() == 0,
        dpu::BnReluxCmpValue::OFFSET => bn_on && bn.bn_relux_en() == 1,
        dpu::EwCvtOffsetValue::OFFSET | dpu::EwCvtScaleValue::OFFSET => {
            operation && ew.ew_op_cvt_bypass() == 0
        }
        dpu::EwReluxCmpValue::OFFSET => ew_on && ew.ew_relux_en() == 1,
        dpu::EwOpValue0::OFFSET..=dpu::EwOpValue7::OFFSET => operation && ew.ew_op_src() == 0,
        dpu::LutAccessCfg::OFFSET | dpu::LutAccessData::OFFSET => false,
        dpu::LutCfg::OFFSET..=dpu::LutLoSlopeShift::OFFSET => ew_on && ew.ew_lut_bypass() == 0,
        _ => true,
    }
}

fn uses_rdma(view: &View<'_>, offset: u16) -> bool {
    let main = view.get::<dpu_rdma::FeatureModeCfg>().mrdma_disable() == 0;
    let element = view.get::<dpu_rdma::ErdmaCfg>().erdma_disable() == 0;
    match offset {
        dpu_rdma::SrcBaseAddr::OFFSET
        | dpu_rdma::SrcDmaCfg::OFFSET
        | dpu_rdma::SurfNotch::OFFSET
        | dpu_rdma::PadCfg::OFFSET => main,
        dpu_rdma::BsBaseAddr::OFFSET => view.get::<dpu_rdma::BrdmaCfg>().brdma_data_use() != 0,
        dpu_rdma::BnBaseAddr::OFFSET => view.get::<dpu_rdma::NrdmaCfg>().nrdma_data_use() != 0,
        dpu_rdma::EwBaseAddr::OFFSET
        | dpu_rdma::EwSurfStride::OFFSET
        | dpu_rdma::EwSurfNotch::OFFSET => element,
        _ => true,
    }
}

fn uses_ppu(view: &View<'_>, offset: u16) -> bool {
    let padded = view.get::<ppu::PoolingPaddingCfg>() != ppu::PoolingPaddingCfg::new();
    match offset {
        ppu::RecipKernelWidth::OFFSET | ppu::RecipKernelHeight::OFFSET => {
            view.get::<ppu::OperationModeCfg>().pooling_method() == crate::task::POOL_AVERAGE
        }
        ppu::PaddingValue1::OFFSET | ppu::PaddingValue2::OFFSET => padded,
        _ => true,
    }
}
