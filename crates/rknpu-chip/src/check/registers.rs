// SPDX-License-Identifier: MIT OR Apache-2.0
//! Registers that an earlier task left as they are.

use rknpu_regcmd::regs::{self, cna, core, dpu, dpu_rdma};
use rknpu_regcmd::{Block, FieldInfo, RegisterFile};

use super::shown;
use crate::conv_config::ConvConfig;
use crate::precision::Precision;
use crate::trap::{Report, Stop};
use crate::{Contested, DeltaProgram, Effect};

/// Whether the program is one of a few changed registers, which was measured
/// to leave its output untouched.
pub(crate) fn delta(
    report: &mut Report,
    regs: &RegisterFile,
    flying: bool,
    contested: &Contested,
) -> Result<bool, Stop> {
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
    let runs = contested.delta_program == DeltaProgram::Runs;
    report.note(
        "T07-delta-program",
        if runs {
            Effect::Garbage
        } else {
            Effect::NoWrite
        },
        &[
            shown::<dpu::DstBaseAddr>(regs),
            shown::<dpu::DataFormat>(regs),
        ],
        "the program does not write the sizes, the output address or any precision, \
         and relies on those of an earlier task",
        "write every register that the task uses",
    )?;
    Ok(!runs)
}

/// Values with bits beyond the fields of their register: silicon drops them.
/// The sign of a negative stride is none.
pub(crate) fn overflowing(
    report: &mut Report,
    regs: &RegisterFile,
    ran: impl Fn(Block) -> bool,
) -> Result<(), Stop> {
    for (offset, value) in regs.written() {
        let Some(info) = regs::lookup(offset).filter(|info| ran(info.block)) else {
            continue;
        };
        let lost = value & !info.declared_bits();
        let sign = |field: &FieldInfo| {
            field.signed
                && field.extract_signed(value) < 0
                && lost == !(u32::MAX >> (u32::BITS - 1 - u32::from(field.msb)))
        };
        if lost != 0 && !info.fields.iter().any(sign) {
            return report.note(
                "T30-field-overflow",
                Effect::Note,
                &[(info.name, value)],
                format!(
                    "bits {lost:#010x} are beyond the fields of {}, and are dropped",
                    info.name
                ),
                "keep sizes below 8192 (CNA widths and heights below 2048), strides within 28 bits",
            );
        }
    }
    Ok(())
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
