// SPDX-License-Identifier: MIT OR Apache-2.0
//! Experiments with flying operations: the DPU alone, on one atom of eight
//! fp16 values from memory, as allbilly's programs have it.

use half::f16;
use rknpu_regcmd::regs::{dpu, dpu_rdma};
use rknpu_regcmd::task::FLYING;
use rknpu_regcmd::{FieldRangeError, Precision, RegisterSet};

use crate::experiment::{Experiment, OUT, TaskTemplate, input};

/// Beats less one of the longest bursts.
const BURST_16: u32 = 15;
/// Values of an atom.
const LANES: u32 = 8;
/// Operands of two bytes, one for each pixel and channel.
const OPERAND_16_BITS: u32 = 2;
const OPERAND_PER_PIXEL: u32 = 1;

/// Registers of the DPU in a flying fp16 task of `pixels` atoms in a line,
/// with BS, BN and EW bypassed.
pub(super) fn dpu_registers(pixels: u32) -> Result<RegisterSet, FieldRangeError> {
    let mut set = RegisterSet::new();
    set.set(
        dpu::FeatureModeCfg::new()
            .with_flying_mode(1)?
            .with_output_mode(2)?
            .with_burst_len(BURST_16)?,
    )
    .set(
        dpu::DataFormat::new()
            .with_proc_precision(Precision::Fp16.code())?
            .with_in_precision(Precision::Fp16.code())?
            .with_out_precision(Precision::Fp16.code())?,
    )
    .set_address::<dpu::DstBaseAddr>(OUT.at(0));
    set.set(dpu::DstSurfStride::new().with_dst_surf_stride(pixels)?)
        .set(dpu::DataCubeWidth::new().with_width(pixels - 1)?)
        .set(
            dpu::DataCubeChannel::new()
                .with_channel(LANES - 1)?
                .with_orig_channel(LANES - 1)?,
        )
        .set(
            dpu::BsCfg::new()
                .with_bs_bypass(1)?
                .with_bs_alu_bypass(1)?
                .with_bs_mul_bypass(1)?
                .with_bs_relu_bypass(1)?,
        )
        .set(dpu::BsOwCfg::new().with_od_bypass(1)?)
        .set(dpu::WdmaSize0::new().with_channel_wdma(LANES - 1)?)
        .set(dpu::WdmaSize1::new().with_width_wdma(pixels - 1)?)
        .set(
            dpu::BnCfg::new()
                .with_bn_bypass(1)?
                .with_bn_alu_bypass(1)?
                .with_bn_mul_bypass(1)?
                .with_bn_relu_bypass(1)?,
        )
        .set(dpu::EwCvtScaleValue::new().with_ew_op_cvt_scale(1)?)
        .set(
            dpu::OutCvtScale::new()
                .with_out_cvt_scale(1)?
                .with_fp32tofp16_en(1)?,
        )
        .set(dpu::SurfaceAdd::new().with_surf_add(pixels)?);
    Ok(set)
}

/// Registers of DPU_RDMA that feed it `pixels` atoms of [`input`] 0.
pub(super) fn reader(set: &mut RegisterSet, pixels: u32) -> Result<(), FieldRangeError> {
    set.set(dpu_rdma::DataCubeWidth::new().with_width(pixels - 1)?)
        .set(dpu_rdma::DataCubeChannel::new().with_channel(LANES - 1)?)
        .set_address::<dpu_rdma::SrcBaseAddr>(input(0).at(0));
    set.set(dpu_rdma::ErdmaCfg::new().with_erdma_disable(1)?)
        .set(
            dpu_rdma::FeatureModeCfg::new()
                .with_flying_mode(1)?
                .with_mrdma_fp16tofp32_en(1)?
                .with_proc_precision(Precision::Fp16.code())?
                .with_burst_len(BURST_16)?
                .with_in_precision(Precision::Fp16.code())?,
        )
        .set(
            dpu_rdma::Weight::new()
                .with_m_weight(1)?
                .with_b_weight(1)?
                .with_n_weight(1)?
                .with_e_weight(1)?,
        );
    Ok(())
}

/// What EW does with two operands.
#[derive(Clone, Copy)]
pub(crate) enum FlyingOperation {
    Max = 0,
    Min = 1,
    Add = 2,
}

/// One operation on the atoms of [`input`] 0 and 1.
pub(crate) fn flying(
    operation: FlyingOperation,
    a: [f32; 8],
    b: [f32; 8],
) -> anyhow::Result<Experiment> {
    let mut registers = dpu_registers(1)?;
    registers.set(
        dpu::EwCfg::new()
            .with_ew_op_src(1)?
            .with_ew_lut_bypass(1)?
            .with_ew_relu_bypass(1)?
            .with_ew_alu_algo(operation as u32)?
            .with_edata_size(OPERAND_16_BITS)?
            .with_ew_data_mode(OPERAND_PER_PIXEL)?,
    );
    reader(&mut registers, 1)?;
    registers
        .set(
            dpu_rdma::ErdmaCfg::new()
                .with_erdma_data_size(OPERAND_16_BITS)?
                .with_erdma_data_mode(OPERAND_PER_PIXEL)?,
        )
        .set_address::<dpu_rdma::EwBaseAddr>(input(1).at(0));
    registers.set(dpu_rdma::EwSurfStride::new().with_ew_surf_stride(1)?);
    let inputs = vec![fp16_bytes(a), fp16_bytes(b)];
    Ok(Experiment::of(
        inputs,
        (LANES * 2) as usize,
        TaskTemplate::of(&registers.program(FLYING)),
    ))
}

/// Values as they lie in memory.
pub(super) fn fp16_bytes(values: impl IntoIterator<Item = f32>) -> Vec<u8> {
    values
        .into_iter()
        .flat_map(|value| f16::from_f32(value).to_le_bytes())
        .collect()
}

/// A sum, with no word about BS and BN. An active BS with operands of 0 gives
/// a sum without the first operand, or none.
pub(super) fn fresh_stages() -> anyhow::Result<Experiment> {
    let mut experiment = flying(FlyingOperation::Add, [1.5; 8], [2.0; 8])?;
    for task in &mut experiment.jobs[0].tasks {
        task.leave_out::<dpu::BsCfg>()
            .leave_out::<dpu::BsAluCfg>()
            .leave_out::<dpu::BsMulCfg>()
            .leave_out::<dpu::BsReluxCmpValue>()
            .leave_out::<dpu::BnCfg>()
            .leave_out::<dpu::BnAluCfg>()
            .leave_out::<dpu::BnMulCfg>()
            .leave_out::<dpu::BnReluxCmpValue>();
    }
    Ok(experiment)
}

/// Zeros, whose exponent field is below any MINUS_EXP.
pub(super) fn small_exponent() -> anyhow::Result<Experiment> {
    let mut experiment = flying(FlyingOperation::Add, [0.0; 8], [0.0; 8])?;
    for task in &mut experiment.jobs[0].tasks {
        task.put(
            dpu::OutCvtShift::new()
                .with_cvt_type(1)?
                .with_minus_exp(15)?,
        );
    }
    Ok(experiment)
}

/// A sum with COMB_USE 5: both engines read.
pub(super) fn flying_dual() -> anyhow::Result<Experiment> {
    let mut experiment = flying(
        FlyingOperation::Add,
        [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0],
        [0.5; 8],
    )?;
    for task in &mut experiment.jobs[0].tasks {
        // One atom for each engine, whichever of the two buffers it is from.
        let mode = task.value::<dpu_rdma::FeatureModeCfg>();
        task.prove_as(mode).put(mode.with_comb_use(5)?);
    }
    Ok(experiment)
}

/// The NaN in the first place, in the second, in both and in none.
pub(super) fn nan_compare() -> anyhow::Result<Experiment> {
    const NAN: f32 = f32::NAN;
    flying(
        FlyingOperation::Max,
        [NAN, 1.0, NAN, 1.0, NAN, -1.0, -1.0, 3.0],
        [1.0, NAN, -1.0, 2.0, NAN, NAN, 2.0, 1.0],
    )
}
