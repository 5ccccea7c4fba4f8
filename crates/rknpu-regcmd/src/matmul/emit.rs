// SPDX-License-Identifier: MIT OR Apache-2.0
//! The register values of a product.
//!
//! Everything is written, also what is 0: registers keep the values of earlier
//! programs of any process. Which values were chosen by sources without a
//! stated reason is said at the constant.

use super::{CbufSplit, LaidOutTask, MatmulError, MatmulForm, MatmulTask, MatmulType, Reuse};
use crate::field::FieldRangeError;
use crate::field::Register;
use crate::link::POINTER_VALUE;
use crate::passive::{bn_bypassed, bs_bypassed, equal_arbitration};
use crate::program::{Program, RegisterSet};
use crate::regs::{cna, core, dpu, dpu_rdma};
use crate::task::TO_MEMORY;
use crate::word::{Block, EnableMask};

/// Beats less one of the longest bursts, which all known programs use.
const BURST_16: u32 = 15;
/// Multiplier of a converter that changes nothing.
const SCALE_ONE: u32 = 1;

pub(super) fn program(
    laid_out: &LaidOutTask,
    form: MatmulForm,
    split: CbufSplit,
    reuse: Reuse,
) -> Result<Program, MatmulError> {
    let task = &laid_out.task;
    let mut set = RegisterSet::new();
    set_cna(&mut set, laid_out, split, reuse)?;
    set_core(&mut set, task)?;
    set_dpu(&mut set, laid_out)?;

    let mut program = Program::builder();
    program.push(dpu::SPointer::from_bits(POINTER_VALUE));
    let mut enable = EnableMask::CNA | EnableMask::CORE | EnableMask::DPU;
    if form == MatmulForm::B {
        program.push(dpu_rdma::SPointer::from_bits(POINTER_VALUE));
        set_dpu_rdma(&mut set, task)?;
        enable |= EnableMask::DPU_RDMA;
    }
    for block in [Block::Cna, Block::Core, Block::Dpu, Block::DpuRdma] {
        if enable.contains(block.enable()) {
            program.push_block(block, &set);
        }
    }
    Ok(program.finish(enable))
}

/// Features: a cube of width 1, height M, K channels. Weights: N kernels 1x1xK.
fn set_cna(
    set: &mut RegisterSet,
    laid_out: &LaidOutTask,
    split: CbufSplit,
    reuse: Reuse,
) -> Result<(), FieldRangeError> {
    let task = &laid_out.task;
    let (line_stride, surf_stride, line_by_line) = laid_out.feature_walk();
    let &MatmulTask { ty, m, k, n, .. } = task;
    let code = ty.operand().code();
    let kernel = task.kernel_bytes();
    set.set(
        cna::ConvCon1::new()
            .with_in_precision(code)?
            .with_proc_precision(code)?
            .with_group_line_off(line_by_line)?,
    )
    .set(cna::ConvCon2::new().with_feature_grains(laid_out.grains())?)
    .set(
        cna::ConvCon3::new()
            .with_conv_x_stride(1)?
            .with_conv_y_stride(1)?,
    )
    .set(
        cna::DataSize0::new()
            .with_datain_width(1)?
            .with_datain_height(m)?,
    )
    .set(
        cna::DataSize1::new()
            .with_datain_channel_real(k - 1)?
            .with_datain_channel(k)?,
    )
    .set(cna::DataSize2::new().with_dataout_width(1)?)
    .set(cna::DataSize3::new().with_dataout_atomics(m)?)
    .set(cna::WeightSize0::new().with_weight_bytes(kernel * n)?)
    .set(cna::WeightSize1::new().with_weight_bytes_per_kernel(kernel)?)
    .set(
        cna::WeightSize2::new()
            .with_weight_width(1)?
            .with_weight_height(1)?
            .with_weight_kernels(n)?,
    )
    .set(
        cna::CbufCon0::new()
            .with_data_bank(split.data_banks)?
            .with_weight_bank(split.weight_banks)?
            .with_data_reuse(reuse.features.into())?
            .with_weight_reuse(reuse.weights.into())?,
    )
    .set(cna::CbufCon1::new().with_data_entries(task.entries())?)
    // Input conversion off, its settings as known programs leave them.
    .set(
        cna::CvtCon0::new()
            .with_cvt_bypass(1)?
            .with_cvt_type(1)?
            .with_data_sign(1)?,
    )
    .set(cna::CvtCon1::new().with_cvt_scale(SCALE_ONE)?)
    .set(cna::CvtCon2::new().with_cvt_scale(SCALE_ONE)?)
    .set(cna::CvtCon3::new().with_cvt_scale(SCALE_ONE)?)
    .set(cna::CvtCon4::new().with_cvt_scale(SCALE_ONE)?)
    .set_address::<cna::FeatureDataAddr>(task.a)
    .set(
        cna::DmaCon0::new()
            .with_data_burst_len(BURST_16)?
            .with_weight_burst_len(BURST_16)?,
    )
    .set(cna::DmaCon1::new().with_line_stride(line_stride)?)
    .set(cna::DmaCon2::new().with_surf_stride(surf_stride)?)
    .set(
        cna::FcDataSize0::new()
            .with_dma_width(1)?
            .with_dma_height(m)?,
    )
    .set(cna::FcDataSize1::new().with_dma_channel(k)?)
    .set_address::<cna::DcompAddr0>(task.b);
    Ok(())
}

fn set_core(set: &mut RegisterSet, task: &MatmulTask) -> Result<(), FieldRangeError> {
    // As the programs do that were measured: the sum of the input window,
    // which nothing uses here, with fp16 but not with integers.
    let qd = match task.ty {
        MatmulType::Fp16ToFp32 | MatmulType::Fp16ToFp16 => 1,
        MatmulType::Int8ToInt32 | MatmulType::Int4ToInt16 => 0,
    };
    set.set(
        core::MiscCfg::new()
            .with_qd_en(qd)?
            .with_proc_precision(task.ty.operand().code())?,
    )
    .set(core::DataoutSize0::new().with_dataout_height(task.m - 1)?)
    .set(core::DataoutSize1::new().with_dataout_channel(task.n - 1)?);
    Ok(())
}

/// All stages bypassed, the output a cube or matrix of N channels.
fn set_dpu(set: &mut RegisterSet, laid_out: &LaidOutTask) -> Result<(), FieldRangeError> {
    let task = &laid_out.task;
    let (surf_stride, notch) = laid_out.writer_walk();
    let &MatmulTask { ty, m, n, .. } = task;
    let code = ty.operand().code();
    // Atoms of one pixel of a kernel group.
    let group_atoms = ty.n_multiple() * ty.out_bytes() / crate::chip::ATOM_BYTES;
    let size_e = group_atoms - 1;
    set.set(
        dpu::FeatureModeCfg::new()
            .with_output_mode(TO_MEMORY)?
            .with_burst_len(BURST_16)?,
    )
    .set(
        dpu::DataFormat::new()
            .with_proc_precision(code)?
            .with_in_precision(code)?
            .with_out_precision(ty.result().code())?,
    )
    .set_address::<dpu::DstBaseAddr>(task.c)
    .set(dpu::DstSurfStride::new().with_dst_surf_stride(surf_stride)?)
    .set(
        dpu::DataCubeNotchAddr::new()
            .with_notch_addr_0(notch)?
            .with_notch_addr_1(notch)?,
    )
    .set(dpu::DataCubeHeight::new().with_height(m - 1)?)
    .set(
        dpu::DataCubeChannel::new()
            .with_channel(n - 1)?
            .with_orig_channel(n - 1)?,
    )
    .set(bs_bypassed()?)
    .set(
        dpu::BsOwCfg::new()
            .with_od_bypass(1)?
            .with_size_e_0(size_e)?
            .with_size_e_1(size_e)?
            .with_size_e_2(size_e)?,
    )
    .set(dpu::WdmaSize0::new().with_channel_wdma(n - 1)?)
    .set(dpu::WdmaSize1::new().with_height_wdma(m - 1)?)
    .set(bn_bypassed()?)
    .set(
        dpu::EwCfg::new()
            .with_ew_bypass(1)?
            .with_ew_op_bypass(1)?
            .with_ew_lut_bypass(1)?
            .with_ew_op_cvt_bypass(1)?
            .with_ew_relu_bypass(1)?,
    )
    .set(dpu::EwCvtScaleValue::new().with_ew_op_cvt_scale(SCALE_ONE)?)
    .set(
        dpu::OutCvtScale::new()
            .with_out_cvt_scale(SCALE_ONE.cast_signed())?
            .with_fp32tofp16_en(narrows(ty))?,
    )
    .set(dpu::SurfaceAdd::new().with_surf_add(group_atoms * surf_stride)?);
    Ok(())
}

/// The cube of the output, every engine off.
fn set_dpu_rdma(set: &mut RegisterSet, task: &MatmulTask) -> Result<(), FieldRangeError> {
    set.set(dpu_rdma::DataCubeHeight::new().with_height(task.m - 1)?)
        .set(dpu_rdma::DataCubeChannel::new().with_channel(task.n - 1)?)
        .set(dpu_rdma::ErdmaCfg::new().with_erdma_disable(1)?)
        .set(
            dpu_rdma::FeatureModeCfg::new()
                .with_mrdma_disable(1)?
                .with_burst_len(BURST_16)?
                .with_mrdma_fp16tofp32_en(narrows(task.ty))?,
        )
        .set(equal_arbitration()?);
    Ok(())
}

/// Whether the output is narrowed from fp32 to fp16.
fn narrows(ty: MatmulType) -> u32 {
    u32::from(ty == MatmulType::Fp16ToFp16)
}
