// SPDX-License-Identifier: MIT OR Apache-2.0
//! Registers that an earlier task left as they are, and values that their
//! registers cut.

use rknpu_regcmd::regs::{self, cna};
use rknpu_regcmd::rules::{FIELD_OVERFLOW, STALE_DECOMPRESSION, STALE_REGISTERS};
use rknpu_regcmd::task::{RegisterUse, use_of};
use rknpu_regcmd::{Block, EnableMask, RegisterFile, RegisterInfo};

use crate::contested::FreshStages;
use crate::conv_config::ConvConfig;
use crate::trap::{DiagnosisReport, Stop, shown};
use crate::{Contested, registers};

/// Registers that a diagnosis shows.
const SHOWN: usize = 6;

/// Looks for registers that the task depends on, that its program does not
/// write, and that hold something else than after a reset.
pub(crate) fn stale(
    report: &mut DiagnosisReport,
    regs: &RegisterFile,
    enable: EnableMask,
    contested: &Contested,
) -> Result<(), Stop> {
    let fresh = |offset| match contested.fresh_stages {
        FreshStages::Bypassed => registers::value_after_reset(offset),
        FreshStages::Active => 0,
    };
    let is_stale = |info: &&RegisterInfo| {
        !regs.was_written(info.offset)
            && regs.value(info.offset) != fresh(info.offset)
            && use_of(regs, enable, info) == RegisterUse::Computed
    };
    let mut found: Vec<&RegisterInfo> = regs::all().filter(is_stale).collect();
    if found.is_empty() {
        return Ok(());
    }
    let values = format!("{} registers are used and not written", found.len());
    found.truncate(SHOWN);
    report.tell(&STALE_REGISTERS, &shown(&found, regs), &values)
}

/// Values with bits beyond the fields of their register.
pub(crate) fn overflowing(
    report: &mut DiagnosisReport,
    regs: &RegisterFile,
    ran: impl Fn(Block) -> bool,
) -> Result<(), Stop> {
    for (offset, value) in regs.written() {
        let Some(info) = regs::lookup(offset).filter(|info| ran(info.block)) else {
            continue;
        };
        let lost = info.lost_bits(value);
        if lost != 0 {
            let values = format!("bits {lost:#010x} of {value:#010x} are in no field");
            return report.tell(&FIELD_OVERFLOW, &shown(&[info], regs), &values);
        }
    }
    Ok(())
}

/// Weights that an earlier task's registers decode.
pub(crate) fn compression(
    report: &mut DiagnosisReport,
    regs: &RegisterFile,
    conv: &ConvConfig,
) -> Result<(), Stop> {
    if conv.compressed.is_none() || regs.was_written(cna::DcompCtrl::OFFSET) {
        return Ok(());
    }
    report.broken(
        &STALE_DECOMPRESSION,
        regs,
        "DCOMP_CTRL is on and not written",
    )
}
