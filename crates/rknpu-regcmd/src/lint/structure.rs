// SPDX-License-Identifier: MIT OR Apache-2.0
//! The shape of a program: words, register groups, blocks.

use alloc::format;

use super::{Finding, Findings, View};
use crate::chip::ATOM_BYTES;
use crate::decode::{Item, decode};
use crate::field::{Access, Kind, Register, RegisterInfo};
use crate::link::POINTER_VALUE;
use crate::regs::dpu;
use crate::regs::{self, pc};
use crate::rules::{ENABLE_MASK, FIELD_OVERFLOW, Rule, program, words as rules};
use crate::task::{FLYING, Task};
use crate::word::{Block, EnableMask, Iova, Word};

pub(super) fn check(view: &View<'_>, findings: &mut Findings) {
    for (at, item) in decode(view.words).enumerate() {
        check_word(view, at, item, findings);
    }
    let marked = view
        .words
        .iter()
        .rev()
        .nth(1)
        .is_some_and(|w| *w == Word::MARKER);
    if !marked {
        let message = "no marker directly before the enable word".into();
        findings.report(view, &rules::NO_MARKER, &[], message);
    }
    check_pointers(view, findings);
    check_blocks(view, findings);
    check_link(view, findings);
}

/// Where PC is told to fetch.
pub(super) fn check_address(address: Option<Iova>, findings: &mut Findings) {
    let Some(address) = address.filter(|address| !address.0.is_multiple_of(ATOM_BYTES)) else {
        return;
    };
    let rule = &program::PROGRAM_ADDRESS;
    findings.0.push(Finding {
        rule: rule.id,
        severity: rule.severity,
        task: 0,
        word: None,
        registers: alloc::vec![pc::BaseAddress::INFO],
        message: format!("the program lies at {address}"),
        remedy: rule.remedy,
    });
}

/// What stands behind the last task.
pub(super) fn check_rest(words: &[Word], tasks: usize, end: usize, findings: &mut Findings) {
    let mut report = |rule: &'static Rule, message: alloc::string::String| {
        findings.0.push(Finding {
            rule: rule.id,
            severity: rule.severity,
            task: tasks.saturating_sub(1),
            // Where the tasks end, if there is a word at all.
            word: (end < words.len()).then_some(end),
            registers: alloc::vec::Vec::new(),
            message,
            remedy: rule.remedy,
        });
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
        let message = format!("{} words", words.len());
        report(&rules::ODD_LENGTH, message);
    }
}

fn check_word(view: &View<'_>, at: usize, item: Item, findings: &mut Findings) {
    match item {
        Item::Write { register, value } => {
            let lost = register.lost_bits(value);
            if lost != 0 {
                let message = format!("bits {lost:#010x} of {value:#010x} are in no field");
                findings.report_word(view, &FIELD_OVERFLOW, at, &[register], message);
            }
            if register.access != Access::Program {
                let message = format!("{value:#010x} is written");
                findings.report_word(view, &rules::DRIVER_REGISTER, at, &[register], message);
            }
            if register.kind == Kind::Address && !value.is_multiple_of(ATOM_BYTES) {
                let message = format!("{value:#010x} is no multiple of 16");
                findings.report_word(view, &rules::MISALIGNED, at, &[register], message);
            }
        }
        Item::Undeclared { offset, value, .. } => {
            let message = format!("{value:#010x} is written to offset {offset:#06x}");
            findings.report_word(view, &rules::UNDECLARED_REGISTER, at, &[], message);
        }
        Item::Unknown(_) => {
            let message = format!("{item}");
            findings.report_word(view, &program::UNKNOWN_WORD, at, &[], message);
        }
        Item::Enable(_) | Item::Marker | Item::Nop(_) => {}
    }
}

/// S_POINTER of every block: there, first, and as always.
fn check_pointers(view: &View<'_>, findings: &mut Findings) {
    for block in Block::ALL {
        let Some(pointer) = pointer_of(block) else {
            continue;
        };
        let by_kernel = matches!(block, Block::Cna | Block::Core);
        let written = view.writes(pointer);
        if by_kernel {
            if written {
                let message = format!("the program writes the S_POINTER of {block}");
                findings.report(view, &program::CORE_NUMBER, &[pointer], message);
            } else if view.runs(block.enable()) && view.chained.contains(block.enable()) {
                let message = format!("{block} is started again without an S_POINTER write");
                findings.report(view, &program::CORE_POINTER_IN_CHAIN, &[pointer], message);
            }
            continue;
        }
        if !written {
            if view.runs(block.enable()) {
                let rule = if view.chained.contains(block.enable()) {
                    &program::NO_POINTER_IN_CHAIN
                } else if view.task.enable == FLYING {
                    &program::NO_POINTER_FLYING
                } else {
                    &program::NO_POINTER
                };
                let message = format!("{block} is started without an S_POINTER write");
                findings.report(view, rule, &[pointer], message);
            }
            continue;
        }
        let value = view.task.regs.value(pointer.offset);
        if value != POINTER_VALUE {
            let message = format!("S_POINTER of {block} is {value:#x}");
            findings.report(view, &rules::POINTER_VALUE, &[pointer], message);
        }
        let mut of_block = decode(view.words).filter_map(|item| match item {
            Item::Write { register, .. } if register.block == block => Some(register),
            _ => None,
        });
        if let Some(first) = of_block.next().filter(|first| !first.is_pointer()) {
            let message = format!("{} is written before the S_POINTER of {block}", first.name);
            findings.report(view, &rules::LATE_POINTER, &[pointer, first], message);
        }
    }
}

fn pointer_of(block: Block) -> Option<&'static RegisterInfo> {
    let mut registers = regs::of_block(block).iter().copied();
    registers.find(|register| register.is_pointer())
}

/// Every block that is started gets its data from one that is, too.
fn check_blocks(view: &View<'_>, findings: &mut Findings) {
    let enable = view.task.enable;
    let unknown = enable.bits() & !EnableMask::all().bits();
    if unknown != 0 {
        let message = format!(
            "the mask {:#x} has unknown bits {unknown:#x}",
            enable.bits()
        );
        findings.report(view, &rules::UNKNOWN_BLOCK, &[], message);
    }
    for why in Task::all(&view.task.regs, enable).filter_map(Result::err) {
        findings.report(view, &ENABLE_MASK, &[], format!("{why}"));
    }
    let flies = view.get::<dpu::FeatureModeCfg>().flying_mode() == 1;
    if flies && enable.contains(EnableMask::CORE.union(EnableMask::DPU_RDMA)) {
        let message = "CORE runs, but the DPU takes its input from memory".into();
        findings.report(view, &ENABLE_MASK, &[], message);
    }
}

/// The program that the trailer links to.
fn link(view: &View<'_>) -> Option<u32> {
    let info = pc::BaseAddress::INFO;
    let address = view.task.regs.value(info.offset);
    (view.writes(info) && address != 0).then_some(address)
}

/// What the next task finds started by those before it in a chain.
pub(super) fn chained_after(view: &View<'_>) -> EnableMask {
    match link(view) {
        Some(_) => view.chained | view.task.enable,
        None => EnableMask::empty(),
    }
}

/// Where a chain goes on.
fn check_link(view: &View<'_>, findings: &mut Findings) {
    if let Some(link) = link(view).filter(|link| !link.is_multiple_of(ATOM_BYTES)) {
        let info = pc::BaseAddress::INFO;
        let message = format!("the link is {link:#010x}");
        findings.report(view, &program::PROGRAM_ADDRESS, &[info], message);
    }
}
