// SPDX-License-Identifier: MIT OR Apache-2.0
//! A task with its context, and the findings about it.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::field::{Register, RegisterInfo};
use crate::rules::{Rule, Severity};
use crate::task::{ConvTask, TaskRegisters};
use crate::word::{EnableMask, Word};

/// A problem of a program.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Finding {
    /// The severity of the broken rule.
    pub severity: Severity,
    /// The stable name of the rule that is broken.
    pub rule: &'static str,
    /// Index of the task.
    pub task: usize,
    /// Index of the word, if the finding is about one.
    pub word: Option<usize>,
    /// The registers that show the problem.
    pub registers: Vec<&'static RegisterInfo>,
    /// What is wrong, with the values.
    pub message: String,
    /// The change that fixes the program.
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

impl Finding {
    pub(super) fn of(
        rule: &Rule,
        task: usize,
        word: Option<usize>,
        registers: &[&'static RegisterInfo],
        message: impl Into<String>,
    ) -> Self {
        Self {
            rule: rule.id,
            severity: rule.severity,
            task,
            word,
            registers: registers.to_vec(),
            message: message.into(),
            remedy: rule.remedy,
        }
    }
}

/// A task, its context, and the findings so far.
pub(super) struct View<'a> {
    pub(super) index: usize,
    pub(super) words: &'a [Word],
    pub(super) task: &'a TaskRegisters,
    pub(super) first_in_job: bool,
    /// The task that filled CBUF before this one in the same job.
    pub(super) left: Option<ConvTask>,
    /// Blocks that earlier tasks of the same chain started.
    pub(super) chained: EnableMask,
    /// The task as a convolution with DPU_RDMA, if it is one.
    pub(super) conv: ConvTask,
    pub(super) findings: &'a mut Vec<Finding>,
}

impl View<'_> {
    pub(super) fn get<R: Register>(&self) -> R {
        self.task.regs.get()
    }

    pub(super) fn runs(&self, blocks: EnableMask) -> bool {
        self.task.enable.contains(blocks)
    }

    pub(super) fn writes(&self, register: &RegisterInfo) -> bool {
        self.task.regs.was_written(register.offset)
    }

    pub(super) fn report(
        &mut self,
        rule: &Rule,
        registers: &[&'static RegisterInfo],
        message: impl Into<String>,
    ) {
        self.findings
            .push(Finding::of(rule, self.index, None, registers, message));
    }
}
