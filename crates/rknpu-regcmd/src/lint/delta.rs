// SPDX-License-Identifier: MIT OR Apache-2.0
//! Registers that a task uses without writing them.
//!
//! Registers keep their values from task to task, job to job and process to
//! process.

use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;

use super::view::View;
use crate::field::Register;
use crate::regs::{cna, dpu};
use crate::rules::{STALE_DECOMPRESSION, STALE_REGISTERS, words as rules};
use crate::task::unwritten;
use crate::word::EnableMask;

/// Registers that hold operands of stages.
const OPERANDS: [u16; 4] = [
    dpu::BsAluCfg::OFFSET,
    dpu::BsMulCfg::OFFSET,
    dpu::BnAluCfg::OFFSET,
    dpu::BnMulCfg::OFFSET,
];

impl View<'_> {
    /// Reports registers that the task uses but does not write. `zeroed`: whether
    /// registers that no task here wrote hold 0.
    pub(super) fn check_unwritten(&mut self, zeroed: bool) {
        self.check_decompression(zeroed);
        let mut alone = Vec::new();
        // These have a separate rule.
        let decompression = [cna::DcompCtrl::OFFSET, cna::DcompRegnum::OFFSET];
        let unwritten = unwritten(&self.task.regs, self.task.enable).map(|(info, _)| info);
        for info in unwritten.filter(|info| !decompression.contains(&info.offset)) {
            let value = self.task.regs.value(info.offset);
            if value != 0 {
                let message = format!("{info} still holds {value:#010x}");
                self.report(&STALE_REGISTERS, &[info], message);
            } else if OPERANDS.contains(&info.offset) && !zeroed {
                let message = format!("{info} is used and not written");
                self.report(&rules::OPERAND_LEFT, &[info], message);
            } else {
                alone.push(info.to_string());
            }
        }
        if !alone.is_empty() {
            let (count, names) = (alone.len(), alone.join(", "));
            let message = format!("{count} used registers are not written: {names}");
            self.report(&rules::UNWRITTEN_REGISTER, &[], message);
        }
    }

    /// Reports a task that inherits a mode of weight decompression.
    fn check_decompression(&mut self, zeroed: bool) {
        if !self.runs(EnableMask::CNA) || self.conv.cbuf.weight_reuse {
            return;
        }
        for info in [cna::DcompCtrl::INFO, cna::DcompRegnum::INFO] {
            let value = self.task.regs.value(info.offset);
            if self.writes(info) || value == 0 && zeroed {
                continue;
            }
            let message = match value {
                0 => format!("{info} is not written"),
                _ => format!("{info} still holds {value:#010x}"),
            };
            self.report(&STALE_DECOMPRESSION, &[info], message);
        }
    }
}
