// SPDX-License-Identifier: MIT OR Apache-2.0
//! The shape of a program: words, register groups, blocks.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::view::{Finding, View};
use crate::chip::ATOM_BYTES;
use crate::decode::{Item, decode};
use crate::field::{Register, RegisterAccess, RegisterInfo};
use crate::program::POINTER_VALUE;
use crate::regs::dpu;
use crate::regs::{self, pc};
use crate::rules::{ENABLE_MASK, FIELD_OVERFLOW, Rule, program, words as rules};
use crate::task::Task;
use crate::word::{Block, EnableMask, Iova, Word};

/// Checks that the program's address is that of an atom.
pub(super) fn check_address(address: Option<Iova>, findings: &mut Vec<Finding>) {
    if let Some(address) = address.filter(|address| !address.0.is_multiple_of(ATOM_BYTES)) {
        let message = format!("the program lies at {address}");
        let (rule, registers) = (&program::PROGRAM_ADDRESS, [pc::BaseAddress::INFO]);
        findings.push(Finding::of(rule, 0, None, &registers, message));
    }
}

/// Checks the words after the last task.
pub(super) fn check_rest(words: &[Word], tasks: usize, end: usize, findings: &mut Vec<Finding>) {
    // The last task, and the first word after it, if there are any.
    let (task, word) = (tasks.saturating_sub(1), (end < words.len()).then_some(end));
    let mut report = |rule: &Rule, message: String| {
        findings.push(Finding::of(rule, task, word, &[], message));
    };
    if tasks == 0 {
        report(&program::NO_ENABLE, "no enable word".into());
        return;
    }
    let rest = words.get(end..).unwrap_or_default();
    if rest.iter().any(|&word| word != Word::NOP) {
        let message = format!("{} words behind the last enable word", rest.len());
        report(&rules::WORDS_AFTER_END, message);
    }
    if !words.len().is_multiple_of(2) {
        report(&rules::ODD_LENGTH, format!("{} words", words.len()));
    }
}

impl View<'_> {
    pub(super) fn check_structure(&mut self) {
        for (at, item) in decode(self.words).enumerate() {
            self.check_word(at, item);
        }
        if self.words.iter().rev().nth(1) != Some(&Word::MARKER) {
            let message = "no marker directly before the enable word";
            self.report(&rules::NO_MARKER, &[], message);
        }
        for pointer in regs::all().filter(|register| register.is_pointer()) {
            self.check_pointer(pointer);
        }
        self.check_blocks();
        self.check_link();
    }

    fn check_word(&mut self, at: usize, item: Item) {
        let word = Some(self.task.words.start + at);
        let mut report = |rule: &Rule, registers: &[_], message: String| {
            let finding = Finding::of(rule, self.index, word, registers, message);
            self.findings.push(finding);
        };
        match item {
            Item::Write { register, value } => {
                if let Some(message) = register.overflow(value) {
                    report(&FIELD_OVERFLOW, &[register], message);
                }
                if register.access != RegisterAccess::Program {
                    let message = format!("{value:#010x} is written");
                    report(&rules::DRIVER_REGISTER, &[register], message);
                }
                if register.is_address && !value.is_multiple_of(ATOM_BYTES) {
                    let message = format!("{value:#010x} is no multiple of 16");
                    report(&rules::MISALIGNED, &[register], message);
                }
            }
            Item::Undeclared(_, word) => {
                let (offset, value) = (word.offset(), word.value());
                let message = format!("{value:#010x} is written to offset {offset:#06x}");
                report(&rules::UNDECLARED_REGISTER, &[], message);
            }
            Item::Unknown(_) => report(&program::UNKNOWN_WORD, &[], item.to_string()),
            Item::Enable(_) | Item::Marker | Item::Nop(_) => {}
        }
    }

    /// Checks that a block's S_POINTER is written, first, and with the usual value.
    fn check_pointer(&mut self, pointer: &'static RegisterInfo) {
        let block = pointer.block;
        let runs = self.runs(block.enable());
        let has_kernel = matches!(block, Block::Cna | Block::Core);
        if !self.writes(pointer) {
            let again = self.chained.contains(block.enable());
            if runs && (again || !has_kernel) {
                let rule = program::without_pointer(block, self.task.enable, self.chained);
                let again = if has_kernel { " again" } else { "" };
                let message = format!("{block} is started{again} without an S_POINTER write");
                self.report(rule, &[pointer], message);
            }
            return;
        }
        if has_kernel {
            let message = format!("the program writes the S_POINTER of {block}");
            self.report(&program::CORE_NUMBER, &[pointer], message);
            return;
        }
        let value = self.task.regs.value(pointer.offset);
        if value != POINTER_VALUE {
            let message = format!("S_POINTER of {block} is {value:#x}");
            self.report(&rules::POINTER_VALUE, &[pointer], message);
        }
        let mut block_writes = decode(self.words).filter_map(|item| match item {
            Item::Write { register, .. } if register.block == block => Some(register),
            _ => None,
        });
        if let Some(first) = block_writes.next().filter(|first| !first.is_pointer()) {
            let message = format!("{} is written before the S_POINTER of {block}", first.name);
            self.report(&rules::LATE_POINTER, &[pointer, first], message);
        }
    }

    /// Checks that every block that starts gets its data from one that starts.
    fn check_blocks(&mut self) {
        let enable = self.task.enable;
        let unknown = enable.bits() & !EnableMask::all().bits();
        if unknown != 0 {
            let mask = enable.bits();
            let message = format!("the mask {mask:#x} has unknown bits {unknown:#x}");
            self.report(&rules::UNKNOWN_BLOCK, &[], message);
        }
        for why in Task::all(&self.task.regs, enable).filter_map(Result::err) {
            self.report(&ENABLE_MASK, &[], why.to_string());
        }
        let flies = self.get::<dpu::FeatureModeCfg>().flying_mode() == 1;
        if flies && enable.contains(EnableMask::CORE.union(EnableMask::DPU_RDMA)) {
            let message = "CORE runs, but the DPU takes its input from memory";
            self.report(&ENABLE_MASK, &[], message);
        }
    }

    fn link(&self) -> Option<u32> {
        let info = pc::BaseAddress::INFO;
        let address = self.task.regs.value(info.offset);
        (self.writes(info) && address != 0).then_some(address)
    }

    /// The blocks that this task, and those before it in a chain, have started.
    pub(super) fn chained_after(&self) -> EnableMask {
        match self.link() {
            Some(_) => self.chained | self.task.enable,
            None => EnableMask::empty(),
        }
    }

    /// Checks that the address of a chain's next program is that of an atom.
    fn check_link(&mut self) {
        if let Some(link) = self.link().filter(|link| !link.is_multiple_of(ATOM_BYTES)) {
            let message = format!("the link is {link:#010x}");
            self.report(&program::PROGRAM_ADDRESS, &[pc::BaseAddress::INFO], message);
        }
    }
}
