// SPDX-License-Identifier: MIT OR Apache-2.0
//! What goes wrong with register programs: one table.
//!
//! A row says how to see it in a task's registers, what silicon does, from which
//! evidence, and what to change. [`lint`](crate::lint()) tells of it before a program
//! runs; the software model does what the row says silicon does. What depends on
//! data, or on what ran before, is seen where it is known; its row has the text.

/// The registers that show it.
macro_rules! shows {
    ($($register:path),*) => { &[$(<$register as $crate::field::Register>::INFO),*] };
}

/// Declares the rows of a module, in their order, and of some of them a static
/// by its name, which other code tells of:
///
/// ```text
/// NAME "id" [evidence] [registers that show it] Severity Effect, contested "switch":
///     why, remedy, kind of task |task, registers| what is wrong;
/// ```
///
/// Registers may be `..SHARED`, a list of several rows. A row without an effect is
/// advice, one without a check is judged where more than registers is known.
macro_rules! rules {
    (@shows [..$shared:ident]) => { $shared };
    (@shows [$($register:path),*]) => { shows![$($register),*] };
    (@effect) => { None };
    (@effect $effect:ident) => { Some($crate::rules::Effect::$effect) };
    (@contested) => { None };
    (@contested $switch:literal) => { Some($switch) };
    (@check) => { $crate::rules::Check::Elsewhere };
    (@check $kind:ident $check:expr) => { $crate::rules::Check::$kind($check) };
    (@row $id:literal $evidence:tt $shows:tt $severity:ident $($effect:ident)?
        $(, contested $switch:literal)?: $why:expr, $remedy:expr $(, $kind:ident $check:expr)?) => {
        $crate::rules::Rule {
            id: $id,
            evidence: &$evidence,
            effect: rules!(@effect $($effect)?),
            severity: $crate::rules::Severity::$severity,
            shows: rules!(@shows $shows),
            why: $why,
            remedy: $remedy,
            contested: rules!(@contested $($switch)?),
            check: rules!(@check $($kind $check)?),
        }
    };
    (@rows $vis:vis [$($done:expr),*]) => {
        pub(super) const RULES: &[&$crate::rules::Rule] = &[$($done),*];
    };
    (@rows $vis:vis [$($done:expr),*]
        $id:literal $evidence:tt $shows:tt $severity:ident $($effect:ident)?
        $(, contested $switch:literal)?: $why:expr, $remedy:expr $(, $kind:ident $check:expr)?;
        $($rest:tt)*) => {
        rules! { @rows $vis [$($done,)* &rules!(@row $id $evidence $shows $severity $($effect)?
            $(, contested $switch)?: $why, $remedy $(, $kind $check)?)] $($rest)* }
    };
    (@rows $vis:vis [$($done:expr),*]
        $(#[$doc:meta])* $name:ident
        $id:literal $evidence:tt $shows:tt $severity:ident $($effect:ident)?
        $(, contested $switch:literal)?: $why:expr, $remedy:expr $(, $kind:ident $check:expr)?;
        $($rest:tt)*) => {
        $(#[$doc])*
        $vis static $name: $crate::rules::Rule = rules!(@row $id $evidence $shows $severity
            $($effect)? $(, contested $switch)?: $why, $remedy $(, $kind $check)?);
        rules! { @rows $vis [$($done,)* &$name] $($rest)* }
    };
    ($vis:vis, $($rows:tt)+) => { rules! { @rows $vis [] $($rows)+ } };
}

mod cbuf;
mod conv;
mod element;
mod fetch;
mod pool;
pub mod program;
mod rdma;
mod running;
pub(crate) mod words;
mod writer;

use alloc::string::String;
use core::fmt;

use crate::field::RegisterInfo;
use crate::regfile::RegisterFile;
use crate::task::{ConvTask, DpuOutput, PoolTask, Reads, Task};

pub use cbuf::{LINE_ROUNDING, WEIGHT_ROOM, weights_without_room};
pub use conv::INT16_WITHOUT_SUM;
pub use pool::POOLING_PRECISION;
pub use rdma::{FLYING_DUAL, FLYING_WIDTH, ORIG_CHANNEL};
pub use running::{
    ENABLE_MASK, EXPONENT_WRAPS, FIELD_OVERFLOW, INT16_SATURATES, LINES_NOT_AWAITED, SHORT_GROUP,
    STALE_CBUF, STALE_DECOMPRESSION, STALE_REGISTERS,
};
pub use writer::{GROUP_ATOMS_MAX, PARTIAL_GROUP, TRANSPOSED_HANG};

/// What silicon does with a task that breaks a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// No completion interrupt: the driver's time limit ends the job.
    Hang,
    /// The task completes with wrong results.
    Garbage,
    /// The task completes, but part of the output keeps its old bytes.
    NoWrite,
    /// Goes wrong in some shapes only, or where a program may well mean it:
    /// worth a look.
    Note,
}

/// How bad it is to break a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Worth knowing.
    Note,
    /// Works only under conditions that the words do not show.
    Warning,
    /// Must not run.
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

/// A row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// The stable name of the rule. A number is that of the list in docs/chip.md.
    pub id: &'static str,
    /// The facts that it rests on, by their ids in docs/evidence.md. Where there
    /// are none and the row has an effect, `why` says so.
    pub evidence: &'static [&'static str],
    /// What silicon does; `None` for advice, and where nobody knows.
    pub effect: Option<Effect>,
    /// How bad it is to break the rule.
    pub severity: Severity,
    /// The registers that show it.
    pub shows: &'static [&'static RegisterInfo],
    /// What happens where the rule is broken.
    pub why: &'static str,
    /// The change of a program that keeps the rule.
    pub remedy: &'static str,
    /// The contested fact that it depends on: a switch of the software model.
    pub contested: Option<&'static str>,
    check: Check,
}

/// What is wrong, with its values, if anything is.
type Found = Option<String>;

/// How to see it, by kind of task.
#[derive(Clone, Copy, Debug)]
enum Check {
    /// Where more than registers is known.
    Elsewhere,
    Conv(fn(&ConvTask, &RegisterFile) -> Found),
    /// A convolution or a flying task.
    Dpu(fn(&Dpu<'_>) -> Found),
    Pool(fn(&PoolTask, &RegisterFile) -> Found),
}

/// The part of a task that the DPU does.
struct Dpu<'a> {
    regs: &'a RegisterFile,
    /// DPU_RDMA, if it runs.
    reads: Option<&'a Reads>,
    output: &'a DpuOutput,
    /// The convolution; `None` if the DPU is fed from memory.
    conv: Option<&'a ConvTask>,
}

type Shows = &'static [&'static RegisterInfo];

impl Rule {
    fn broken_by(&self, task: &Task, regs: &RegisterFile) -> Found {
        match (self.check, task) {
            (Check::Conv(broken), Task::Conv(conv)) => broken(conv, regs),
            (Check::Dpu(broken), Task::Conv(conv)) => broken(&Dpu {
                regs,
                reads: conv.reads.as_ref(),
                output: &conv.output,
                conv: Some(conv),
            }),
            (Check::Dpu(broken), Task::Flying { reads, output }) => broken(&Dpu {
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

/// The table, by what it is about. Of the rules that a task breaks the first
/// that hangs is the one that counts.
pub const TABLE: &[&[&Rule]] = &[
    running::RULES,
    rdma::RULES,
    element::RULES,
    cbuf::RULES,
    conv::RULES,
    fetch::RULES,
    writer::RULES,
    pool::RULES,
    program::RULES,
    words::RULES,
];

/// The rules that `task` of `regs` breaks, each with the values that show it.
pub fn broken<'a>(
    task: &'a Task,
    regs: &'a RegisterFile,
) -> impl Iterator<Item = (&'static Rule, String)> + 'a {
    let rules = TABLE.iter().copied().flatten();
    rules.filter_map(move |&rule| Some((rule, rule.broken_by(task, regs)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn effects_rest_on_evidence_or_say_that_they_do_not() {
        const NO_SOURCE: [&str; 3] = ["inferred", "not known", "no source"];
        for rule in TABLE.iter().copied().flatten() {
            let says_so = NO_SOURCE.iter().any(|words| rule.why.contains(words));
            let rests = !rule.evidence.is_empty() || rule.effect.is_none() || says_so;
            assert!(rests, "{}: {}", rule.id, rule.why);
        }
    }
}
