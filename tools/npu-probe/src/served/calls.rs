// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counts the calls of programs, on any device.

use std::fmt::Write as _;

use npu_server::Counts;
use serde::Serialize;

/// The calls of programs, on any kind of device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct ProgramCalls {
    pub(super) opens: u64,
    /// Files whose process ended in the middle of a job.
    pub(super) clients_died: u64,
    pub(super) bos: u64,
    pub(super) bo_bytes: u64,
    /// Calls and bytes that pass through the CPU's caches; they take CPU time on a
    /// board.
    pub(super) preps: u64,
    pub(super) prep_bytes: u64,
    pub(super) finis: u64,
    pub(super) fini_bytes: u64,
    pub(super) submits: u64,
    /// Jobs of all submits.
    pub(super) jobs: u64,
}

impl ProgramCalls {
    pub(super) fn of(counts: &Counts) -> Self {
        Self {
            opens: counts.opens,
            clients_died: counts.died,
            bos: counts.bos,
            bo_bytes: counts.bo_bytes,
            preps: counts.preps,
            prep_bytes: counts.prep_bytes,
            finis: counts.finis,
            fini_bytes: counts.fini_bytes,
            submits: counts.submits,
            jobs: counts.jobs,
        }
    }

    /// Adds a line for each kind of call except jobs.
    pub(super) fn add_lines(&self, line: &mut impl FnMut(&str, String)) {
        line("opened", format!("{} times", self.opens));
        if self.clients_died > 0 {
            let died = self.clients_died;
            line("clients", format!("{died} died in the middle of a job"));
        }
        line("BOs", format!("{}, {} bytes", self.bos, self.bo_bytes));
        let (preps, prep_bytes) = (self.preps, self.prep_bytes);
        let (finis, fini_bytes) = (self.finis, self.fini_bytes);
        line(
            "caches",
            format!("{preps} PREP_BO of {prep_bytes} bytes, {finis} FINI_BO of {fini_bytes} bytes"),
        );
        line("submits", format!("{}", self.submits));
    }
}

/// Adds a line to a report: a name and its text.
pub(super) fn push_line(text: &mut String, name: &str, says: &str) {
    let _ = writeln!(text, "npu-probe: {name:<10} {says}");
}
