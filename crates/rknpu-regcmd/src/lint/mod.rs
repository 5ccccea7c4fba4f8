// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is wrong with a program, found in its words.
//!
//! - An *error* is a program that must not run: it would hang, write rubbish,
//!   or not write.
//! - A *warning* is one that works only under conditions that the words do not
//!   show.
//! - A *note* is worth knowing.
//!
//! No program family that is known to work gets an error or a warning; the
//! tests hold the rules to that. The rules themselves, with what is known
//! about each, are [`RULES`](crate::rules::TABLE).

mod delta;
mod reuse;
mod structure;
mod view;

use alloc::string::ToString;
use alloc::vec::Vec;

use crate::extent::{self, ExtentError};
use crate::regfile::RegisterFile;
use crate::rules::words as rules;
use crate::task::{ConvTask, Task, TaskRegisters, tasks_after};
use crate::word::{EnableMask, Iova, Word};

pub use crate::rules::{Rule, Severity};
pub use view::Finding;
use view::View;

/// What the registers hold before the program.
#[derive(Clone, Debug, Default)]
pub enum Before {
    /// Anything: other programs may have run.
    #[default]
    Unknown,
    /// 0, as after power-up or a reset.
    Reset,
    /// What earlier programs left.
    Known(RegisterFile),
}

/// What the words do not tell.
#[derive(Clone, Debug, Default)]
pub struct LintContext {
    /// What the registers hold before the first word.
    pub before: Before,
    /// Whether earlier tasks of the same job ran on the core, so that CBUF
    /// holds their data.
    pub continues_job: bool,
    /// Where the first word lies, if that is known.
    pub address: Option<Iova>,
}

/// What is wrong with `words`, by task and then by rule. Any words give an answer.
#[must_use]
pub fn lint(words: &[Word], context: &LintContext) -> Vec<Finding> {
    let mut findings = Vec::new();
    let before = match &context.before {
        Before::Known(regs) => regs.clone(),
        Before::Unknown | Before::Reset => RegisterFile::new(),
    };
    let zeroed = !matches!(context.before, Before::Unknown);
    // The task that filled CBUF last, if it is known.
    let mut left = match &context.before {
        Before::Known(regs) if context.continues_job => Some(ConvTask::decode(regs, false)),
        _ => None,
    };
    let mut chained = EnableMask::empty();
    let mut count = 0;
    let mut end = 0;
    for (index, task) in tasks_after(words, before).enumerate() {
        let conv = ConvTask::decode(&task.regs, true);
        let mut view = View {
            index,
            words: words.get(task.words.clone()).unwrap_or_default(),
            task: &task,
            first_in_job: index == 0 && !context.continues_job,
            left,
            chained,
            conv,
            findings: &mut findings,
        };
        view.check_structure();
        view.check_registers();
        view.check_reuse();
        view.check_unwritten(zeroed);
        view.check_extents();
        chained = view.chained_after();
        (count, end) = (index + 1, task.words.end);
        if task.enable.contains(EnableMask::CNA) {
            left = Some(conv);
        }
    }
    structure::check_rest(words, count, end, &mut findings);
    structure::check_address(context.address, &mut findings);
    findings
}

impl View<'_> {
    /// The rows of the table that the registers show.
    fn check_registers(&mut self) {
        let TaskRegisters { regs, enable, .. } = self.task;
        for task in Task::all(regs, *enable).flatten() {
            for (rule, values) in crate::rules::broken(&task, regs) {
                self.report(rule, rule.shows, values);
            }
        }
    }

    /// Where no source says what a task touches, or it would leave 32 bits.
    fn check_extents(&mut self) {
        let Err(error) = extent::extents(&self.task.regs, self.task.enable) else {
            return;
        };
        let rule = match error {
            // Each has a rule of its own.
            ExtentError::UnknownBlocks(_)
            | ExtentError::PrecisionMismatch { .. }
            | ExtentError::Unaligned { .. }
            | ExtentError::Empty { .. }
            | ExtentError::DmaBase(_) => return,
            ExtentError::UnknownMode { .. } | ExtentError::Disagreement { .. } => {
                &rules::UNKNOWN_MODE
            }
            ExtentError::OutOfRange { .. } => &rules::OUT_OF_RANGE,
        };
        self.report(rule, &[], error.to_string());
    }
}
