// SPDX-License-Identifier: MIT OR Apache-2.0
//! `npu-probe decode --lint`: findings on all programs of a capture, or on one program.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use npu_capture::{Contents, Moment};
use rknpu_regcmd::{Finding, LintContext, Severity, lint};
use serde::Serialize;

use crate::base::capture_file;
use crate::base::exit::{Failure, Verdict};
use crate::base::flags::DecodeFlags;
use crate::matmul::program;

/// One finding, and how often it occurred.
#[derive(Debug, Serialize)]
struct RepeatedFinding {
    /// Number of programs that have it.
    programs: usize,
    /// The first job that has it.
    job: usize,
    /// Index of the first program of that job that has it.
    program: usize,
    /// The finding as that program has it.
    first: Finding,
}

/// The `--json` output.
#[derive(Debug, Default, Serialize)]
struct Report {
    jobs: usize,
    programs: usize,
    /// Programs whose words are not in the capture.
    without_words: usize,
    errors: usize,
    findings: Vec<RepeatedFinding>,
}

/// Repeated findings, by severity and rule.
type RepeatedFindings = BTreeMap<(Reverse<Severity>, &'static str), RepeatedFinding>;

fn add(repeated: &mut RepeatedFindings, job: usize, program: usize, findings: Vec<Finding>) {
    let mut seen = BTreeSet::new();
    for finding in findings {
        let key = (Reverse(finding.severity), finding.rule);
        if seen.insert(key) {
            let known = repeated.entry(key).or_insert_with(|| RepeatedFinding {
                programs: 0,
                job,
                program,
                first: finding,
            });
            known.programs += 1;
        }
    }
}

/// Lints a capture if `is_capture`, else one program.
pub(super) fn run(decode: &DecodeFlags, is_capture: bool) -> Result<Verdict, Failure> {
    let mut report = Report::default();
    let mut findings = RepeatedFindings::default();
    if is_capture {
        let capture = capture_file::open(decode.file(), decode.capture)?;
        report.jobs = capture.jobs().len();
        let mut contents = Contents::new(&capture);
        for (index, job) in capture.jobs().iter().enumerate() {
            contents.go(Moment::Before(index));
            for program in capture.programs(job, &contents) {
                report.programs += 1;
                match program.words {
                    None => report.without_words += 1,
                    Some(_) => add(&mut findings, index, program.index, program.lint()),
                }
            }
        }
    } else {
        let words = program::read(decode.file())?;
        report.programs = 1;
        add(&mut findings, 0, 0, lint(&words, &LintContext::default()));
    }
    let severities = findings.keys().map(|(severity, _)| severity.0);
    report.errors = severities.filter(|one| *one == Severity::Error).count();
    report.findings = findings.into_values().collect();
    decode.report.print(&report, || text(&report))?;
    Ok(Verdict::of(report.errors == 0))
}

fn text(report: &Report) -> String {
    let mut text = format!("{} programs of {} jobs\n", report.programs, report.jobs);
    if report.without_words > 0 {
        text += &format!(
            "{} of them have words outside the buffer objects of their job\n",
            report.without_words
        );
    }
    for finding in &report.findings {
        text += &format!(
            "in {} programs, first in job {}, program {}:\n  {}\n",
            finding.programs, finding.job, finding.program, finding.first
        );
    }
    if report.findings.is_empty() {
        text += "no findings\n";
    }
    text
}
