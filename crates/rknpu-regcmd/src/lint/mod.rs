// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds problems of a program in its words.
//!
//! - *Error*: the program must not run. It would hang, write wrong results, or not
//!   write.
//! - *Warning*: the program works only under conditions that the words do not show.
//! - *Note*: information.
//!
//! No program family that is known to work gets an error or a warning; a test checks
//! that. The rules are in [`rules::TABLE`](crate::rules::TABLE).

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

/// Conditions that the words do not show.
#[derive(Clone, Debug, Default)]
pub struct LintContext {
    /// What the registers hold before the first word.
    pub before: Before,
    /// Whether earlier tasks of the same job ran on the core, so that CBUF
    /// holds their data.
    pub continues_job: bool,
    /// Address of the first word, if it is known.
    pub address: Option<Iova>,
}

/// The findings about `words`, in the order of the tasks. Accepts any words.
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
    /// Reports the rows of the table that the registers break.
    fn check_registers(&mut self) {
        let TaskRegisters { regs, enable, .. } = self.task;
        for task in Task::all(regs, *enable).flatten() {
            for (rule, values) in crate::rules::broken(&task, regs) {
                self.report(rule, rule.shows, values);
            }
        }
    }

    /// Reports a task whose touched memory is not known, or would leave 32 bits.
    fn check_extents(&mut self) {
        let Err(error) = extent::extents(&self.task.regs, self.task.enable) else {
            return;
        };
        let rule = match error {
            // Each has a separate rule.
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
