// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask vm test`: the driver suite on the real driver.
//!
//! What the driver promises is tested in one guest. Rows that trigger known bugs
//! of the kernel run in another, afterwards: what a kernel does after them means
//! little.

use std::fmt::{self, Display, Formatter};

use anyhow::{Result, ensure};

use super::console;
use super::guest::Guest;
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
    let (files, program) = runner.files(SUITE)?;
    let mut report = KtapReport::default();
    // Runs rows in a guest of their own; returns how they ended.
    let mut boot = |choice: &[&str], bugs: bool| {
        let mut files = files.clone();
        files.command(&[&[&program[..], "--ktap", "--destructive"], choice].concat());
        let finished = runner.finish(files, LIMIT)?;
        eprint!("{}", String::from_utf8_lossy(&finished.left.stderr));
        let mut rows = report.add(&finished.text());
        // Where bugs are triggered, complaints are what the rows look for.
        rows.extend(report.hear(&finished.complaints, finished.all_known || bugs, bugs));
        // A failed row is told by its line.
        match &finished.left.end {
            ProgramEnd::Exit(0 | 1) => {}
            ProgramEnd::Failed(why) => {
                report.lost(why);
                report.note(&console::tail(&finished.left.console));
            }
            end => report.lost(&format!("the suite ended with {end:?}")),
        }
        anyhow::Ok(rows)
    };
    let names = arguments.names.iter().map(String::as_str);
    let (mut bugs, others): (Vec<_>, Vec<_>) = names.partition(|name| name.starts_with(BUGS));
    let all = arguments.names.is_empty();
    let mut outcomes = Vec::new();
    if all || !others.is_empty() {
        let choice = [&["--except", BUGS], &others[..]].concat();
        for _ in 0..arguments.repeat {
            outcomes.push(boot(&choice, false)?);
        }
    }
    if all {
        bugs.push(BUGS);
    }
    if !arguments.no_bugs && !bugs.is_empty() {
        boot(&bugs, true)?;
    }
    if outcomes.windows(2).any(|pair| pair[0] != pair[1]) {
        report.lost("the outcomes are not those of the first run");
    }
    print!("{report}");
    ensure!(!report.failed(), ProgramFailed(1));
    if arguments.repeat > 1 {
        println!("RESULT {} runs ended the same", outcomes.len());
    }
    Ok(())
}

/// The results of all guests, as one: lines of KTAP, results without their numbers.
#[derive(Debug, Default)]
struct KtapReport(Vec<String>);

impl KtapReport {
    /// Adds what the suite wrote; returns how its rows ended.
    fn add(&mut self, text: &str) -> Vec<String> {
        let mut rows = Vec::new();
        let mut planned = 0;
        for line in text.lines() {
            let result = ["ok ", "not ok "].into_iter().find_map(|word| {
                let (_, rest) = line.strip_prefix(word)?.split_once(' ')?;
                Some((word, rest))
            });
            if let Some(plan) = line.strip_prefix("1..") {
                planned = plan.trim().parse().unwrap_or_default();
            } else if let Some((word, rest)) = result {
                self.0.push(format!("{word}{rest}"));
                // Without what a directive says beside its word.
                let (name, directive) = rest.split_once(" # ").unwrap_or((rest, ""));
                rows.push(format!(
                    "{word}{name} {}",
                    directive.split(' ').next().unwrap_or("")
                ));
            } else if line.starts_with('#') && !line.starts_with("# Totals:") {
                self.0.push(line.to_owned());
            }
        }
        if rows.len() != planned {
            self.lost(&format!("{} rows of {planned} ended", rows.len()));
        }
        rows
    }

    /// Adds what the kernel said; its row unless bugs are triggered.
    fn hear(&mut self, complaints: &[String], ok: bool, bugs: bool) -> Option<String> {
        complaints.iter().for_each(|line| self.note(line));
        let row = if ok {
            "ok kernel-log"
        } else {
            "not ok kernel-log"
        }
        .to_owned();
        (!bugs).then(|| self.0.push(row.clone()))?;
        Some(row)
    }

    /// A guest did not do what it was for.
    fn lost(&mut self, why: &str) {
        self.note(why);
        self.0.push("not ok guest".to_owned());
    }

    fn note(&mut self, text: &str) {
        self.0.extend(text.lines().map(|line| format!("# {line}")));
    }

    fn failed(&self) -> bool {
        self.0.iter().any(|line| line.starts_with("not ok "))
    }
}

impl Display for KtapReport {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let results = self.0.iter().filter(|line| !line.starts_with('#')).count();
        writeln!(f, "KTAP version 1\n1..{results}")?;
        let mut number = 0;
        let mut totals = [0; 4];
        for line in &self.0 {
            let word = ["ok ", "not ok "]
                .into_iter()
                .find(|word| line.starts_with(word));
            let Some(word) = word else {
                writeln!(f, "{line}")?;
                continue;
            };
            number += 1;
            writeln!(f, "{word}{number} {}", &line[word.len()..])?;
            let kinds = ["not ok ", " # XFAIL ", " # XPASS ", " # SKIP "];
            if let Some(kind) = kinds.iter().position(|kind| line.contains(kind)) {
                totals[kind] += 1;
            }
        }
        let [fail, xfail, xpass, skip] = totals;
        let pass = results - totals.iter().sum::<usize>();
        writeln!(
            f,
            "# Totals: pass:{pass} fail:{fail} xfail:{xfail} xpass:{xpass} skip:{skip} error:0"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guests_become_one_report() {
        let mut report = KtapReport::default();
        let rows = report.add(
            "KTAP version 1\n1..3\n# on 7.3\nok 1 a\n# 1, not 2\nnot ok 2 b\nok 3 c # SKIP no\n\
             # Totals: pass:1 fail:1 xfail:0 xpass:0 skip:1 error:0\n",
        );
        assert_eq!(rows, ["ok a ", "not ok b ", "ok c SKIP"]);
        report.hear(&[], true, false);
        report.add("KTAP version 1\n1..1\nok 1 bug-x # XFAIL y: z\n");
        let wanted = "KTAP version 1\n1..5\n# on 7.3\nok 1 a\n# 1, not 2\nnot ok 2 b\n\
                      ok 3 c # SKIP no\nok 4 kernel-log\nok 5 bug-x # XFAIL y: z\n\
                      # Totals: pass:2 fail:1 xfail:1 xpass:0 skip:1 error:0\n";
        assert_eq!(report.to_string(), wanted);
        assert!(report.failed());
    }

    #[test]
    fn a_guest_that_ends_early_is_a_failure() {
        let mut report = KtapReport::default();
        report.add("KTAP version 1\n1..2\nok 1 a\n");
        assert!(report.failed() && report.to_string().contains("not ok 2 guest"));
    }

    #[test]
    fn a_kernel_may_complain_of_known_bugs_only() {
        for ok in [true, false] {
            let mut report = KtapReport::default();
            report.hear(&["WARNING: strange".to_owned()], ok, false);
            assert_eq!(!report.failed(), ok);
            assert!(report.to_string().contains("# WARNING: strange\n"));
        }
    }
}
