// SPDX-License-Identifier: MIT OR Apache-2.0
//! `npu-probe decode`: disassembles a register program, and lists findings. `decode_capture`
//! handles captures.

use std::path::PathBuf;

use anyhow::anyhow;
use clap::Args;
use rknpu_regcmd::task::Task;
use rknpu_regcmd::{Finding, LintContext, Word, disassemble, lint, statements, tasks};
use serde::Serialize;

use crate::capture_file::{self, CaptureFlags};
use crate::exit::{Failure, Verdict};
use crate::flags::ReportFlags;
use crate::program;

#[derive(Debug, Args)]
pub(crate) struct DecodeFlags {
    /// File with a program; `-` is standard input
    ///
    /// Accepts a capture file, assembler text, hexadecimal 64-bit words separated by blanks or
    /// commas, or binary little-endian words. `#` and `;` begin comments in text. The file's
    /// extension selects the format (.asm .s, .hex .words, .bin); without one the content
    /// does.
    pub(crate) file: PathBuf,

    /// Print the programs of this job of a capture
    #[arg(long, value_name = "INDEX")]
    pub(crate) job: Option<usize>,

    /// Print only this program of the job, like a program file
    #[arg(long, value_name = "INDEX", requires = "job")]
    pub(crate) task: Option<usize>,

    #[command(flatten)]
    pub(crate) capture: CaptureFlags,

    /// Print only the findings on all programs
    ///
    /// The exit code is 1 if there are errors. Warnings and notes do not count.
    #[arg(long, conflicts_with_all = ["job", "statements"])]
    pub(crate) lint: bool,

    /// Print assembler statements without addresses and bits, to edit and pass to `asm`
    #[arg(long)]
    pub(crate) statements: bool,

    #[command(flatten)]
    pub(crate) report: ReportFlags,
}

impl DecodeFlags {
    /// The words as text, in the requested form.
    pub(super) fn disassemble(&self, words: &[Word]) -> String {
        if self.statements {
            statements(words)
        } else {
            disassemble(words)
        }
    }
}

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
    let is_capture = capture_file::is_capture(&decode.file);
    if !is_capture && (decode.job.is_some() || decode.capture.unfinished) {
        return Err(Failure::Usage(anyhow!(
            "{} is not a capture; --job and --unfinished need a capture",
            decode.file.display()
        )));
    }
    if decode.lint {
        return super::lint::run(decode, is_capture);
    }
    let words = match (is_capture, decode.job.zip(decode.task)) {
        (true, Some((job, task))) => super::decode_capture::words(decode, job, task)?,
        (true, None) => return super::decode_capture::run(decode),
        (false, _) => program::read(&decode.file)?,
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
