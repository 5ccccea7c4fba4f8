// SPDX-License-Identifier: MIT OR Apache-2.0
//! `npu-probe lint`: what is wrong with all programs of a capture.

use std::collections::BTreeMap;

use anyhow::Context;
use npu_capture::{Capture, Contents, Moment};
use rknpu_regcmd::{Finding, LintContext, Severity, lint};
use serde::Serialize;

use super::decode::FindingReport;
use crate::capture_file;
use crate::capture_flags::CaptureFlags;
use crate::exit::{Failure, Verdict};
use crate::flags::Flags;
use crate::output;
use crate::program;

/// One finding, as often as it came.
#[derive(Debug, Serialize)]
struct Group {
    /// How many programs have it.
    programs: usize,
    /// The first job that has it.
    job: usize,
    /// Its program.
    program: usize,
    /// It, in that program.
    first: FindingReport,
    #[serde(skip)]
    text: String,
}

/// What `--json` prints.
#[derive(Debug, Default, Serialize)]
struct Report {
    jobs: usize,
    programs: usize,
    /// Programs whose words are not in the capture.
    without_words: usize,
    errors: usize,
    findings: Vec<Group>,
}

/// Findings, by how bad they are and their rule.
#[derive(Default)]
struct Groups(BTreeMap<(std::cmp::Reverse<Severity>, &'static str), Group>);

impl Groups {
    fn add(&mut self, job: usize, program: usize, findings: &[Finding]) {
        let mut seen = Vec::new();
        for finding in findings {
            let key = (std::cmp::Reverse(finding.severity), finding.rule);
            if seen.contains(&key) {
                continue;
            }
            seen.push(key);
            let group = self.0.entry(key).or_insert_with(|| Group {
                programs: 0,
                job,
                program,
                first: finding.into(),
                text: finding.to_string(),
            });
            group.programs += 1;
        }
    }
}

pub(crate) fn run(flags: &Flags, file: &CaptureFlags) -> Result<Verdict, Failure> {
    let mut report = Report::default();
    let mut groups = Groups::default();
    if capture_file::is_capture(&file.file) {
        let capture = capture_file::open(&file.file, file.unfinished)?;
        of_capture(&capture, &mut report, &mut groups);
    } else {
        let words = program::read(&file.file)
            .with_context(|| format!("{} is no capture and no program", file.file.display()))
            .map_err(Failure::Usage)?;
        report.programs = 1;
        groups.add(0, 0, &lint(&words, &LintContext::default()));
    }
    report.errors = groups
        .0
        .keys()
        .filter(|(severity, _)| severity.0 == Severity::Error)
        .count();
    report.findings = groups.0.into_values().collect();
    let verdict = if report.errors == 0 {
        Verdict::Pass
    } else {
        Verdict::Mismatch
    };
    if flags.json {
        output::print_json(&report)?;
    } else {
        output::print(&text(&report))?;
    }
    Ok(verdict)
}

fn of_capture(capture: &Capture, report: &mut Report, groups: &mut Groups) {
    report.jobs = capture.jobs().len();
    let mut contents = Contents::new(capture);
    for (index, job) in capture.jobs().iter().enumerate() {
        contents.go(Moment::Before(index));
        for program in capture.programs(job, &contents) {
            report.programs += 1;
            if program.words.is_none() {
                report.without_words += 1;
            } else {
                groups.add(index, program.index, &program.lint());
            }
        }
    }
}

fn text(report: &Report) -> String {
    let mut text = format!("{} programs of {} jobs\n", report.programs, report.jobs);
    if report.without_words > 0 {
        text += &format!(
            "{} of them have words that are in no buffer object of their job\n",
            report.without_words
        );
    }
    for group in &report.findings {
        text += &format!(
            "in {} programs, first in job {}, program {}:\n  {}\n",
            group.programs, group.job, group.program, group.text
        );
    }
    if report.findings.is_empty() {
        text += "no findings\n";
    }
    text
}
