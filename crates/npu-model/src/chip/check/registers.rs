// SPDX-License-Identifier: MIT OR Apache-2.0
//! Registers that an earlier task left as they are.

use rknpu_regcmd::RegisterFile;
use rknpu_regcmd::regs::{cna, core, dpu, dpu_rdma};

use super::shown;
use crate::chip::Effect;
use crate::chip::conv_config::ConvConfig;
use crate::chip::precision::Precision;
use crate::chip::trap::{Report, Stop};

/// Whether the program is one of a few changed registers, which was measured
/// to leave its output untouched.
pub(crate) fn delta(report: &mut Report, regs: &RegisterFile, flying: bool) -> Result<bool, Stop> {
    let written = |offset| regs.was_written(offset);
    let (size, precision) = if flying {
        let mode = written(dpu_rdma::FeatureModeCfg::OFFSET);
        (written(dpu::DataCubeWidth::OFFSET), mode)
    } else {
        let con1 = written(cna::ConvCon1::OFFSET);
        (written(cna::DataSize0::OFFSET), con1)
    };
    let format = written(dpu::DataFormat::OFFSET);
    if size && written(dpu::DstBaseAddr::OFFSET) && (precision || format) {
        return Ok(false);
    }
    report.note(
        "T07-delta-program",
        Effect::NoWrite,
        &[
            shown::<dpu::DstBaseAddr>(regs),
            shown::<dpu::DataFormat>(regs),
        ],
        "the program does not write the sizes, the output address or any precision, \
         and relies on those of an earlier task",
        "write every register that the task uses",
    )?;
    Ok(true)
}

/// Weight decompression.
pub(crate) fn compression(
    report: &mut Report,
    regs: &RegisterFile,
    conv: &ConvConfig,
) -> Result<(), Stop> {
    if conv.compressed.is_none() {
        return Ok(());
    }
    let show = [
        shown::<cna::DcompCtrl>(regs),
        shown::<cna::DcompRegnum>(regs),
    ];
    if !regs.was_written(cna::DcompCtrl::OFFSET) {
        report.note(
            "T14-stale-decompression",
            Effect::Garbage,
            &show,
            "an earlier task left DCOMP_CTRL on: the weights are decoded as a compressed stream",
            "write 0 to DCOMP_CTRL and DCOMP_REGNUM in every program",
        )?;
    }
    if regs.get::<cna::DcompRegnum>().decomp_regnum() != DCOMP_KNOWN_MODE
        || conv.weights.precision != Precision::Int8
    {
        report.note(
            "H06-decompression-mode",
            Effect::Note,
            &show,
            "only DCOMP_REGNUM 0x55555555 with int8 weights is known; it is decoded as that",
            "write 0x55555555 to DCOMP_REGNUM",
        )?;
    }
    Ok(())
}

/// DCOMP_REGNUM of the known programs.
const DCOMP_KNOWN_MODE: u32 = 0x5555_5555;

/// The weight zero point correction without its sum.
pub(crate) fn correction(
    report: &mut Report,
    regs: &RegisterFile,
    conv: &ConvConfig,
) -> Result<(), Stop> {
    let ow = regs.get::<dpu::BsOwCfg>();
    let op = regs.get::<dpu::BsOwOp>().ow_op();
    if conv.precision.is_float() || ow.od_bypass() == 1 || op == 0 {
        return Ok(());
    }
    let show = [
        shown::<dpu::BsOwCfg>(regs),
        shown::<dpu::BsOwOp>(regs),
        shown::<core::MiscCfg>(regs),
    ];
    if !conv.sum_features {
        report.note(
            "T51-no-feature-sum",
            Effect::Note,
            &show,
            "BS_OW_OP corrects the weights, but QD_EN is 0: there is no sum to correct by (inferred)",
            "set MISC_CFG.qd_en, or BS_OW_CFG.od_bypass where no correction is meant",
        )?;
    }
    if !regs.was_written(dpu::BsOwOp::OFFSET) {
        report.note(
            "T51-stale-ow-op",
            Effect::Garbage,
            &show,
            format!("{op} of an earlier task is added to every weight"),
            "write BS_OW_OP in every program that leaves od_bypass 0",
        )?;
    }
    Ok(())
}
