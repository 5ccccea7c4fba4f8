// SPDX-License-Identifier: MIT OR Apache-2.0
//! `npu-probe decode` of a capture: its jobs, their programs, and their memory accesses.

use std::ops::Range;

use anyhow::anyhow;
use npu_capture::{Capture, CapturedProgram, Contents, Moment};
use rknpu_regcmd::{Iova, Word};
use serde::Serialize;

use crate::base::exit::{Failure, Verdict};
use crate::base::flags::DecodeFlags;
use crate::base::{capture_file, output};

/// The `--json` output.
#[derive(Debug, Serialize)]
struct Report {
    device: String,
    chip: String,
    finished: bool,
    zero_data: bool,
    jobs: Vec<DecodedJob>,
}

#[derive(Debug, Serialize)]
struct DecodedJob {
    index: usize,
    file: u32,
    outcome: String,
    started_ns: u64,
    ended_ns: Option<u64>,
    lists: Vec<String>,
    programs: Vec<ProgramReport>,
}

#[derive(Debug, Serialize)]
struct ProgramReport {
    regcmd: String,
    words: u32,
    /// Its memory accesses, or why they are unknown.
    extents: Vec<String>,
    /// The program's disassembly, with `--job`.
    #[serde(skip_serializing_if = "Option::is_none")]
    disassembly: Option<Vec<String>>,
}

impl ProgramReport {
    fn new(program: &CapturedProgram, decode: &DecodeFlags) -> Self {
        let mut extents = Vec::new();
        if program.words.is_none() {
            extents.push("its words are outside the buffer objects of the job".to_owned());
        }
        for (_, touched) in program.extents() {
            match touched {
                Ok(touched) => extents.extend(touched.iter().map(ToString::to_string)),
                Err(error) => extents.push(format!("unknown: {error}")),
            }
        }
        let text = decode.job.map(|_| decode.disassemble(program.words()));
        Self {
            regcmd: Iova(program.task.regcmd).to_string(),
            words: program.task.regcmd_count,
            extents,
            disassembly: text.map(|text| text.lines().map(str::to_owned).collect()),
        }
    }
}

/// The indices of the requested jobs.
fn jobs(capture: &Capture, job: Option<usize>) -> Result<Range<usize>, Failure> {
    let count = capture.jobs().len();
    match job {
        None => Ok(0..count),
        Some(job) if job < count => Ok(job..job + 1),
        Some(job) => Err(Failure::Usage(anyhow!(
            "no job {job}: the capture has {count} jobs, counted from 0"
        ))),
    }
}

/// The words of one program of a job.
pub(super) fn words(decode: &DecodeFlags, job: usize, task: usize) -> Result<Vec<Word>, Failure> {
    let capture = capture_file::open(decode.file(), decode.capture)?;
    let job = jobs(&capture, Some(job))?.start;
    let mut contents = Contents::new(&capture);
    contents.go(Moment::Before(job));
    let mut programs = capture.programs(&capture.jobs()[job], &contents);
    let words = programs.nth(task).and_then(|program| program.words);
    words.ok_or_else(|| {
        Failure::Usage(anyhow!(
            "the capture has no words of program {task} of job {job}"
        ))
    })
}

pub(crate) fn run(decode: &DecodeFlags) -> Result<Verdict, Failure> {
    let capture = capture_file::open(decode.file(), decode.capture)?;
    let indices = jobs(&capture, decode.job)?;
    let mut contents = Contents::new(&capture);
    let jobs = indices.map(|index| {
        contents.go(Moment::Before(index));
        job_report(&capture, &contents, index, decode)
    });
    if decode.report.json {
        output::print_json(&Report {
            device: capture.device().info.name.clone(),
            chip: capture.device().chip.clone(),
            finished: capture.finished(),
            zero_data: capture.zero_data(),
            jobs: jobs.collect(),
        })?;
    } else {
        output::print(&capture_file::head(&capture))?;
        // One by one: the text of a long capture would fill the memory.
        for job in jobs {
            output::print(&job_text(&job))?;
        }
    }
    Ok(Verdict::Pass)
}

fn job_report(
    capture: &Capture,
    contents: &Contents<'_>,
    index: usize,
    decode: &DecodeFlags,
) -> DecodedJob {
    let job = &capture.jobs()[index];
    let programs = capture.programs(job, contents);
    DecodedJob {
        index,
        file: job.file,
        outcome: job.outcome.to_string(),
        started_ns: job.started_ns,
        ended_ns: job.ended_ns,
        lists: job
            .uses
            .iter()
            .map(|used| capture_file::use_text(capture, used))
            .collect(),
        programs: programs
            .map(|program| ProgramReport::new(&program, decode))
            .collect(),
    }
}

fn job_text(job: &DecodedJob) -> String {
    let mut text = format!("job {} of file {}: {}", job.index, job.file, job.outcome);
    if let Some(ended) = job.ended_ns {
        let us = ended.saturating_sub(job.started_ns) as f64 / 1000.0;
        text += &format!(", {us:.1} us from submit to observed end");
    }
    text.push('\n');
    for entry in &job.lists {
        text += &format!("  {entry}\n");
    }
    for (index, program) in job.programs.iter().enumerate() {
        text += &format!(
            "  program {index}: {} words at {}\n",
            program.words, program.regcmd
        );
        for extent in &program.extents {
            text += &format!("    {extent}\n");
        }
        for line in program.disassembly.iter().flatten() {
            text += &format!("{line}\n");
        }
    }
    text
}
