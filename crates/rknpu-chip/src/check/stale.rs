// SPDX-License-Identifier: MIT OR Apache-2.0
//! Registers that a task depends on, that its program does not write, and
//! that an earlier program left at something else than after a reset.

use rknpu_regcmd::regs::{self, cna, core, dpu, dpu_rdma, ppu, ppu_rdma};
use rknpu_regcmd::task::{Conv, Output, Reads};
use rknpu_regcmd::{EnableMask, Register, RegisterFile};

use crate::conv_config::ConvConfig;
use crate::dpu::ew::Ew;
use crate::precision::Precision;
use crate::trap::{Report, Stop};
use crate::writer::Writer;
use crate::{Contested, Effect, FreshStages, registers};

/// Registers that a diagnosis shows.
const SHOWN: usize = 6;

/// Looks for stale registers.
pub(crate) fn stale(
    report: &mut Report,
    regs: &RegisterFile,
    enable: EnableMask,
    contested: &Contested,
) -> Result<(), Stop> {
    let mut found = Vec::new();
    for offset in used(regs, enable) {
        let value = regs.value(offset);
        let fresh = match contested.fresh_stages {
            FreshStages::Bypassed => registers::value_after_reset(offset),
            FreshStages::Active => 0,
        };
        if !regs.was_written(offset)
            && value != fresh
            && let Some(info) = regs::lookup(offset)
        {
            found.push((info.name, value));
        }
    }
    if found.is_empty() {
        return Ok(());
    }
    let count = found.len();
    found.truncate(SHOWN);
    report.note(
        "T07-stale-registers",
        Effect::Garbage,
        &found,
        format!(
            "the task uses {count} registers that its program does not write and that an earlier \
             one left behind"
        ),
        "write every register that the task uses in every program",
    )
}

/// Offsets of the registers that the enabled blocks use in the modes that
/// they are in: operands of stages that are bypassed are not among them.
fn used(regs: &RegisterFile, enable: EnableMask) -> Vec<u16> {
    let mut used = Vec::new();
    if enable.contains(EnableMask::CNA) {
        of_cna(regs, &mut used);
    }
    if enable.contains(EnableMask::CORE) {
        used.extend([
            core::MiscCfg::OFFSET,
            core::DataoutSize0::OFFSET,
            core::DataoutSize1::OFFSET,
            core::ClipTruncate::OFFSET,
        ]);
    }
    if enable.contains(EnableMask::DPU) {
        of_dpu(regs, &mut used);
    }
    if enable.contains(EnableMask::DPU_RDMA) {
        of_rdma(regs, &mut used);
    }
    if enable.contains(EnableMask::PPU | EnableMask::PPU_RDMA) {
        of_ppu(regs, &mut used);
    }
    used
}

fn of_cna(regs: &RegisterFile, used: &mut Vec<u16>) {
    let task = Conv::decode(regs, false);
    let conv = ConvConfig::new(&task, regs);
    used.extend([
        cna::ConvCon1::OFFSET,
        cna::ConvCon2::OFFSET,
        cna::ConvCon3::OFFSET,
        cna::DataSize0::OFFSET,
        cna::DataSize1::OFFSET,
        cna::DataSize2::OFFSET,
        cna::DataSize3::OFFSET,
        cna::WeightSize0::OFFSET,
        cna::WeightSize1::OFFSET,
        cna::WeightSize2::OFFSET,
        cna::CbufCon0::OFFSET,
        cna::CbufCon1::OFFSET,
        cna::CvtCon0::OFFSET,
        cna::PadCon0::OFFSET,
        cna::FcDataSize0::OFFSET,
        cna::FcDataSize1::OFFSET,
    ]);
    if conv.cvt.is_some() {
        used.extend([
            cna::CvtCon1::OFFSET,
            cna::CvtCon2::OFFSET,
            cna::CvtCon3::OFFSET,
            cna::CvtCon4::OFFSET,
            cna::CvtCon5::OFFSET,
        ]);
    }
    if task.pads() {
        used.push(cna::PadCon1::OFFSET);
    }
    let (_, height, surfaces) = conv.source.shape();
    if !conv.cbuf.data_reuse {
        used.push(cna::FeatureDataAddr::OFFSET);
        if height > 1 {
            used.push(cna::DmaCon1::OFFSET);
        }
        if surfaces > 1 {
            used.push(cna::DmaCon2::OFFSET);
        }
    }
    if !conv.cbuf.weight_reuse {
        used.push(cna::DcompAddr0::OFFSET);
    }
}

fn of_dpu(regs: &RegisterFile, used: &mut Vec<u16>) {
    let writer = Writer::new(Output::decode(regs), regs);
    let out = Precision::from_code(regs.get::<dpu::DataFormat>().out_precision());
    used.extend([
        dpu::FeatureModeCfg::OFFSET,
        dpu::DataFormat::OFFSET,
        dpu::DstBaseAddr::OFFSET,
        dpu::DataCubeWidth::OFFSET,
        dpu::DataCubeHeight::OFFSET,
        dpu::BsCfg::OFFSET,
        dpu::BnCfg::OFFSET,
        dpu::EwCfg::OFFSET,
        dpu::OutCvtOffset::OFFSET,
        dpu::OutCvtScale::OFFSET,
        dpu::OutCvtShift::OFFSET,
    ]);
    if writer.output.cube[1] > 1 {
        used.push(dpu::DataCubeNotchAddr::OFFSET);
    }
    // One atom a pixel needs neither strides nor the writer's own number of
    // channels: allbilly's flying programs write none of them.
    let flying = regs.get::<dpu::FeatureModeCfg>().flying_mode() == 1;
    let single = writer.channels <= out.per_atom();
    if !single {
        used.extend([dpu::DstSurfStride::OFFSET, dpu::SurfaceAdd::OFFSET]);
    }
    if !(flying && single) {
        used.extend([dpu::BsOwCfg::OFFSET, dpu::WdmaSize0::OFFSET]);
    }
    let bs = regs.get::<dpu::BsCfg>();
    if bs.bs_bypass() == 0 {
        let alu = bs.bs_alu_bypass() == 0 && bs.bs_alu_src() == 0;
        add(used, alu, dpu::BsAluCfg::OFFSET);
        add(used, bs.bs_mul_bypass() == 0, dpu::BsMulCfg::OFFSET);
        let clip = bs.bs_relu_bypass() == 0 && bs.bs_relux_en() == 1;
        add(used, clip, dpu::BsReluxCmpValue::OFFSET);
    }
    let bn = regs.get::<dpu::BnCfg>();
    if bn.bn_bypass() == 0 {
        let alu = bn.bn_alu_bypass() == 0 && bn.bn_alu_src() == 0;
        add(used, alu, dpu::BnAluCfg::OFFSET);
        add(used, bn.bn_mul_bypass() == 0, dpu::BnMulCfg::OFFSET);
        let clip = bn.bn_relu_bypass() == 0 && bn.bn_relux_en() == 1;
        add(used, clip, dpu::BnReluxCmpValue::OFFSET);
    }
    of_ew(regs, used);
}

fn of_ew(regs: &RegisterFile, used: &mut Vec<u16>) {
    let ew = regs.get::<dpu::EwCfg>();
    if ew.ew_bypass() == 1 {
        return;
    }
    let integer = !Precision::from_code(regs.get::<dpu::DataFormat>().proc_precision()).is_float();
    if integer && ew.ew_op_bypass() == 0 && ew.ew_op_cvt_bypass() == 0 {
        used.extend([dpu::EwCvtOffsetValue::OFFSET, dpu::EwCvtScaleValue::OFFSET]);
    }
    if ew.ew_op_bypass() == 0 && ew.ew_op_src() == 0 && ew.ew_lut_bypass() == 1 {
        used.extend([
            dpu::EwOpValue0::OFFSET,
            dpu::EwOpValue1::OFFSET,
            dpu::EwOpValue2::OFFSET,
            dpu::EwOpValue3::OFFSET,
            dpu::EwOpValue4::OFFSET,
            dpu::EwOpValue5::OFFSET,
            dpu::EwOpValue6::OFFSET,
            dpu::EwOpValue7::OFFSET,
        ]);
    }
    if ew.ew_lut_bypass() == 0 {
        used.extend([
            dpu::LutInfo::OFFSET,
            dpu::LutLeStart::OFFSET,
            dpu::LutLoEnd::OFFSET,
            dpu::LutLeSlopeScale::OFFSET,
            dpu::LutLeSlopeShift::OFFSET,
            dpu::LutLoSlopeScale::OFFSET,
            dpu::LutLoSlopeShift::OFFSET,
        ]);
    }
    let clip = ew.ew_relu_bypass() == 0 && ew.ew_relux_en() == 1;
    add(used, clip, dpu::EwReluxCmpValue::OFFSET);
}

fn of_rdma(regs: &RegisterFile, used: &mut Vec<u16>) {
    let reads = Reads::decode(regs);
    used.extend([
        dpu_rdma::BrdmaCfg::OFFSET,
        dpu_rdma::NrdmaCfg::OFFSET,
        dpu_rdma::ErdmaCfg::OFFSET,
        dpu_rdma::FeatureModeCfg::OFFSET,
    ]);
    let cubes = reads.main.is_some() || reads.element.is_some();
    if cubes {
        used.extend([
            dpu_rdma::DataCubeWidth::OFFSET,
            dpu_rdma::DataCubeHeight::OFFSET,
        ]);
    }
    let operands = reads.bs.is_some() || reads.bn.is_some();
    add(used, cubes || operands, dpu_rdma::DataCubeChannel::OFFSET);
    add(used, reads.bs.is_some(), dpu_rdma::BsBaseAddr::OFFSET);
    add(used, reads.bn.is_some(), dpu_rdma::BnBaseAddr::OFFSET);
    let several = reads.cube[2] > reads.precision.per_atom();
    if reads.main.is_some() {
        used.push(dpu_rdma::SrcBaseAddr::OFFSET);
        add(used, reads.cube[1] > 1, dpu_rdma::SrcDmaCfg::OFFSET);
        add(used, several, dpu_rdma::SurfNotch::OFFSET);
    }
    if reads.element.is_some() && Ew::wants_memory(regs) {
        used.push(dpu_rdma::EwBaseAddr::OFFSET);
        add(used, several, dpu_rdma::EwSurfStride::OFFSET);
        add(used, several, dpu_rdma::EwSurfNotch::OFFSET);
    }
}

fn of_ppu(regs: &RegisterFile, used: &mut Vec<u16>) {
    used.extend([
        ppu::DataCubeInWidth::OFFSET,
        ppu::DataCubeInHeight::OFFSET,
        ppu::DataCubeOutWidth::OFFSET,
        ppu::DataCubeOutHeight::OFFSET,
        ppu::DataCubeOutChannel::OFFSET,
        ppu::OperationModeCfg::OFFSET,
        ppu::PoolingKernelCfg::OFFSET,
        ppu::PoolingPaddingCfg::OFFSET,
        ppu::DstBaseAddr::OFFSET,
        ppu::DstSurfStride::OFFSET,
        ppu::DataFormat::OFFSET,
        ppu_rdma::CubeInWidth::OFFSET,
        ppu_rdma::CubeInHeight::OFFSET,
        ppu_rdma::CubeInChannel::OFFSET,
        ppu_rdma::SrcBaseAddr::OFFSET,
        ppu_rdma::SrcLineStride::OFFSET,
        ppu_rdma::SrcSurfStride::OFFSET,
        ppu_rdma::DataFormat::OFFSET,
    ]);
    let average = regs.get::<ppu::OperationModeCfg>().pooling_method() == 0;
    add(used, average, ppu::RecipKernelWidth::OFFSET);
    add(used, average, ppu::RecipKernelHeight::OFFSET);
    let padded = regs.get::<ppu::PoolingPaddingCfg>().bits() != 0;
    add(used, padded && !average, ppu::PaddingValue1::OFFSET);
}

fn add(used: &mut Vec<u16>, condition: bool, offset: u16) {
    if condition {
        used.push(offset);
    }
}
