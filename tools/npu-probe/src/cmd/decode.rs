// SPDX-License-Identifier: MIT OR Apache-2.0
//! `npu-probe decode`: disassembles a register program, and lists findings. `decode_capture`
//! handles captures, `diff` compares two of them.

use anyhow::anyhow;
use rknpu_regcmd::task::Task;
use rknpu_regcmd::{Finding, LintContext, Word, lint, pages, tasks};
use serde::Serialize;

use crate::base::capture_file;
use crate::base::exit::{Failure, Verdict};
use crate::base::flags::DecodeFlags;
use crate::base::output;
use crate::matmul::program;

/// The `--json` output.
#[derive(Debug, Serialize)]
struct Report {
    words: usize,
    /// One line per task: what it computes.
    tasks: Vec<String>,
    /// One line per word.
    disassembly: Vec<String>,
    findings: Vec<Finding>,
}

pub(crate) fn run(decode: &DecodeFlags) -> Result<Verdict, Failure> {
    if let Some(name) = &decode.registers {
        return print_page(name, pages::registers);
    }
    if let Some(id) = &decode.rules {
        return print_page(id, pages::rules);
    }
    if let Some(other) = &decode.other {
        return super::diff::run(decode, other);
    }
    let is_capture = capture_file::is_capture(decode.file());
    if !is_capture && (decode.job.is_some() || decode.capture.unfinished) {
        return Err(Failure::Usage(anyhow!(
            "{} is not a capture; --job and --unfinished need a capture",
            decode.file().display()
        )));
    }
    if decode.lint {
        return super::lint::run(decode, is_capture);
    }
    let words = match (is_capture, decode.job.zip(decode.task)) {
        (true, Some((job, task))) => super::decode_capture::words(decode, job, task)?,
        (true, None) => return super::decode_capture::run(decode),
        (false, _) => program::read(decode.file())?,
    };
    let text = decode.disassemble(&words);
    let report = Report {
        words: words.len(),
        tasks: headings(&words),
        disassembly: text.lines().map(str::to_owned).collect(),
        // Checks the words alone: buffers and earlier programs are unknown here.
        findings: lint(&words, &LintContext::default()),
    };
    // All but the words as comments, so that `asm` accepts the whole output.
    decode.report.print(&report, || {
        let headings = report.tasks.iter().map(|task| format!("# {task}\n"));
        let findings = report.findings.iter();
        let mut found: String = findings.map(|one| format!("# {one}\n")).collect();
        if found.is_empty() {
            found += "# no findings\n";
        }
        headings.collect::<String>() + &text + &found
    })?;
    Ok(Verdict::Pass)
}

/// Prints the rows of a table whose names contain `name`.
fn print_page(name: &str, page: fn(&str) -> Option<String>) -> Result<Verdict, Failure> {
    let text = page(name).ok_or_else(|| Failure::Usage(anyhow!("no name contains {name:?}")))?;
    output::print(&text)?;
    Ok(Verdict::Pass)
}

/// One line per task of `words`.
fn headings(words: &[Word]) -> Vec<String> {
    let mut headings = Vec::new();
    for (index, registers) in tasks(words).enumerate() {
        let tasks = Task::all(&registers.regs, registers.enable);
        headings.extend(tasks.map(|task| match task {
            Ok(task) => format!("task {index}: {task}"),
            Err(error) => format!("task {index} does not end: {error}"),
        }));
    }
    headings
}
