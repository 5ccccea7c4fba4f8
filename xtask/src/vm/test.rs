// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask vm test`: the driver suite on the real driver.
//!
//! What the driver promises is tested in one guest. Rows that trigger known bugs
//! of the kernel run in another, afterwards: what a kernel does after them means
//! little.

use std::collections::BTreeMap;
use std::io::{self, Write};

use anyhow::{Result, ensure};

use super::guest::Guest;
use super::initramfs::Initramfs;
use super::qemu::ProgramEnd;
use super::runner::{GuestRunner, LIMIT, ProgramFailed};

/// The program of the driver suite (tests/hw).
const SUITE: &str = "rocket-conformance";

/// The beginning of the names of rows that trigger bugs.
const BUGS: &str = "bug-";

#[derive(clap::Args, Debug)]
pub(crate) struct TestArgs {
    #[command(flatten)]
    guest: Guest,
    /// Run what the driver promises so often; the outcomes must be the same
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,
    /// Leave out the rows that trigger bugs of the kernel
    #[arg(long)]
    no_bugs: bool,
    /// Run only the rows whose names contain one of these
    #[arg(value_name = "NAME")]
    names: Vec<String>,
}

/// Runs it. An error of its own kind if a row failed, of another if it did not
/// come to that.
pub(crate) fn run(arguments: &TestArgs) -> Result<()> {
    let runner = GuestRunner::prepare(&arguments.guest)?;
    // Once: what runs is the same in each guest, whatever is edited meanwhile.
    let suite = runner.files(SUITE)?;
    let boot = |choice: &[String], bugs, report: &mut KtapReport| {
        boot(&runner, &suite, choice, bugs, report)
    };
    let mut report = KtapReport::default();
    let names = arguments.names.iter().cloned();
    let (mut bugs, mut others): (Vec<_>, Vec<_>) = names.partition(|name| name.starts_with(BUGS));
    let all = arguments.names.is_empty();
    if all {
        bugs.push(BUGS.to_owned());
    }
    let repeat = if all || !others.is_empty() {
        arguments.repeat
    } else {
        0
    };
    others.splice(..0, ["--except", BUGS].map(str::to_owned));
    let mut first: Option<BTreeMap<String, RowVerdict>> = None;
    for _ in 0..repeat {
        let rows = boot(&others, false, &mut report)?;
        let same = first.as_ref().is_none_or(|first| *first == rows);
        if !same {
            report.note("the outcomes are not those of the first run");
            report.failed = true;
        }
        first.get_or_insert(rows);
    }
    if !arguments.no_bugs && !bugs.is_empty() {
        boot(&bugs, true, &mut report)?;
    }
    report.print(&mut io::stdout())?;
    if repeat > 1 && !report.failed {
        println!("RESULT {repeat} runs ended the same");
    }
    ensure!(!report.failed, ProgramFailed(1));
    Ok(())
}

/// Runs rows in a guest of their own.
fn boot(
    runner: &GuestRunner,
    (files, program): &(Initramfs, String),
    choice: &[String],
    bugs: bool,
    report: &mut KtapReport,
) -> Result<BTreeMap<String, RowVerdict>> {
    let mut files = files.clone();
    let mut command = vec![program.clone()];
    command.extend(["--ktap", "--destructive"].map(str::to_owned));
    command.extend_from_slice(choice);
    files.command(&command);
    let finished = runner.finish(files, LIMIT)?;
    eprint!("{}", finished.stderr);
    let mut rows = report.add(&finished.text());
    let heard = report.hear(&finished.complaints, bugs);
    if !bugs {
        rows.insert("kernel-log".to_owned(), heard);
    }
    // A failed row is told by its line.
    match finished.run.end {
        ProgramEnd::Exit(0 | 1) => {}
        ProgramEnd::Exit(code) => report.lost(&format!("the suite ended with status {code}")),
        ProgramEnd::Signal(signal) => report.lost(&format!("the suite ended by signal {signal}")),
        ProgramEnd::Failed(why) => {
            report.lost(&why);
            for line in finished.run.console.tail().lines() {
                report.note(line);
            }
        }
    }
    Ok(rows)
}

/// How a row ended, as KTAP has it: the word after `#`, or none.
#[derive(Clone, Debug, PartialEq, Eq)]
struct RowVerdict {
    ok: bool,
    directive: String,
}

/// The results of all guests, as one.
#[derive(Debug, Default)]
struct KtapReport {
    lines: Vec<String>,
    results: usize,
    failed: bool,
}

impl KtapReport {
    /// Adds what the suite wrote; returns how its rows ended.
    fn add(&mut self, text: &str) -> BTreeMap<String, RowVerdict> {
        let mut rows = BTreeMap::new();
        let mut planned = 0;
        for line in text.lines() {
            if let Some(plan) = line.strip_prefix("1..") {
                planned = plan.trim().parse().unwrap_or_default();
            }
            let (ok, rest) = match (line.strip_prefix("ok "), line.strip_prefix("not ok ")) {
                (Some(rest), _) => (true, rest),
                (None, Some(rest)) => (false, rest),
                _ => {
                    if line.starts_with('#') && !line.starts_with("# Totals:") {
                        self.lines.push(line.to_owned());
                    }
                    continue;
                }
            };
            let Some((_, rest)) = rest.split_once(' ') else {
                continue;
            };
            let (name, directive) = rest.split_once(" # ").unwrap_or((rest, ""));
            let word = directive.split(' ').next().unwrap_or_default();
            let verdict = RowVerdict {
                ok,
                directive: word.to_owned(),
            };
            rows.insert(name.to_owned(), verdict);
            self.result(ok, rest);
        }
        if rows.len() != planned {
            self.lost(&format!("{} rows of {planned} ended", rows.len()));
        }
        rows
    }

    /// Adds what the kernel said. Where bugs are triggered, complaints are what
    /// the rows look for.
    fn hear(&mut self, (lines, ok): &(Vec<String>, bool), bugs: bool) -> RowVerdict {
        let ok = *ok;
        lines.iter().for_each(|line| self.note(line));
        if !bugs {
            self.result(ok, "kernel-log");
        }
        let directive = String::new();
        RowVerdict { ok, directive }
    }

    /// A guest did not do what it was for.
    fn lost(&mut self, why: &str) {
        self.note(why);
        self.result(false, "guest");
    }

    fn result(&mut self, ok: bool, rest: &str) {
        self.results += 1;
        self.failed |= !ok;
        let word = if ok { "ok" } else { "not ok" };
        self.lines.push(format!("{word} {} {rest}", self.results));
    }

    fn note(&mut self, line: &str) {
        self.lines.push(format!("# {line}"));
    }

    fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "KTAP version 1\n1..{}", self.results)?;
        for line in &self.lines {
            writeln!(out, "{line}")?;
        }
        let count = |directive: &str| {
            let lines = self.lines.iter().filter(|line| line.starts_with("ok "));
            lines.filter(|line| line.contains(directive)).count()
        };
        let [xfail, xpass, skip] = [" # XFAIL ", " # XPASS ", " # SKIP "].map(count);
        let fail = self.lines.iter().filter(|line| line.starts_with("not ok "));
        let fail = fail.count();
        let pass = self.results - fail - xfail - xpass - skip;
        writeln!(
            out,
            "# Totals: pass:{pass} fail:{fail} xfail:{xfail} xpass:{xpass} skip:{skip} error:0"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(report: &KtapReport) -> String {
        let mut out = Vec::new();
        report.print(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn guests_become_one_report() {
        let mut report = KtapReport::default();
        let rows = report.add(
            "KTAP version 1\n1..3\n# on 7.3\nok 1 a\n# 1, not 2\nnot ok 2 b\nok 3 c # SKIP no\n\
             # Totals: pass:1 fail:1 xfail:0 xpass:0 skip:1 error:0\n",
        );
        assert_eq!(rows["c"].directive, "SKIP");
        assert!(!rows["b"].ok && report.failed);
        report.hear(&(Vec::new(), true), false);
        report.add("KTAP version 1\n1..1\nok 1 bug-x # XFAIL y: z\n");
        let wanted = "KTAP version 1\n1..5\n# on 7.3\nok 1 a\n# 1, not 2\nnot ok 2 b\n\
                      ok 3 c # SKIP no\nok 4 kernel-log\nok 5 bug-x # XFAIL y: z\n\
                      # Totals: pass:2 fail:1 xfail:1 xpass:0 skip:1 error:0\n";
        assert_eq!(text(&report), wanted);
    }

    #[test]
    fn a_guest_that_ends_early_is_a_failure() {
        let mut report = KtapReport::default();
        report.add("KTAP version 1\n1..2\nok 1 a\n");
        assert!(report.failed);
        assert!(text(&report).contains("not ok 2 guest"));
    }

    #[test]
    fn a_kernel_may_complain_of_known_bugs_only() {
        for ok in [true, false] {
            let mut report = KtapReport::default();
            report.hear(&(vec!["WARNING: strange".to_owned()], ok), false);
            assert_eq!(!report.failed, ok);
            assert!(text(&report).contains("# WARNING: strange\n"));
        }
    }
}
