// SPDX-License-Identifier: MIT OR Apache-2.0
//! A row of the table, and the macro that declares rows.

use alloc::string::String;
use core::fmt;

use crate::field::RegisterInfo;
use crate::regfile::RegisterFile;
use crate::task::{ConvTask, DpuOutput, PoolTask, Reads, Task};

/// The registers that show the problem.
macro_rules! shows {
    ($($register:path),*) => { &[$(<$register as $crate::field::Register>::INFO),*] };
}

/// Declares the rows of a module, in their order. A row with a name also becomes a
/// static, which other code uses:
///
/// ```text
/// NAME "id" [evidence] [registers that show it] Severity Effect, contested "fact":
///     why, remedy, kind of task |task, registers| what is wrong;
/// ```
///
/// Registers may be `..SHARED`, a list that several rows share. A row without an
/// effect is advice. A row without a check is checked by code that knows more than
/// registers.
macro_rules! rules {
    (@shows [..$shared:ident]) => { $shared };
    (@shows [$($register:path),*]) => { shows![$($register),*] };
    (@effect) => { None };
    (@effect $effect:ident) => { Some($crate::rules::row::Effect::$effect) };
    (@contested) => { None };
    (@contested $fact:literal) => { Some($fact) };
    (@check) => { $crate::rules::row::Check::Elsewhere };
    (@check $kind:ident $check:expr) => { $crate::rules::row::Check::$kind($check) };
    (@row $id:literal $evidence:tt $shows:tt $severity:ident $($effect:ident)?
        $(, contested $fact:literal)?: $why:expr, $remedy:expr $(, $kind:ident $check:expr)?) => {
        $crate::rules::row::Rule {
            id: $id,
            evidence: &$evidence,
            effect: rules!(@effect $($effect)?),
            severity: $crate::rules::row::Severity::$severity,
            shows: rules!(@shows $shows),
            why: $why,
            remedy: $remedy,
            contested: rules!(@contested $($fact)?),
            check: rules!(@check $($kind $check)?),
        }
    };
    (@rows $vis:vis [$($done:expr),*]) => {
        pub(super) const RULES: &[&$crate::rules::row::Rule] = &[$($done),*];
    };
    (@rows $vis:vis [$($done:expr),*]
        $id:literal $evidence:tt $shows:tt $severity:ident $($effect:ident)?
        $(, contested $fact:literal)?: $why:expr, $remedy:expr $(, $kind:ident $check:expr)?;
        $($rest:tt)*) => {
        rules! { @rows $vis [$($done,)* &rules!(@row $id $evidence $shows $severity $($effect)?
            $(, contested $fact)?: $why, $remedy $(, $kind $check)?)] $($rest)* }
    };
    (@rows $vis:vis [$($done:expr),*]
        $(#[$doc:meta])* $name:ident
        $id:literal $evidence:tt $shows:tt $severity:ident $($effect:ident)?
        $(, contested $fact:literal)?: $why:expr, $remedy:expr $(, $kind:ident $check:expr)?;
        $($rest:tt)*) => {
        $(#[$doc])*
        $vis static $name: $crate::rules::row::Rule = rules!(@row $id $evidence $shows $severity
            $($effect)? $(, contested $fact)?: $why, $remedy $(, $kind $check)?);
        rules! { @rows $vis [$($done,)* &$name] $($rest)* }
    };
    ($vis:vis, $($rows:tt)+) => { rules! { @rows $vis [] $($rows)+ } };
}

/// What silicon does with a task that breaks a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// No completion interrupt: the driver's time limit ends the job. A row is enough for
    /// the chip to hang.
    Hang,
    /// The task completes with wrong results. The chip's engines compute them: a row only reports
    /// them.
    Garbage,
    /// The task completes, but part of the output keeps its old bytes.
    NoWrite,
    /// The task goes wrong in some shapes only, or the program may intend this.
    Note,
}

/// The severity of a broken rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize),
    serde(rename_all = "lowercase")
)]
pub enum Severity {
    /// Information.
    Note,
    /// The program works only under conditions that the words do not show.
    Warning,
    /// The program must not run.
    Error,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Error => "error",
        })
    }
}

/// A rule: one row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// The stable name of the rule. The number of a `T` id is that of the list in
    /// docs/chip.md.
    pub id: &'static str,
    /// The facts that it depends on, by their ids in docs/evidence.md. If there are
    /// none and the row has an effect, `why` says so.
    pub evidence: &'static [&'static str],
    /// What silicon does; `None` for advice, or if that is not known.
    pub effect: Option<Effect>,
    /// The severity of a broken rule.
    pub severity: Severity,
    /// The registers that show the problem.
    pub shows: &'static [&'static RegisterInfo],
    /// What happens if the rule is broken.
    pub why: &'static str,
    /// The change that makes a program keep the rule.
    pub remedy: &'static str,
    /// The contested fact that it depends on: the name of a switch of the software model.
    pub contested: Option<&'static str>,
    pub(super) check: Check,
}

/// The problem with its values, if there is one.
pub(super) type Found = Option<String>;

/// The check of a rule, by kind of task.
#[derive(Clone, Copy, Debug)]
pub(super) enum Check {
    /// Code that knows more than registers checks the rule.
    Elsewhere,
    Conv(fn(&ConvTask, &RegisterFile) -> Found),
    /// A convolution or a flying task.
    Dpu(fn(&DpuPart<'_>) -> Found),
    Pool(fn(&PoolTask, &RegisterFile) -> Found),
}

/// The part of a task that the DPU does.
pub(super) struct DpuPart<'a> {
    pub(super) regs: &'a RegisterFile,
    /// DPU_RDMA, if it runs.
    pub(super) reads: Option<&'a Reads>,
    pub(super) output: &'a DpuOutput,
    /// The convolution; `None` if the DPU is fed from memory.
    pub(super) conv: Option<&'a ConvTask>,
}

pub(super) type Shows = &'static [&'static RegisterInfo];

impl Rule {
    pub(super) fn broken_by(&self, task: &Task, regs: &RegisterFile) -> Found {
        match (self.check, task) {
            (Check::Conv(broken), Task::Conv(conv)) => broken(conv, regs),
            (Check::Dpu(broken), Task::Conv(conv)) => broken(&DpuPart {
                regs,
                reads: conv.reads.as_ref(),
                output: &conv.output,
                conv: Some(conv),
            }),
            (Check::Dpu(broken), Task::Flying { reads, output }) => broken(&DpuPart {
                regs,
                reads: Some(reads),
                output,
                conv: None,
            }),
            (Check::Pool(broken), Task::Pool(pool)) => broken(pool, regs),
            _ => None,
        }
    }
}
