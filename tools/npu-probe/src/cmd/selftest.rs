// SPDX-License-Identifier: MIT OR Apache-2.0
//! The self-test: multiply on the NPU, multiply on the CPU, compare.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, anyhow};
use npu_capture::{Recorder, RecorderOptions};
use npu_matmul::{Engine, Error, Observer, PackedWeights, Results};
use npu_model::Model;
use rknpu_regcmd::timing::seconds;
use rocket_uapi::Device;

use super::measuring;
use crate::data::ProductOperands;
use crate::exit::{Failure, Verdict};
use crate::expected::CpuResult;
use crate::flags::SelfTestFlags;
use crate::output;
use crate::product::ProductResult;
use crate::progress::ProgressLine;
use crate::report::{
    DeviceReport, ProblemReport, ProgramCounter, RunReport, SelfTestReport, time_of,
};
use crate::shape::ProductShape;

pub(crate) fn run(test: &SelfTestFlags) -> Result<Verdict, Failure> {
    let ProductShape { m, k, n } = test.shape;
    let [a_len, b_len, c_len] = test.shape.lengths()?;
    let opened = super::open_with(&test.device, |options| {
        options.timeline = test.files.trace.is_some()
    })?;
    if test.files.trace.is_some() && opened.model.is_none() {
        return Err(Failure::Usage(anyhow!(
            "--trace needs the software model, since its times are modelled; {} is a device. Add \
             --device model",
            opened.device.info().name
        )));
    }
    let device = DeviceReport::new(opened.device.info(), opened.why);
    let say = |text: &str| test.report.say(text);
    say(&device.text())?;

    let progress = ProgressLine::of(test.repeat.get() as u64, "computing on the CPU");
    let operands = ProductOperands::random_of(test.dtype, a_len, b_len, test.seed);
    let (recorded, recorder) = recorded(&opened.device, test)?;
    let counter = Arc::new(ProgramCounter::default());
    let observer: Arc<dyn Observer> = Arc::<ProgramCounter>::clone(&counter);
    let engine = measuring::engine_of_board(&recorded, test.fds.get())?.observed_by(observer);
    let weights = operands.load(&engine, test.dtype.dtype(), n, k)?;
    let output = ProductResult::output(&operands, Results::Sums);
    let plan = engine.prepare(&weights, m, output)?.plan().to_string();
    let problem = ProblemReport::new(test, plan);
    progress.aside(|| say(&problem.text()))?;
    let expected = CpuResult::compute(test.shape, &operands, weights.plan().k_tile_count());

    let self_test = SelfTestRuns {
        test,
        c_len,
        operands: &operands,
        expected: &expected,
        engine: &engine,
        weights: &weights,
        progress: &progress,
    };
    let (runs, failed) = self_test.run();
    let program = counter.of_one(runs.len() + usize::from(failed.is_some()));
    // Also after a failed run: recordings are for those.
    let recording = finish(recorder.as_ref())?;
    let traced = trace(test, opened.model.as_deref())?;
    let is_right = failed.is_none() && runs.iter().all(RunReport::passes);
    let verdict = Verdict::of(is_right);
    let events = opened.model.as_deref().map(Model::events);
    let report = SelfTestReport {
        result: verdict,
        error: failed.as_ref().map(ToString::to_string),
        time_of: time_of(device.is_model),
        model_events: events.iter().flatten().map(ToString::to_string).collect(),
        device,
        problem,
        program,
        runs,
    };
    drop(progress);
    if let Some(folder) = &test.dump {
        write_json(&folder.join(DUMPED_REPORT), &report)?;
    }
    if test.report.json {
        output::print_json(&report)?;
    }
    if let Some(error) = failed {
        for event in &report.model_events {
            output::complain(&format!("model event: {event}"));
        }
        return Err(error.into());
    }
    let mut text = program.text() + &report.verdict_text();
    if let (Some(file), Some(traced)) = (&test.files.trace, &traced) {
        text += &format!("trace      {}: {traced}\n", file.display());
    }
    if let (Some(file), Some(recorded)) = (test.record_file(), &recording) {
        text += &format!("recorded   {}: {recorded}\n", file.display());
    }
    say(&text)?;
    Ok(verdict)
}

/// The file of a dump beside the recording.
const DUMPED_REPORT: &str = "report.json";

fn write_json(file: &Path, report: &SelfTestReport) -> Result<(), Failure> {
    let write =
        || -> anyhow::Result<()> { Ok(fs::write(file, serde_json::to_vec_pretty(report)?)?) };
    write()
        .with_context(|| format!("cannot write {}", file.display()))
        .map_err(Failure::Output)
}

/// The device, with a recorder in front of it if requested.
fn recorded(device: &Device, test: &SelfTestFlags) -> Result<(Device, Option<Recorder>), Failure> {
    let Some(file) = test.record_file() else {
        return Ok((device.clone(), None));
    };
    if let Some(folder) = &test.dump {
        fs::create_dir_all(folder)
            .with_context(|| format!("cannot create the directory {}", folder.display()))
            .map_err(Failure::Output)?;
    }
    let options = RecorderOptions {
        // What a board was doing when it died is to be on its disk.
        durable: !device.info().is_model,
        notes: vec![(
            "made by".to_owned(),
            "the self-test of npu-probe".to_owned(),
        )],
        ..RecorderOptions::default()
    };
    let recorder = Recorder::create(&file, options)
        .with_context(|| file.display().to_string())
        .map_err(Failure::Output)?;
    let device = recorder
        .open(device)
        .context("cannot open the device again")
        .map_err(Failure::Device)?;
    Ok((device, Some(recorder)))
}

/// Ends a recording; returns a summary.
fn finish(recorder: Option<&Recorder>) -> Result<Option<String>, Failure> {
    let Some(recorder) = recorder else {
        return Ok(None);
    };
    let summary = recorder
        .finish()
        .map_err(|error| Failure::Output(error.into()))?;
    Ok(Some(format!(
        "{} jobs, {} bytes",
        summary.jobs, summary.bytes
    )))
}

/// State that the runs of one self-test share.
struct SelfTestRuns<'a> {
    test: &'a SelfTestFlags,
    c_len: usize,
    operands: &'a ProductOperands,
    expected: &'a CpuResult,
    engine: &'a Engine,
    weights: &'a PackedWeights,
    progress: &'a ProgressLine,
}

impl SelfTestRuns<'_> {
    /// Multiplies and compares as often as asked for, or until the device fails.
    fn run(&self) -> (Vec<RunReport>, Option<Error>) {
        let mut runs = Vec::new();
        self.progress.doing("multiplying");
        for _ in 0..self.test.repeat.get() {
            let start = Instant::now();
            let product = self.multiply();
            let wall = start.elapsed();
            match product {
                Ok(product) => {
                    let comparison = self.expected.compare(&product, self.test.shape.n);
                    runs.push(RunReport::new(wall, comparison));
                }
                Err(error) => return (runs, Some(error)),
            }
            self.progress.step();
        }
        (runs, None)
    }

    fn multiply(&self) -> Result<ProductResult, Error> {
        let mut product = ProductResult::unwritten(self.operands, Results::Sums, self.c_len);
        product.multiply(self.engine, self.weights, self.test.shape.m, self.operands)?;
        Ok(product)
    }
}

/// Writes the modelled timeline, if requested; returns a summary.
fn trace(test: &SelfTestFlags, model: Option<&Model>) -> Result<Option<String>, Failure> {
    let timeline = model.and_then(Model::timeline);
    let (Some(file), Some(timeline)) = (&test.files.trace, timeline) else {
        return Ok(None);
    };
    fs::write(file, timeline.to_chrome_trace())
        .with_context(|| format!("cannot write {}", file.display()))
        .map_err(Failure::Output)?;
    Ok(Some(format!(
        "{} jobs, {:.1} us of modelled time at {} MHz (for ui.perfetto.dev)",
        timeline.jobs().len(),
        seconds(timeline.end_ps()) * 1e6,
        timeline.machine().clock_hz / 1_000_000,
    )))
}
