// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lines of the reports, and those that both devices have.

use std::fmt::Write as _;

use npu_server::Counts;

/// Adds a line for each kind of call except jobs.
pub(super) fn add_lines(calls: &Counts, line: &mut impl FnMut(&str, String)) {
    line("opened", format!("{} times", calls.opens));
    if calls.died > 0 {
        let died = calls.died;
        line("clients", format!("{died} died in the middle of a job"));
    }
    line("BOs", format!("{}, {} bytes", calls.bos, calls.bo_bytes));
    let (preps, prep_bytes) = (calls.preps, calls.prep_bytes);
    let (finis, fini_bytes) = (calls.finis, calls.fini_bytes);
    // These pass through the CPU's caches, which takes CPU time on a board.
    line(
        "caches",
        format!("{preps} PREP_BO of {prep_bytes} bytes, {finis} FINI_BO of {fini_bytes} bytes"),
    );
    line("submits", format!("{}", calls.submits));
}

/// Adds a line to a report: a name and its text.
pub(super) fn push_line(text: &mut String, name: &str, says: &str) {
    let _ = writeln!(text, "npu-probe: {name:<10} {says}");
}
