// SPDX-License-Identifier: MIT OR Apache-2.0
//! Operands of the DPU: who reads them, and who takes them.

use alloc::format;

use super::{Findings, View, rules};
use crate::extent::{self, DmaEngine, Extent};
use crate::field::Register;
use crate::precision::Precision;
use crate::regs::{dpu, dpu_rdma};
use crate::task::COMB_SHARED;
use crate::word::EnableMask;

/// EW ALU operation: add.
const ADD: u32 = 2;
/// The notch that known generators write at least, atoms.
const NOTCH_MIN: usize = 12;
/// Codes of EDATA_SIZE.
const SIZE_16: u32 = 2;
/// As SIZE_16.
const SIZE_32: u32 = 3;
/// DATA_USE: the ALU's operand, and the multiplier's.
const USE_ALU: u32 = 1;
/// As USE_ALU: the weight zero point correction.
const USE_CPEND: u32 = 2;
/// As USE_ALU.
const USE_MUL: u32 = 4;
/// As USE_ALU: the multiplier's shift.
const USE_SHIFT: u32 = 8;

pub(super) fn check(view: &View<'_>, findings: &mut Findings) {
    if !view.runs(EnableMask::DPU) {
        return;
    }
    check_element(view, findings);
    check_operation(view, findings);
    check_stage_operands(view, findings);
    if view.runs(EnableMask::DPU_RDMA) {
        check_main(view, findings);
        check_shared(view, findings);
    }
}

fn flying(view: &View<'_>) -> bool {
    view.get::<dpu::FeatureModeCfg>().flying_mode() == 1
}

/// Whether EW takes an operand, from memory or a register.
fn operates(view: &View<'_>) -> bool {
    let ew = view.get::<dpu::EwCfg>();
    ew.ew_bypass() == 0 && ew.ew_op_bypass() == 0
}

fn takes_from_memory(view: &View<'_>) -> bool {
    operates(view) && view.get::<dpu::EwCfg>().ew_op_src() == 1
}

fn erdma_runs(view: &View<'_>) -> bool {
    view.runs(EnableMask::DPU_RDMA) && view.get::<dpu_rdma::ErdmaCfg>().erdma_disable() == 0
}

/// MRDMA and whoever takes its data.
fn check_main(view: &View<'_>, findings: &mut Findings) {
    let mode = view.get::<dpu_rdma::FeatureModeCfg>();
    let main = mode.mrdma_disable() == 0;
    let registers = [dpu_rdma::FeatureModeCfg::INFO, dpu::FeatureModeCfg::INFO];
    if (mode.flying_mode() == 1) != flying(view) || flying(view) && !main {
        let message = format!(
            "FLYING_MODE is {} in the DPU, {} in DPU_RDMA, MRDMA_DISABLE {}",
            u32::from(flying(view)),
            mode.flying_mode(),
            mode.mrdma_disable()
        );
        findings.report(view, &rules::FLYING_MISMATCH, &registers, message);
    }
    if flying(view) {
        return;
    }
    if main && !takes_from_memory(view) {
        let message = "MRDMA is on, and neither the main input nor EW comes from it".into();
        let registers = [dpu_rdma::FeatureModeCfg::INFO, dpu::EwCfg::INFO];
        findings.report(view, &rules::MRDMA_UNFED, &registers, message);
    }
    if !main && erdma_runs(view) {
        let message = "ERDMA is on, MRDMA off".into();
        let registers = [dpu_rdma::ErdmaCfg::INFO, dpu_rdma::FeatureModeCfg::INFO];
        findings.report(view, &rules::ERDMA_ALONE, &registers, message);
    }
}

/// ERDMA and EW.
fn check_element(view: &View<'_>, findings: &mut Findings) {
    let (taken, read) = (takes_from_memory(view), erdma_runs(view));
    let registers = [dpu::EwCfg::INFO, dpu_rdma::ErdmaCfg::INFO];
    if taken && !read {
        let message = "EW takes its operand from memory, ERDMA does not run".into();
        findings.report(view, &rules::ERDMA_OFF, &registers, message);
    }
    if read && !taken {
        let message = "ERDMA runs, EW takes no operand from memory".into();
        findings.report(view, &rules::ERDMA_UNUSED, &registers, message);
    }
    if !(taken && read) {
        return;
    }
    let size = view.get::<dpu::EwCfg>().edata_size();
    let read = view.get::<dpu_rdma::ErdmaCfg>().erdma_data_size();
    if size != read {
        let message = format!("EDATA_SIZE is {size}, ERDMA_DATA_SIZE {read}");
        findings.report(view, &rules::EDATA_SIZE, &registers, message);
    }
    let mode = view.get::<dpu_rdma::FeatureModeCfg>();
    if size == SIZE_16 && Precision::from_code(mode.proc_precision()) == Precision::Int8 {
        let message = "a 16-bit operand with DPU_RDMA PROC_PRECISION 0".into();
        let registers = [dpu::EwCfg::INFO, dpu_rdma::FeatureModeCfg::INFO];
        findings.report(view, &rules::EW_AS_INT8, &registers, message);
    }
}

/// The settings of an addition, by type and feed.
fn check_operation(view: &View<'_>, findings: &mut Findings) {
    let ew = view.get::<dpu::EwCfg>();
    let adds = ew.ew_op_type() == 0 && ew.ew_alu_algo() == ADD;
    if !takes_from_memory(view) || !adds {
        return;
    }
    let proc = Precision::from_code(view.get::<dpu::DataFormat>().proc_precision());
    let registers = [dpu::EwCfg::INFO, dpu::DataFormat::INFO];
    if flying(view) {
        if proc == Precision::Int32 && ew.ew_op_cvt_bypass() == 0 {
            let message = "int32 addition with the operand's conversion on".into();
            findings.report(view, &rules::INT32_ADD_CVT, &registers, message);
        }
        return;
    }
    if proc == Precision::Fp16 && ew.ew_op_cvt_bypass() == 1 {
        let message = "fp16 addition behind a convolution with OP_CVT_BYPASS".into();
        findings.report(view, &rules::FP16_ADD_CVT, &registers, message);
    }
    let integer = matches!(proc, Precision::Int8 | Precision::Int16 | Precision::Int4);
    if integer && ew.edata_size() == SIZE_32 {
        let message = "a 32-bit operand is added behind an integer convolution".into();
        findings.report(view, &rules::INT32_ADD_CONV, &registers, message);
    }
}

/// Operands of BS and BN that come from memory.
fn check_stage_operands(view: &View<'_>, findings: &mut Findings) {
    let rdma = view.runs(EnableMask::DPU_RDMA);
    let (bs, bn) = (view.get::<dpu::BsCfg>(), view.get::<dpu::BnCfg>());
    let bs_mul = view.get::<dpu::BsMulCfg>();
    let bn_mul = view.get::<dpu::BnMulCfg>();
    let ow = view.get::<dpu::BsOwCfg>();
    let from_memory = |on: bool, bypass: u32, source: u32, operand: u32| {
        if on && bypass == 0 && source == 1 {
            operand
        } else {
            0
        }
    };
    let bs_on = bs.bs_bypass() == 0;
    let bn_on = bn.bn_bypass() == 0;
    for (name, read, wanted, registers) in [
        (
            "BS",
            view.get::<dpu_rdma::BrdmaCfg>().brdma_data_use(),
            from_memory(bs_on, bs.bs_alu_bypass(), bs.bs_alu_src(), USE_ALU)
                | from_memory(true, ow.od_bypass(), ow.ow_src(), USE_CPEND)
                | from_memory(bs_on, bs.bs_mul_bypass(), bs_mul.bs_mul_src(), USE_MUL)
                | from_memory(
                    bs_on,
                    bs.bs_mul_bypass(),
                    bs_mul.bs_truncate_src(),
                    USE_SHIFT,
                ),
            [dpu::BsCfg::INFO, dpu_rdma::BrdmaCfg::INFO],
        ),
        (
            "BN",
            view.get::<dpu_rdma::NrdmaCfg>().nrdma_data_use(),
            from_memory(bn_on, bn.bn_alu_bypass(), bn.bn_alu_src(), USE_ALU)
                | from_memory(bn_on, bn.bn_mul_bypass(), bn_mul.bn_mul_src(), USE_MUL)
                | from_memory(
                    bn_on,
                    bn.bn_mul_bypass(),
                    bn_mul.bn_truncate_src(),
                    USE_SHIFT,
                ),
            [dpu::BnCfg::INFO, dpu_rdma::NrdmaCfg::INFO],
        ),
    ] {
        let read = if rdma { read } else { 0 };
        let message = format!("{name} takes operands {wanted:#x} from memory, read are {read:#x}");
        if wanted & !read != 0 {
            findings.report(view, &rules::BRDMA_OFF, &registers, message);
        } else if wanted == 0 && read != 0 {
            findings.report(view, &rules::BRDMA_UNUSED, &registers, message);
        }
    }
}

/// One operand for both engines, surface by surface.
fn check_shared(view: &View<'_>, findings: &mut Findings) {
    let Some(reads) = view
        .conv
        .reads
        .filter(|reads| reads.comb_use == COMB_SHARED)
    else {
        return;
    };
    let Some(main) = reads.main.map(|read| read.surface_notch) else {
        return;
    };
    let fmc = dpu_rdma::FeatureModeCfg::INFO;
    if flying(view) {
        let message = "COMB_USE is 5, and the main input comes from memory".into();
        findings.report(view, &rules::FLYING_COMB, &[fmc], message);
        return;
    }
    let pixels = reads.pixels();
    let element = view.get::<dpu_rdma::EwSurfNotch>().ew_surf_notch();
    let registers = [fmc, dpu_rdma::SurfNotch::INFO, dpu_rdma::EwSurfNotch::INFO];
    let bits = Precision::of_dpu(reads.precision.code()).map_or(0, Precision::bits);
    // Two surfaces need no step.
    let several = reads.cube[2] * bits as usize > 2 * 128;
    if (main == 0 || element == 0) && several {
        let message = format!("notches {main} and {element} with surfaces of {pixels} pixels");
        findings.report(view, &rules::COMB_NOTCH, &registers, message);
    } else if pixels < NOTCH_MIN && main == NOTCH_MIN && several {
        let message = format!("notch {main} with surfaces of {pixels} pixels");
        findings.report(view, &rules::COMB_SMALL, &registers, message);
    }
    check_in_place(view, findings);
}

/// A convolution may not add to the cube that it writes.
fn check_in_place(view: &View<'_>, findings: &mut Findings) {
    let Ok(extents) = extent::extents(&view.task.regs, view.task.enable) else {
        return;
    };
    let of = |engine: DmaEngine| extents.iter().find(|extent| extent.engine == engine);
    let meet = |a: &Extent, b: &Extent| a.start < b.end && b.start < a.end;
    let Some(written) = of(DmaEngine::DpuWrite) else {
        return;
    };
    for engine in [DmaEngine::Mrdma, DmaEngine::Erdma] {
        if let Some(read) = of(engine).filter(|read| meet(read, written)) {
            let message = format!("{read} meets {written}");
            let registers = [dpu::DstBaseAddr::INFO, dpu_rdma::SrcBaseAddr::INFO];
            findings.report(view, &rules::IN_PLACE, &registers, message);
            return;
        }
    }
}
