// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask vm test`: runs the driver suite on the real driver.
//!
//! One guest tests what the driver promises. Rows that trigger known kernel bugs run afterwards in
//! another guest, since the kernel's state is unreliable after them.

use std::process::ExitStatus;

use anyhow::{Result, ensure};

use super::console;
use super::guest::Guest;
use super::initramfs::COMMAND;
use super::qemu::Streams;
use super::runner::{FinishedGuest, GuestRunner, LIMIT, ProgramFailed};

/// The program of the driver suite (tests/hw).
const SUITE: &str = "rocket-conformance";

/// Prefix of rows that trigger bugs.
const BUGS: &str = "bug-";

#[derive(clap::Args, Debug)]
pub(crate) struct TestArgs {
    #[command(flatten)]
    guest: Guest,
    /// Repeat the rows without known bugs N times; the outcomes must be the same
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,
    /// Leave out the rows that trigger bugs of the kernel
    #[arg(long)]
    no_bugs: bool,
    /// Run only the rows whose names contain one of these
    #[arg(value_name = "NAME")]
    names: Vec<String>,
}

/// Runs the suite. The error is [`ProgramFailed`] if a row failed.
pub(crate) fn run(arguments: &TestArgs) -> Result<()> {
    let runner = GuestRunner::prepare(&arguments.guest)?;
    // Built once, so that edits meanwhile do not make guests differ.
    let (files, program) = runner.files(SUITE)?;
    // Runs rows in a separate guest.
    let boot = |choice: &[&str], bugs: bool| {
        let mut files = files.clone();
        files.set_list(
            COMMAND,
            &[&[&program[..], "--ktap", "--destructive"], choice].concat(),
        );
        let finished = runner.run(files, LIMIT, Streams::Kept)?;
        eprint!("{}", String::from_utf8_lossy(&finished.left.stderr));
        anyhow::Ok(GuestReport::new(&finished, bugs))
    };
    let names = arguments.names.iter().map(String::as_str);
    let (mut bugs, others): (Vec<_>, Vec<_>) = names.partition(|name| name.starts_with(BUGS));
    let all = arguments.names.is_empty();
    let mut reports = Vec::new();
    if all || !others.is_empty() {
        let choice = [&["--except", BUGS], &others[..]].concat();
        for _ in 0..arguments.repeat {
            reports.push(boot(&choice, false)?);
        }
    }
    let same = reports.windows(2).all(|pair| pair[0].rows == pair[1].rows);
    if all {
        bugs.push(BUGS);
    }
    if !arguments.no_bugs && !bugs.is_empty() {
        reports.push(boot(&bugs, true)?);
    }
    println!("KTAP version 1\n1..{}", reports.len());
    for (number, report) in (1..).zip(&reports) {
        let word = if report.ok { "ok" } else { "not ok" };
        println!("{}{word} {number} {}", report.text, report.name);
    }
    ensure!(same, "the outcomes of the runs differ");
    ensure!(reports.iter().all(|report| report.ok), ProgramFailed(1));
    if arguments.repeat > 1 {
        println!("RESULT {} runs had the same outcomes", arguments.repeat);
    }
    Ok(())
}

/// The report of one guest: a KTAP test whose subtests are the suite's rows.
#[derive(Debug)]
struct GuestReport {
    name: &'static str,
    ok: bool,
    /// Output of the suite and the kernel, indented as subtests.
    text: String,
    /// The result of each row, with only the first word of its directive.
    rows: Vec<String>,
}

impl GuestReport {
    /// Report of a guest that triggers `bugs`, or of one in which the kernel should not complain.
    fn new(finished: &FinishedGuest, bugs: bool) -> Self {
        let said = finished.text();
        let mut notes = finished.complaints.clone();
        // Rows that trigger bugs expect complaints.
        let mut ok = finished.all_known || bugs;
        ok &= finished.left.end.as_ref().is_ok_and(ExitStatus::success);
        match &finished.left.end {
            // A failed row's line already reports it.
            Ok(status) if matches!(status.code(), Some(0 | 1)) => {}
            Ok(status) => notes.push(format!("the suite ended with {status}")),
            Err(why) => notes.extend([why.clone(), console::tail(&finished.left.console)]),
        }
        let notes = notes.join("\n");
        let notes = notes.lines().map(|note| format!("  # {note}\n"));
        let name = if bugs { "bugs" } else { "driver" };
        let heading = format!("KTAP version 1\n# Subtest: {name}\n");
        let said = said.replacen("KTAP version 1\n", &heading, 1);
        let text = said.lines().map(|line| format!("  {line}\n"));
        let row = |line: &str| {
            let (name, directive) = line.split_once(" # ").unwrap_or((line, ""));
            let directive = directive.split(' ').next().unwrap_or_default();
            let is_row = line.starts_with("ok ") || line.starts_with("not ok ");
            is_row.then(|| format!("{name} {directive}"))
        };
        Self {
            name,
            ok,
            rows: said.lines().filter_map(row).collect(),
            text: text.chain(notes).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::super::qemu::Remains;
    use super::*;

    /// Status of a program that ended with 1, as from wait().
    const FAILED: i32 = 1 << 8;

    /// `end`: a status as from wait(), or why the program did not end.
    fn report(
        end: Result<i32, &str>,
        complaints: &[&str],
        all_known: bool,
        bugs: bool,
    ) -> GuestReport {
        let text = "KTAP version 1\n1..2\nok 1 a\nok 2 b # SKIP no\n";
        let left = Remains {
            end: end.map(ExitStatus::from_raw).map_err(str::to_owned),
            console: "[1] last words\n".to_owned(),
            files: Vec::new(),
            stdout: text.into(),
            stderr: Vec::new(),
        };
        let finished = FinishedGuest {
            left,
            complaints: complaints.iter().map(ToString::to_string).collect(),
            all_known,
        };
        GuestReport::new(&finished, bugs)
    }

    #[test]
    fn rows_and_complaints_are_told() {
        let good = report(Ok(0), &["WARNING: known"], true, false);
        let text = "  KTAP version 1\n  # Subtest: driver\n  1..2\n  ok 1 a\n  ok 2 b # SKIP no\n  # WARNING: known\n";
        assert_eq!((&good.text[..], good.ok), (text, true));
        assert_eq!(good.rows, ["ok 1 a ", "ok 2 b SKIP"]);
    }

    #[test]
    fn failed_rows_new_complaints_and_lost_guests_are_failures() {
        assert!(!report(Ok(FAILED), &[], true, false).ok);
        assert!(!report(Ok(9), &[], true, true).ok);
        for bugs in [true, false] {
            assert_eq!(report(Ok(0), &["BUG"], false, bugs).ok, bugs);
        }
        let lost = report(Err("why"), &[], true, false);
        assert!(!lost.ok && lost.text.ends_with("  # why\n  # [1] last words\n"));
    }
}
