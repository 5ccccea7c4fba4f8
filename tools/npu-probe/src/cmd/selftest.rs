// SPDX-License-Identifier: MIT OR Apache-2.0
//! The self-test: multiply on the NPU, multiply on the CPU, compare.

use std::fs;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, anyhow};
use npu_capture::{Recorder, RecorderOptions};
use npu_matmul::{Engine, Error, Observer, PackedWeights, Results};
use npu_model::Model;
use rknpu_regcmd::timing::seconds;
use rocket_uapi::Device;

use super::measuring;
use crate::capture::{CapturedProduct, JobCollector};
use crate::data::ProductOperands;
use crate::dump::Dump;
use crate::exit::{Failure, Verdict};
use crate::expected::CpuResult;
use crate::flags::SelfTestFlags;
use crate::output;
use crate::product::ProductResult;
use crate::progress::ProgressLine;
use crate::report::{
    DeviceReport, ProblemReport, ProgramReport, RunReport, SelfTestReport, time_of,
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
            "--trace shows modelled times, and {} is no model; add --device model",
            opened.device.info().name
        )));
    }
    let device = DeviceReport::new(opened.device.info(), opened.why);
    let say = |text: &str| test.report.say(text);
    say(&device.text())?;

    let progress = ProgressLine::of(test.repeat.get() as u64, "computing on the CPU");
    let operands = ProductOperands::random_of(test.dtype, a_len, b_len, test.seed);
    let (recorded, recorder) = recorded(&opened.device, test)?;
    let capture = Arc::new(JobCollector::default());
    let observer: Arc<dyn Observer> = Arc::<JobCollector>::clone(&capture);
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
        device: &device,
        problem: &problem,
        operands: &operands,
        expected: &expected,
        engine: &engine,
        weights: &weights,
        capture: &capture,
        model: opened.model.as_deref(),
        progress: &progress,
    };
    let outcome = self_test.run();
    // Also of a run that failed: that is what recordings are for.
    let recording = finish(recorder.as_ref());
    let (program, runs) = outcome?;
    let recording = recording?;
    let traced = self_test.trace()?;
    let verdict = Verdict::of(runs.iter().all(RunReport::passes));
    let report = SelfTestReport {
        result: verdict,
        time_of: time_of(device.is_model),
        model_events: self_test.model_events(),
        device: device.clone(),
        problem: problem.clone(),
        program,
        runs,
    };
    drop(progress);
    if test.report.json {
        output::print_json(&report)?;
    } else {
        output::print(&(program.text() + &report.verdict_text()))?;
        if let (Some(file), Some(text)) = (&test.files.trace, &traced) {
            output::print(&format!("trace      {}: {text}\n", file.display()))?;
        }
        if let (Some(file), Some(text)) = (&test.files.record, &recording) {
            output::print(&format!("recorded   {}: {text}\n", file.display()))?;
        }
        if let Some(directory) = &test.dump {
            output::print(&format!("dump       {}\n", directory.display()))?;
        }
    }
    Ok(verdict)
}

/// The device, with a recorder in front of it if that is wanted.
fn recorded(device: &Device, test: &SelfTestFlags) -> Result<(Device, Option<Recorder>), Failure> {
    let Some(file) = &test.files.record else {
        return Ok((device.clone(), None));
    };
    let options = RecorderOptions {
        // What a board was doing when it died is to be on its disk.
        durable: !device.info().is_model,
        notes: vec![(
            "made by".to_owned(),
            "the self-test of npu-probe".to_owned(),
        )],
        ..RecorderOptions::default()
    };
    let recorder = Recorder::create(file, options)
        .with_context(|| file.display().to_string())
        .map_err(Failure::Output)?;
    let device = recorder
        .open(device)
        .context("cannot open the device again")
        .map_err(Failure::Device)?;
    Ok((device, Some(recorder)))
}

/// Ends a recording; says what is in it.
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

/// All that the runs of one self-test share.
struct SelfTestRuns<'a> {
    test: &'a SelfTestFlags,
    c_len: usize,
    device: &'a DeviceReport,
    problem: &'a ProblemReport,
    operands: &'a ProductOperands,
    expected: &'a CpuResult,
    engine: &'a Engine,
    weights: &'a PackedWeights,
    capture: &'a JobCollector,
    model: Option<&'a Model>,
    progress: &'a ProgressLine,
}

impl SelfTestRuns<'_> {
    /// Multiplies and compares as often as asked for. The first run is dumped,
    /// and in its place the first that fails.
    fn run(&self) -> Result<(ProgramReport, Vec<RunReport>), Failure> {
        let mut runs: Vec<RunReport> = Vec::new();
        let mut program = ProgramReport::default();
        self.progress.doing("multiplying");
        for _ in 0..self.test.repeat.get() {
            let start = Instant::now();
            let product = self.multiply();
            let wall = start.elapsed();
            let captured = self.capture.take();
            program = ProgramReport::new(&captured);
            let product = match product {
                Ok(product) => product,
                Err(error) => {
                    self.dump(&captured, Err(&error))?;
                    for event in self.model_events() {
                        let text = format!("the model says: {event}");
                        self.progress.aside(|| output::complain(&text));
                    }
                    return Err(error.into());
                }
            };
            let run = RunReport::new(wall, self.expected.compare(&product, self.test.shape.n));
            let first_failure = !run.passes() && runs.iter().all(RunReport::passes);
            if runs.is_empty() || first_failure {
                self.dump(&captured, Ok(&product))?;
            }
            runs.push(run);
            self.progress.step();
        }
        Ok((program, runs))
    }

    fn multiply(&self) -> Result<ProductResult, Error> {
        let mut product = ProductResult::unwritten(self.operands, Results::Sums, self.c_len);
        product.multiply(self.engine, self.weights, self.test.shape.m, self.operands)?;
        Ok(product)
    }

    /// Writes what was submitted and what came of it, if that is wanted.
    fn dump(
        &self,
        captured: &CapturedProduct,
        outcome: Result<&ProductResult, &Error>,
    ) -> Result<(), Failure> {
        let Some(directory) = &self.test.dump else {
            return Ok(());
        };
        let error = outcome.err().map(ToString::to_string);
        let dump = Dump {
            device: self.device,
            problem: self.problem,
            captured,
            operands: self.operands,
            expected: self.expected,
            product: outcome.ok(),
            error: error.as_deref(),
            model_events: &self.model_events(),
        };
        dump.write(directory).map_err(Failure::Output)
    }

    /// Writes the modelled timeline, if that is wanted; says what is in it.
    fn trace(&self) -> Result<Option<String>, Failure> {
        let timeline = self.model.and_then(Model::timeline);
        let (Some(file), Some(timeline)) = (&self.test.files.trace, timeline) else {
            return Ok(None);
        };
        fs::write(file, timeline.to_chrome_trace())
            .with_context(|| format!("writing {}", file.display()))
            .map_err(Failure::Output)?;
        Ok(Some(format!(
            "{} jobs, {:.1} us of modelled time at {} MHz (for ui.perfetto.dev)",
            timeline.jobs().len(),
            seconds(timeline.end_ps()) * 1e6,
            timeline.machine().clock_hz / 1_000_000,
        )))
    }

    fn model_events(&self) -> Vec<String> {
        let events = self.model.map(Model::events).unwrap_or_default();
        events.iter().map(ToString::to_string).collect()
    }
}
