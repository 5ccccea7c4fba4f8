// SPDX-License-Identifier: MIT OR Apache-2.0
//! Experiments with flying operations: the DPU alone, on atoms of eight fp16 values from
//! memory, as in allbilly's programs.

use rknpu_regcmd::regs::{dpu, dpu_rdma};
use rknpu_regcmd::task::FLYING;
use rknpu_regcmd::{FieldRangeError, Precision};

use crate::experiment::matmul::fp16_bytes;
use crate::experiment::{Experiment, OUT, TaskTemplate, input, put};

/// Beats of the longest burst, minus one.
const BURST_16: u32 = 15;
/// Values per atom.
const LANES: u32 = 8;
/// Operands of two bytes, one per pixel and channel.
const OPERAND_16_BITS: u32 = 2;
const OPERAND_PER_PIXEL: u32 = 1;
/// COMB_USE: both engines read.
const COMBINED: u32 = 5;
pub(crate) const FP16: u32 = Precision::Fp16.code();

/// A flying fp16 task of `pixels` atoms in a line, with BS, BN and EW bypassed, without its
/// [`reader`].
pub(crate) fn writer(pixels: u32) -> Result<TaskTemplate, FieldRangeError> {
    let mut task = TaskTemplate::blank(FLYING);
    put! { task;
        dpu::FeatureModeCfg { flying_mode: 1, output_mode: 2, burst_len: BURST_16 }
        dpu::DataFormat { proc_precision: FP16, in_precision: FP16, out_precision: FP16 }
        dpu::DstSurfStride { dst_surf_stride: pixels }
        dpu::DataCubeWidth { width: pixels - 1 }
        dpu::DataCubeChannel { channel: LANES - 1, orig_channel: LANES - 1 }
        dpu::BsCfg { bs_bypass: 1, bs_alu_bypass: 1, bs_mul_bypass: 1, bs_relu_bypass: 1 }
        dpu::BsOwCfg { od_bypass: 1 }
        dpu::WdmaSize0 { channel_wdma: LANES - 1 }
        dpu::WdmaSize1 { width_wdma: pixels - 1 }
        dpu::BnCfg { bn_bypass: 1, bn_alu_bypass: 1, bn_mul_bypass: 1, bn_relu_bypass: 1 }
        dpu::EwCvtScaleValue { ew_op_cvt_scale: 1 }
        dpu::OutCvtScale { out_cvt_scale: 1, fp32tofp16_en: 1 }
        dpu::SurfaceAdd { surf_add: pixels }
    }
    task.put_address::<dpu::DstBaseAddr>(OUT.at(0));
    Ok(task)
}

/// Sets the registers of DPU_RDMA that feed `pixels` atoms of [`input`] 0.
pub(crate) fn reader(task: &mut TaskTemplate, pixels: u32) -> Result<(), FieldRangeError> {
    put! { task;
        dpu_rdma::DataCubeWidth { width: pixels - 1 }
        dpu_rdma::DataCubeChannel { channel: LANES - 1 }
        dpu_rdma::ErdmaCfg { erdma_disable: 1 }
        dpu_rdma::FeatureModeCfg {
            flying_mode: 1, mrdma_fp16tofp32_en: 1, proc_precision: FP16,
            burst_len: BURST_16, in_precision: FP16
        }
        dpu_rdma::Weight { m_weight: 1, b_weight: 1, n_weight: 1, e_weight: 1 }
    }
    task.put_address::<dpu_rdma::SrcBaseAddr>(input(0).at(0));
    Ok(())
}

/// The operation of EW on two operands.
#[derive(Clone, Copy)]
pub(crate) enum FlyingOperation {
    Max = 0,
    Min = 1,
    Add = 2,
}

/// Sets EW's second operand: from memory, two bytes per pixel and channel.
pub(crate) fn operand(
    task: &mut TaskTemplate,
    algo: FlyingOperation,
) -> Result<(), FieldRangeError> {
    put! { task;
        dpu::EwCfg {
            ew_op_src: 1, ew_lut_bypass: 1, ew_relu_bypass: 1, ew_alu_algo: algo as u32,
            edata_size: OPERAND_16_BITS, ew_data_mode: OPERAND_PER_PIXEL
        }
        dpu_rdma::ErdmaCfg { erdma_data_size: OPERAND_16_BITS, erdma_data_mode: OPERAND_PER_PIXEL }
    }
    Ok(())
}

/// Sets `mode` with COMB_USE 5; accesses are computed without it.
pub(crate) fn combined(
    task: &mut TaskTemplate,
    mode: dpu_rdma::FeatureModeCfg,
) -> Result<(), FieldRangeError> {
    task.prove_as(mode).put(mode.with_comb_use(COMBINED)?);
    Ok(())
}

/// One operation on the atoms of [`input`] 0 and 1.
pub(crate) fn flying(
    operation: FlyingOperation,
    a: [f32; 8],
    b: [f32; 8],
) -> anyhow::Result<Experiment> {
    let mut task = writer(1)?;
    reader(&mut task, 1)?;
    operand(&mut task, operation)?;
    task.put_address::<dpu_rdma::EwBaseAddr>(input(1).at(0));
    put!(task; dpu_rdma::EwSurfStride { ew_surf_stride: 1 });
    let inputs = vec![fp16_bytes(a), fp16_bytes(b)];
    Ok(Experiment::of(
        inputs,
        (LANES * 2) as usize,
        vec![vec![task]],
    ))
}

/// A sum whose program writes no register of BS and BN. An active BS with operands of 0
/// loses the first operand, or the whole sum.
pub(crate) fn fresh_stages() -> anyhow::Result<Experiment> {
    let mut experiment = flying(FlyingOperation::Add, [1.5; 8], [2.0; 8])?;
    experiment
        .task()
        .leave_out::<dpu::BsCfg>()
        .leave_out::<dpu::BsAluCfg>()
        .leave_out::<dpu::BsMulCfg>()
        .leave_out::<dpu::BsReluxCmpValue>()
        .leave_out::<dpu::BnCfg>()
        .leave_out::<dpu::BnAluCfg>()
        .leave_out::<dpu::BnMulCfg>()
        .leave_out::<dpu::BnReluxCmpValue>();
    Ok(experiment)
}

/// A sum of zeros, whose exponent field is below any MINUS_EXP.
pub(crate) fn small_exponent() -> anyhow::Result<Experiment> {
    let mut experiment = flying(FlyingOperation::Add, [0.0; 8], [0.0; 8])?;
    put!(experiment.task(); dpu::OutCvtShift { cvt_type: 1, minus_exp: 15 });
    Ok(experiment)
}

/// A sum with COMB_USE 5: both engines read.
pub(crate) fn flying_dual() -> anyhow::Result<Experiment> {
    let a = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0];
    let mut experiment = flying(FlyingOperation::Add, a, [0.5; 8])?;
    // Each engine reads one atom, from either of the two buffers.
    let mode = experiment.task().value::<dpu_rdma::FeatureModeCfg>();
    combined(experiment.task(), mode)?;
    Ok(experiment)
}

/// Maxima of pairs with a NaN in the first place, in the second, in both, or in none.
pub(crate) fn nan_compare() -> anyhow::Result<Experiment> {
    const NAN: f32 = f32::NAN;
    let a = [NAN, 1.0, NAN, 1.0, NAN, -1.0, -1.0, 3.0];
    let b = [1.0, NAN, -1.0, 2.0, NAN, NAN, 2.0, 1.0];
    flying(FlyingOperation::Max, a, b)
}
