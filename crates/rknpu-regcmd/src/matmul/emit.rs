// SPDX-License-Identifier: MIT OR Apache-2.0
//! The register values of a matmul.
//!
//! The program writes every register, also those that are 0, because registers keep
//! the values of earlier programs of any process. A comment marks values that the
//! sources chose without a stated reason.

use super::error::MatmulError;
use super::options::{MatmulForm, ProgramOptions, Reuse};
use super::task::{CbufSplit, MatmulTask};
use super::types::TaskType;
use crate::chip::ChipProfile;
use crate::field::FieldRangeError;
use crate::program::{Program, RegisterSet};
use crate::regs::{cna, core, dpu, dpu_rdma};
use crate::task::{CONVOLUTION, TO_MEMORY};
use crate::word::EnableMask;

/// Beats less one of the longest bursts, which all known programs use.
const BURST_16: u32 = 15;
/// Multiplier of a converter that changes nothing.
const SCALE_ONE: u32 = 1;

impl MatmulTask {
    /// The register program, in the form that ran on the mainline driver.
    ///
    /// # Errors
    /// The rule that the task breaks.
    pub fn program(&self, chip: &ChipProfile) -> Result<Program, MatmulError> {
        self.program_in(MatmulForm::default(), chip)
    }

    /// The register program, in the given form.
    ///
    /// # Errors
    /// The rule that the task breaks.
    pub fn program_in(&self, form: MatmulForm, chip: &ChipProfile) -> Result<Program, MatmulError> {
        let options = ProgramOptions {
            form,
            ..ProgramOptions::default()
        };
        self.program_with(&options, chip)
    }

    /// The register program, with these options.
    ///
    /// # Errors
    /// The rule that the task breaks.
    pub fn program_with(
        &self,
        options: &ProgramOptions,
        chip: &ChipProfile,
    ) -> Result<Program, MatmulError> {
        let split = self.split(options, chip)?;
        program(self, options.form, split, Reuse::default())
    }

    /// The register program of this task, if it follows `before` in its job. It does
    /// not fetch the operands again that `before` left in CBUF, if
    /// [`ProgramOptions::reuse`] allows that.
    ///
    /// # Errors
    /// The rule that one of the tasks breaks.
    pub fn program_after(
        &self,
        before: &Self,
        options: &ProgramOptions,
        chip: &ChipProfile,
    ) -> Result<Program, MatmulError> {
        let reuse = self.reuse_after(before, options, chip)?;
        program(self, options.form, self.split(options, chip)?, reuse)
    }
}

fn program(
    task: &MatmulTask,
    form: MatmulForm,
    split: CbufSplit,
    reuse: Reuse,
) -> Result<Program, MatmulError> {
    let mut set = RegisterSet::new();
    set_cna(&mut set, task, split, reuse)?;
    set_core(&mut set, task)?;
    set_dpu(&mut set, task)?;
    if form == MatmulForm::A {
        return Ok(set.program(CONVOLUTION));
    }
    set_dpu_rdma(&mut set, task)?;
    Ok(set.program(CONVOLUTION | EnableMask::DPU_RDMA))
}

/// Features: a cube of width 1, height M, K channels. Weights: N kernels 1x1xK.
fn set_cna(
    set: &mut RegisterSet,
    task: &MatmulTask,
    split: CbufSplit,
    reuse: Reuse,
) -> Result<(), FieldRangeError> {
    let &MatmulTask { ty, m, k, n, .. } = task;
    let code = ty.operand().code();
    let kernel = task.kernel_bytes();
    set.set_field(cna::ConvCon1::with_in_precision, code)?;
    set.set_field(cna::ConvCon1::with_proc_precision, code)?;
    // One line more than A has: all must be in CBUF before computing starts.
    set.set_field(cna::ConvCon2::with_feature_grains, m + 1)?;
    set.set_field(cna::ConvCon3::with_conv_x_stride, 1)?;
    set.set_field(cna::ConvCon3::with_conv_y_stride, 1)?;
    set.set_field(cna::DataSize0::with_datain_width, 1)?;
    set.set_field(cna::DataSize0::with_datain_height, m)?;
    set.set_field(cna::DataSize1::with_datain_channel_real, k - 1)?;
    set.set_field(cna::DataSize1::with_datain_channel, k)?;
    set.set_field(cna::DataSize2::with_dataout_width, 1)?;
    set.set_field(cna::DataSize3::with_dataout_atomics, m)?;
    set.set_field(cna::WeightSize0::with_weight_bytes, kernel * n)?;
    set.set_field(cna::WeightSize1::with_weight_bytes_per_kernel, kernel)?;
    set.set_field(cna::WeightSize2::with_weight_width, 1)?;
    set.set_field(cna::WeightSize2::with_weight_height, 1)?;
    set.set_field(cna::WeightSize2::with_weight_kernels, n)?;
    set.set_field(cna::CbufCon0::with_data_bank, split.data_banks)?;
    set.set_field(cna::CbufCon0::with_weight_bank, split.weight_banks)?;
    set.set_field(cna::CbufCon0::with_data_reuse, reuse.features.into())?;
    set.set_field(cna::CbufCon0::with_weight_reuse, reuse.weights.into())?;
    set.set_field(cna::CbufCon1::with_data_entries, task.entries())?;
    // Input conversion is off. Its settings are those of known programs.
    set.set_field(cna::CvtCon0::with_cvt_bypass, 1)?;
    set.set_field(cna::CvtCon0::with_cvt_type, 1)?;
    set.set_field(cna::CvtCon0::with_data_sign, 1)?;
    set.set_field(cna::CvtCon1::with_cvt_scale, SCALE_ONE)?;
    set.set_field(cna::CvtCon2::with_cvt_scale, SCALE_ONE)?;
    set.set_field(cna::CvtCon3::with_cvt_scale, SCALE_ONE)?;
    set.set_field(cna::CvtCon4::with_cvt_scale, SCALE_ONE)?;
    set.set_field(cna::DmaCon0::with_data_burst_len, BURST_16)?;
    set.set_field(cna::DmaCon0::with_weight_burst_len, BURST_16)?;
    // Groups of four lines of one atom. SURF_STRIDE does not count the group: it is
    // M atoms less four. M is at most 1020 here.
    set.set_field(cna::DmaCon1::with_line_stride, 4)?;
    set.set_field(cna::DmaCon2::with_surf_stride, m as i32 - 4)?;
    set.set_field(cna::FcDataSize0::with_dma_width, 1)?;
    set.set_field(cna::FcDataSize0::with_dma_height, m)?;
    set.set_field(cna::FcDataSize1::with_dma_channel, k)?;
    set.set_address::<cna::FeatureDataAddr>(task.a)
        .set_address::<cna::DcompAddr0>(task.b);
    Ok(())
}

fn set_core(set: &mut RegisterSet, task: &MatmulTask) -> Result<(), FieldRangeError> {
    // The measured programs sum the input window with fp16 but not with integers.
    // Nothing uses that sum here.
    let qd = match task.ty {
        TaskType::Fp16ToFp32 | TaskType::Fp16ToFp16 => 1,
        TaskType::Int8ToInt32 | TaskType::Int4ToInt16 => 0,
    };
    set.set_field(core::MiscCfg::with_qd_en, qd)?;
    set.set_field(core::MiscCfg::with_proc_precision, task.ty.operand().code())?;
    set.set_field(core::DataoutSize0::with_dataout_height, task.m - 1)?;
    set.set_field(core::DataoutSize1::with_dataout_channel, task.n - 1)?;
    Ok(())
}

/// Bypasses all stages. The output is a cube of N channels.
fn set_dpu(set: &mut RegisterSet, task: &MatmulTask) -> Result<(), FieldRangeError> {
    let &MatmulTask { ty, m, n, .. } = task;
    let code = ty.operand().code();
    // Atoms of one pixel of a kernel group.
    let group_atoms = ty.n_multiple() * ty.out_bytes() / crate::chip::ATOM_BYTES;
    let size_e = group_atoms - 1;
    // BS and BN pass everything through, operands are not converted, and all read
    // engines have equal shares of the memory bus.
    set.set_field(dpu::BsCfg::with_bs_bypass, 1)?;
    set.set_field(dpu::BsCfg::with_bs_alu_bypass, 1)?;
    set.set_field(dpu::BsCfg::with_bs_mul_bypass, 1)?;
    set.set_field(dpu::BsCfg::with_bs_relu_bypass, 1)?;
    set.set_field(dpu::BnCfg::with_bn_bypass, 1)?;
    set.set_field(dpu::BnCfg::with_bn_alu_bypass, 1)?;
    set.set_field(dpu::BnCfg::with_bn_mul_bypass, 1)?;
    set.set_field(dpu::BnCfg::with_bn_relu_bypass, 1)?;
    set.set_field(dpu::EwCvtScaleValue::with_ew_op_cvt_scale, SCALE_ONE)?;
    set.set_field(dpu_rdma::Weight::with_m_weight, 1)?;
    set.set_field(dpu_rdma::Weight::with_b_weight, 1)?;
    set.set_field(dpu_rdma::Weight::with_n_weight, 1)?;
    set.set_field(dpu_rdma::Weight::with_e_weight, 1)?;
    set.set_field(dpu::FeatureModeCfg::with_output_mode, TO_MEMORY)?;
    set.set_field(dpu::FeatureModeCfg::with_burst_len, BURST_16)?;
    set.set_field(dpu::DataFormat::with_proc_precision, code)?;
    set.set_field(dpu::DataFormat::with_in_precision, code)?;
    set.set_field(dpu::DataFormat::with_out_precision, ty.result().code())?;
    set.set_field(dpu::DstSurfStride::with_dst_surf_stride, m)?;
    set.set_field(dpu::DataCubeHeight::with_height, m - 1)?;
    set.set_field(dpu::DataCubeChannel::with_channel, n - 1)?;
    set.set_field(dpu::DataCubeChannel::with_orig_channel, n - 1)?;
    set.set_field(dpu::BsOwCfg::with_od_bypass, 1)?;
    set.set_field(dpu::BsOwCfg::with_size_e_0, size_e)?;
    set.set_field(dpu::BsOwCfg::with_size_e_1, size_e)?;
    set.set_field(dpu::BsOwCfg::with_size_e_2, size_e)?;
    set.set_field(dpu::WdmaSize0::with_channel_wdma, n - 1)?;
    set.set_field(dpu::WdmaSize1::with_height_wdma, m - 1)?;
    set.set_field(dpu::EwCfg::with_ew_bypass, 1)?;
    set.set_field(dpu::EwCfg::with_ew_op_bypass, 1)?;
    set.set_field(dpu::EwCfg::with_ew_lut_bypass, 1)?;
    set.set_field(dpu::EwCfg::with_ew_op_cvt_bypass, 1)?;
    set.set_field(dpu::EwCfg::with_ew_relu_bypass, 1)?;
    set.set_field(
        dpu::OutCvtScale::with_out_cvt_scale,
        SCALE_ONE.cast_signed(),
    )?;
    set.set_field(dpu::OutCvtScale::with_fp32tofp16_en, narrows(ty))?;
    set.set_field(dpu::SurfaceAdd::with_surf_add, group_atoms * m)?;
    set.set_address::<dpu::DstBaseAddr>(task.c);
    Ok(())
}

/// Sets the cube of the output, and turns every engine off.
fn set_dpu_rdma(set: &mut RegisterSet, task: &MatmulTask) -> Result<(), FieldRangeError> {
    set.set_field(dpu_rdma::DataCubeHeight::with_height, task.m - 1)?;
    set.set_field(dpu_rdma::DataCubeChannel::with_channel, task.n - 1)?;
    set.set_field(dpu_rdma::ErdmaCfg::with_erdma_disable, 1)?;
    set.set_field(dpu_rdma::FeatureModeCfg::with_mrdma_disable, 1)?;
    set.set_field(dpu_rdma::FeatureModeCfg::with_burst_len, BURST_16)?;
    set.set_field(
        dpu_rdma::FeatureModeCfg::with_mrdma_fp16tofp32_en,
        narrows(task.ty),
    )?;
    Ok(())
}

/// Whether the output is narrowed from fp32 to fp16.
fn narrows(ty: TaskType) -> u32 {
    u32::from(ty == TaskType::Fp16ToFp16)
}
