// SPDX-License-Identifier: MIT OR Apache-2.0
//! The register values of a matmul.
//!
//! The program writes every register, also those that are 0, because registers keep
//! the values of earlier programs of any process. A comment marks values that the
//! sources chose without a stated reason.

use super::error::MatmulError;
use super::options::{MatmulForm, ProgramOptions, Reuse};
use super::task::{CbufSplit, MatmulTask};
use super::types::MatmulType;
use crate::chip::ChipProfile;
use crate::field::FieldRangeError;
use crate::program::{Program, RegisterSet, set};
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
    set! { set;
        cna::ConvCon1 { in_precision: code, proc_precision: code }
        // One line more than A has: all must be in CBUF before computing starts.
        cna::ConvCon2 { feature_grains: m + 1 }
        cna::ConvCon3 { conv_x_stride: 1, conv_y_stride: 1 }
        cna::DataSize0 { datain_width: 1, datain_height: m }
        cna::DataSize1 { datain_channel_real: k - 1, datain_channel: k }
        cna::DataSize2 { dataout_width: 1 }
        cna::DataSize3 { dataout_atomics: m }
        cna::WeightSize0 { weight_bytes: kernel * n }
        cna::WeightSize1 { weight_bytes_per_kernel: kernel }
        cna::WeightSize2 { weight_width: 1, weight_height: 1, weight_kernels: n }
        cna::CbufCon0 {
            data_bank: split.data_banks, weight_bank: split.weight_banks,
            data_reuse: reuse.features.into(), weight_reuse: reuse.weights.into()
        }
        cna::CbufCon1 { data_entries: task.entries() }
        // Input conversion is off. Its settings are those of known programs.
        cna::CvtCon0 { cvt_bypass: 1, cvt_type: 1, data_sign: 1 }
        cna::CvtCon1 { cvt_scale: SCALE_ONE }
        cna::CvtCon2 { cvt_scale: SCALE_ONE }
        cna::CvtCon3 { cvt_scale: SCALE_ONE }
        cna::CvtCon4 { cvt_scale: SCALE_ONE }
        cna::DmaCon0 { data_burst_len: BURST_16, weight_burst_len: BURST_16 }
        // Groups of four lines of one atom. SURF_STRIDE does not count the group: it is
        // M atoms less four. M is at most 1020 here.
        cna::DmaCon1 { line_stride: 4 }
        cna::DmaCon2 { surf_stride: m as i32 - 4 }
        cna::FcDataSize0 { dma_width: 1, dma_height: m }
        cna::FcDataSize1 { dma_channel: k }
    }
    set.set_address::<cna::FeatureDataAddr>(task.a)
        .set_address::<cna::DcompAddr0>(task.b);
    Ok(())
}

fn set_core(set: &mut RegisterSet, task: &MatmulTask) -> Result<(), FieldRangeError> {
    // The measured programs sum the input window with fp16 but not with integers.
    // Nothing uses that sum here.
    let qd = match task.ty {
        MatmulType::Fp16ToFp32 | MatmulType::Fp16ToFp16 => 1,
        MatmulType::Int8ToInt32 | MatmulType::Int4ToInt16 => 0,
    };
    set! { set;
        core::MiscCfg { qd_en: qd, proc_precision: task.ty.operand().code() }
        core::DataoutSize0 { dataout_height: task.m - 1 }
        core::DataoutSize1 { dataout_channel: task.n - 1 }
    }
    Ok(())
}

/// Bypasses all stages. The output is a cube of N channels.
fn set_dpu(set: &mut RegisterSet, task: &MatmulTask) -> Result<(), FieldRangeError> {
    let &MatmulTask { ty, m, n, .. } = task;
    let code = ty.operand().code();
    // Atoms of one pixel of a kernel group.
    let group_atoms = ty.n_multiple() * ty.out_bytes() / crate::chip::ATOM_BYTES;
    let size_e = group_atoms - 1;
    set! { set;
        // BS and BN pass everything through, operands are not converted, and all read
        // engines have equal shares of the memory bus.
        dpu::BsCfg { bs_bypass: 1, bs_alu_bypass: 1, bs_mul_bypass: 1, bs_relu_bypass: 1 }
        dpu::BnCfg { bn_bypass: 1, bn_alu_bypass: 1, bn_mul_bypass: 1, bn_relu_bypass: 1 }
        dpu::EwCvtScaleValue { ew_op_cvt_scale: SCALE_ONE }
        dpu_rdma::Weight { m_weight: 1, b_weight: 1, n_weight: 1, e_weight: 1 }
        dpu::FeatureModeCfg { output_mode: TO_MEMORY, burst_len: BURST_16 }
        dpu::DataFormat {
            proc_precision: code, in_precision: code, out_precision: ty.result().code()
        }
        dpu::DstSurfStride { dst_surf_stride: m }
        dpu::DataCubeHeight { height: m - 1 }
        dpu::DataCubeChannel { channel: n - 1, orig_channel: n - 1 }
        dpu::BsOwCfg { od_bypass: 1, size_e_0: size_e, size_e_1: size_e, size_e_2: size_e }
        dpu::WdmaSize0 { channel_wdma: n - 1 }
        dpu::WdmaSize1 { height_wdma: m - 1 }
        dpu::EwCfg {
            ew_bypass: 1, ew_op_bypass: 1, ew_lut_bypass: 1, ew_op_cvt_bypass: 1,
            ew_relu_bypass: 1
        }
        dpu::OutCvtScale { out_cvt_scale: SCALE_ONE.cast_signed(), fp32tofp16_en: narrows(ty) }
        dpu::SurfaceAdd { surf_add: group_atoms * m }
    }
    set.set_address::<dpu::DstBaseAddr>(task.c);
    Ok(())
}

/// Sets the cube of the output, and turns every engine off.
fn set_dpu_rdma(set: &mut RegisterSet, task: &MatmulTask) -> Result<(), FieldRangeError> {
    set! { set;
        dpu_rdma::DataCubeHeight { height: task.m - 1 }
        dpu_rdma::DataCubeChannel { channel: task.n - 1 }
        dpu_rdma::ErdmaCfg { erdma_disable: 1 }
        dpu_rdma::FeatureModeCfg {
            mrdma_disable: 1, burst_len: BURST_16, mrdma_fp16tofp32_en: narrows(task.ty)
        }
    }
    Ok(())
}

/// Whether the output is narrowed from fp32 to fp16.
fn narrows(ty: MatmulType) -> u32 {
    u32::from(ty == MatmulType::Fp16ToFp16)
}
