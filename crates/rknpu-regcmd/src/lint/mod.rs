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

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use crate::extent::{self, ExtentError};
use crate::field::{Register, RegisterInfo};
use crate::regfile::RegisterFile;
use crate::rules::words as rules;
use crate::task::{ConvTask, Task, TaskRegisters, tasks_after};
use crate::word::{EnableMask, Iova, Word};

pub use crate::rules::{Rule, Severity};

/// One thing that is wrong with a program.
#[derive(Clone, Debug)]
pub struct Finding {
    /// The stable name of the rule that is broken.
    pub rule: &'static str,
    /// How bad it is to break the rule.
    pub severity: Severity,
    /// Index of the task.
    pub task: usize,
    /// Index of the word, where it is about one.
    pub word: Option<usize>,
    /// The registers that show it.
    pub registers: Vec<&'static RegisterInfo>,
    /// What is wrong, with the values.
    pub message: String,
    /// The change of the program that avoids it.
    pub remedy: &'static str,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { severity, rule, .. } = self;
        write!(f, "{severity}[{rule}]: task {}", self.task)?;
        if let Some(word) = self.word {
            write!(f, ", word {word}")?;
        }
        write!(f, ": {}", self.message)?;
        for (index, register) in self.registers.iter().enumerate() {
            let gap = if index == 0 { " [" } else { ", " };
            write!(f, "{gap}{register}")?;
        }
        let close = if self.registers.is_empty() { "" } else { "]" };
        write!(f, "{close}; {}", self.remedy)
    }
}

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

/// A task, what surrounds it, and what is wrong with it.
struct View<'a> {
    index: usize,
    /// The task's own words.
    words: &'a [Word],
    task: &'a TaskRegisters,
    first_in_job: bool,
    /// What filled CBUF before it in the same job.
    left: Option<ConvTask>,
    /// Blocks that earlier tasks of the same chain started.
    chained: EnableMask,
    /// What the task asks for, if it is a convolution, with DPU_RDMA.
    conv: ConvTask,
    findings: &'a mut Vec<Finding>,
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

    fn get<R: Register>(&self) -> R {
        self.task.regs.get()
    }

    fn runs(&self, blocks: EnableMask) -> bool {
        self.task.enable.contains(blocks)
    }

    fn writes(&self, register: &RegisterInfo) -> bool {
        self.task.regs.was_written(register.offset)
    }

    fn report(
        &mut self,
        rule: &Rule,
        registers: &[&'static RegisterInfo],
        message: impl Into<String>,
    ) {
        let finding = Finding::of(rule, self.index, registers, message.into());
        self.findings.push(finding);
    }
}

impl Finding {
    fn of(rule: &Rule, task: usize, registers: &[&'static RegisterInfo], message: String) -> Self {
        Self {
            rule: rule.id,
            severity: rule.severity,
            task,
            word: None,
            registers: registers.to_vec(),
            message,
            remedy: rule.remedy,
        }
    }
}
