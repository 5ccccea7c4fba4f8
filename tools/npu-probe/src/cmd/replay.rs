// SPDX-License-Identifier: MIT OR Apache-2.0
//! `npu-probe replay`: runs the jobs of a capture again.

use std::path::PathBuf;

use anyhow::anyhow;
use clap::Args;
use npu_capture::{
    ByteDifference, Capture, ProgramChange, ReplayError, ReplayOptions, ReplayReport, ReplayedJob,
    replay, replay_changed,
};
use rocket_uapi::Selector;
use serde::Serialize;
use serde_json::{Value, json};

use crate::base::capture_file::{self, CaptureFlags};
use crate::base::exit::{Failure, Verdict};
use crate::base::flags::{DeviceFlags, ReportFlags};
use crate::base::progress::ProgressLine;
use crate::matmul::program;
use crate::matmul::report::DeviceReport;

/// Binary logarithms of the units.
const MIB: u32 = 20;
const GIB: u32 = 30;

#[derive(Debug, Args)]
pub(crate) struct ReplayFlags {
    /// Capture file
    file: PathBuf,

    #[command(flatten)]
    capture: CaptureFlags,

    /// Replay only this job, with the program of --program
    #[arg(long, value_name = "INDEX", requires = "program")]
    job: Option<usize>,

    /// Run this program in place of one of the job's, and compare the results
    ///
    /// Accepts the forms that `decode` accepts. The memory is that of the recorded job, at the
    /// same addresses. Runs on the software model unless --device names a device: nothing can
    /// check beforehand whether a program hangs a core, or leaves register values that disturb
    /// the next user of the NPU. One more task at the end of the job shows that all tasks ran.
    #[arg(long, value_name = "FILE", requires = "job")]
    program: Option<PathBuf>,

    /// Index of the program in the job that --program replaces
    #[arg(long, value_name = "INDEX", default_value_t = 0, requires = "program")]
    task: usize,

    /// Memory limit for the jobs' buffer objects, MiB
    ///
    /// The gaps between the addresses of a job's objects count too. A small file may claim a
    /// lot of memory; a file that needs more than the limit is rejected before the replay.
    #[arg(long, value_name = "MIB", default_value_t = ReplayOptions::default().bytes_max >> MIB)]
    max_memory: u64,

    /// Limit of the data that all jobs together load and compare, GiB
    #[arg(long, value_name = "GIB", default_value_t = ReplayOptions::default().work_max >> GIB)]
    max_work: u64,

    #[command(flatten)]
    device: DeviceFlags,

    #[command(flatten)]
    report: ReportFlags,
}

/// Most differing jobs that are shown.
const SHOWN: usize = 8;

/// The `--json` output.
#[derive(Debug, Serialize)]
struct Json {
    result: Verdict,
    device: DeviceReport,
    jobs: Vec<JobJson>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    model_events: Vec<String>,
}

#[derive(Debug, Serialize)]
struct JobJson {
    recorded: String,
    replayed: String,
    matches: bool,
    /// None if there is nothing to compare.
    bytes_compared: Option<u64>,
    bytes_different: Option<u64>,
    first: Option<Value>,
}

/// The first byte that differs, with its output element if the program determines
/// it.
fn difference(capture: &Capture, difference: &ByteDifference) -> Value {
    let element = difference.place.as_ref().map(|place| {
        json!({
            "program": place.program,
            "y": place.element.y,
            "x": place.element.x,
            "channel": place.element.channel,
            "dtype": place.element.ty.to_string(),
            "recorded": place.recorded,
            "replayed": place.replayed,
        })
    });
    json!({
        "object": difference.object,
        "handle": capture.objects()[difference.object].handle,
        "offset": difference.offset,
        "iova": difference.iova,
        "recorded": difference.recorded,
        "replayed": difference.replayed,
        "element": element,
    })
}

impl JobJson {
    fn new(capture: &Capture, job: &ReplayedJob) -> Self {
        let comparison = job.comparison.as_ref();
        let first = comparison.and_then(|comparison| comparison.first.as_ref());
        Self {
            recorded: job.recorded.to_string(),
            replayed: job.replayed.to_string(),
            matches: job.matches(),
            bytes_compared: comparison.map(|comparison| comparison.bytes),
            bytes_different: comparison.map(|comparison| comparison.different),
            first: first.map(|first| difference(capture, first)),
        }
    }
}

pub(crate) fn run(args: &ReplayFlags) -> Result<Verdict, Failure> {
    let capture = capture_file::open(&args.file, args.capture)?;
    let words = args.program.as_deref().map(program::read).transpose()?;
    let change = words
        .as_deref()
        .zip(args.job)
        .map(|(words, job)| ProgramChange {
            job,
            program: args.task,
            words,
        });
    let selector = match change {
        Some(_) => args.device.named().unwrap_or(Selector::Model),
        None => args.device.selector(),
    };
    let opened = super::open_selected(&selector, |_| ())?;
    let device = DeviceReport::new(opened.device.info(), opened.why);
    let is_model = device.is_model;
    let say = |text: &str| args.report.say(text);
    say(&(capture_file::head(&capture) + &device.text()))?;
    let progress = ProgressLine::endless("replaying");
    let options = ReplayOptions {
        bytes_max: args.max_memory.saturating_mul(1 << MIB),
        work_max: args.max_work.saturating_mul(1 << GIB),
    };
    let report = match &change {
        Some(change) => replay_changed(&capture, change, &opened.device, &options),
        None => replay(&capture, &opened.device, &options),
    };
    let report = report.map_err(|error| {
        let raise = match error {
            ReplayError::Device(_) | ReplayError::Placement { .. } => {
                return Failure::Device(error.into());
            }
            ReplayError::TooLarge { .. } => "; --max-memory raises it",
            ReplayError::TooMuchWork { .. } => "; --max-work raises it",
            _ => "",
        };
        Failure::Usage(anyhow!(
            "cannot replay {}: {error}{raise}",
            args.file.display()
        ))
    })?;
    drop(progress);
    let events = opened.model.map(|model| model.events()).unwrap_or_default();
    let verdict = Verdict::of(report.matches());
    let jobs = report.jobs.iter();
    let json = Json {
        result: verdict,
        device,
        jobs: jobs.map(|job| JobJson::new(&capture, job)).collect(),
        model_events: events.iter().map(ToString::to_string).collect(),
    };
    args.report.print(&json, || {
        let events = json.model_events.iter();
        let events = events.map(|event| format!("model      {event}\n"));
        let first = args.job.unwrap_or(0);
        let verdict = verdict_text(&capture, first, &report, verdict.words(is_model));
        verdict + &events.collect::<String>()
    })?;
    Ok(verdict)
}

/// The differences and the verdict; the first job of the report has the index `first`.
fn verdict_text(capture: &Capture, first: usize, report: &ReplayReport, words: &str) -> String {
    let mut text = String::new();
    let jobs = (first..).zip(&report.jobs);
    let differing = jobs.filter(|(_, job)| !job.matches());
    let count = differing.clone().count();
    for (index, job) in differing.take(SHOWN) {
        text += &job_text(capture, index, job);
    }
    if count > SHOWN {
        text += &format!("           and {} more jobs\n", count - SHOWN);
    }
    let jobs = report.jobs.len();
    let comparisons = report.jobs.iter().filter_map(|job| job.comparison.as_ref());
    let bytes: u64 = comparisons.clone().map(|comparison| comparison.bytes).sum();
    let compared = comparisons.count();
    text + &match count {
        0 if compared == 0 => {
            format!(
                "{words:10} {jobs} jobs ended as recorded; the capture has no contents to compare\n"
            )
        }
        0 => format!(
            "{words:10} {jobs} jobs ended as recorded; {bytes} bytes of {compared} jobs are equal\n"
        ),
        _ => format!("{words:10} {count} of {jobs} jobs differ from the recording\n"),
    }
}

fn job_text(capture: &Capture, index: usize, job: &ReplayedJob) -> String {
    let mut text = format!(
        "job {index:<6} recorded: {}; now: {}\n",
        job.recorded, job.replayed
    );
    let comparison = job.comparison.as_ref();
    let Some((comparison, first)) = comparison.and_then(|one| Some((one, one.first.as_ref()?)))
    else {
        return text;
    };
    text += &format!(
        "           {} of {} bytes differ, the first at {:#x} of handle {} (address {:#010x}): \
         recorded {:#04x}, now {:#04x}\n",
        comparison.different,
        comparison.bytes,
        first.offset,
        capture.objects()[first.object].handle,
        first.iova,
        first.recorded,
        first.replayed,
    );
    if let Some(place) = &first.place {
        let element = &place.element;
        text += &format!(
            "           output of program {}: y {}, x {}, channel {} ({}): recorded {}, now {}\n",
            place.program,
            element.y,
            element.x,
            element.channel,
            element.ty,
            place.recorded,
            place.replayed,
        );
    }
    text
}
