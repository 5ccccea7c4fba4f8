// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rules of register programs: one table.
//!
//! A row is a rule: a check of a task's registers, the effect on silicon, the
//! evidence and the fix. [`lint`](crate::lint()) reports a broken rule before a
//! program runs, and the software model reproduces the effect. Rules about data, or
//! about what ran before, are checked where these are known; their rows have only the
//! text.
//!
//! Ids: `T` and a number is a trap, of which docs/chip.md shows the list; `H` is a hang or a
//! wrong result that is not in that list; `F` is a failure outside the core; others
//! are advice of the lint.

#[macro_use]
mod row;

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

use crate::regfile::RegisterFile;
use crate::task::Task;

pub use cbuf::{LINE_ROUNDING, WEIGHT_ROOM, weights_without_room};
pub use conv::INT16_WITHOUT_SUM;
pub use pool::POOLING_PRECISION;
pub use rdma::{FLYING_DUAL, FLYING_WIDTH, ORIG_CHANNEL};
pub use row::{Effect, Rule, Severity};
pub use running::{
    ENABLE_MASK, EXPONENT_WRAPS, FIELD_OVERFLOW, INT16_SATURATES, LINES_NOT_AWAITED, SHORT_GROUP,
    STALE_CBUF, STALE_DECOMPRESSION, STALE_REGISTERS,
};
pub use writer::{GROUP_ATOMS_MAX, PARTIAL_GROUP, TRANSPOSED_HANG};

/// The table, by topic. If a task breaks several rules, the first one that hangs
/// applies.
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

/// The rules that `task`, decoded from `regs`, breaks, each with the values that show
/// it.
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
