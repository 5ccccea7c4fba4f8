// SPDX-License-Identifier: MIT OR Apache-2.0
//! Registers that a task uses without writing them.
//!
//! Registers keep their values from task to task, job to job and process to
//! process.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::{Findings, View};
use crate::field::{Register, RegisterInfo};
use crate::regs::{self, cna, dpu};
use crate::rules::{STALE_DECOMPRESSION, STALE_REGISTERS, words as rules};
use crate::task::{Use, use_of};
use crate::word::EnableMask;

/// Operands of stages that are taken from registers.
const OPERANDS: [u16; 4] = [
    dpu::BsAluCfg::OFFSET,
    dpu::BsMulCfg::OFFSET,
    dpu::BnAluCfg::OFFSET,
    dpu::BnMulCfg::OFFSET,
];

/// `zeroed`: whether registers that no task here wrote hold 0.
pub(super) fn check(view: &View<'_>, zeroed: bool, findings: &mut Findings) {
    check_decompression(view, zeroed, findings);
    let mut alone = Vec::new();
    for info in regs::all() {
        // Have a rule of their own.
        let decompression = [cna::DcompCtrl::OFFSET, cna::DcompRegnum::OFFSET];
        if view.writes(info)
            || decompression.contains(&info.offset)
            || use_of(&view.task.regs, view.task.enable, info) == Use::Unused
        {
            continue;
        }
        let value = view.task.regs.value(info.offset);
        if value != 0 {
            let message = format!("{}.{} still holds {value:#010x}", info.block, info.name);
            findings.report(view, &STALE_REGISTERS, &[info], message);
        } else if OPERANDS.contains(&info.offset) && !zeroed {
            let message = format!("{}.{} is used and not written", info.block, info.name);
            findings.report(view, &rules::OPERAND_LEFT, &[info], message);
        } else {
            alone.push(info);
        }
    }
    if !alone.is_empty() {
        let message = format!(
            "{} used registers are not written: {}",
            alone.len(),
            names(&alone)
        );
        findings.report(view, &rules::LEFT_TO_CHANCE, &[], message);
    }
}

/// Weights are raw only if the program says so.
fn check_decompression(view: &View<'_>, zeroed: bool, findings: &mut Findings) {
    if !view.runs(EnableMask::CNA) || view.get::<cna::CbufCon0>().weight_reuse() == 1 {
        return;
    }
    for info in [cna::DcompCtrl::INFO, cna::DcompRegnum::INFO] {
        let value = view.task.regs.value(info.offset);
        if view.writes(info) {
            continue;
        }
        if value != 0 {
            let message = format!("CNA.{} still holds {value:#010x}", info.name);
            findings.report(view, &STALE_DECOMPRESSION, &[info], message);
        } else if !zeroed {
            let message = format!("CNA.{} is not written", info.name);
            findings.report(view, &STALE_DECOMPRESSION, &[info], message);
        }
    }
}

fn names(registers: &[&RegisterInfo]) -> String {
    let mut text = String::new();
    for register in registers {
        if !text.is_empty() {
            text.push_str(", ");
        }
        text.push_str(register.block.name());
        text.push('.');
        text.push_str(register.name);
    }
    text
}
