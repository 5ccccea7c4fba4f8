// SPDX-License-Identifier: MIT OR Apache-2.0
//! The self-test: multiplies on the NPU and on the CPU, and compares the
//! results.

use std::fs;
use std::sync::Arc;
use std::time::Instant;

use anyhow::anyhow;
use npu_capture::{Recorder, RecorderOptions};
use npu_matmul::Observer;
use npu_model::Model;
use rknpu_regcmd::timing::seconds;
use rocket_uapi::Device;

use super::soak;
use crate::base::exit::{Failure, Verdict};
use crate::base::flags::SelfTestFlags;
use crate::base::output;
use crate::base::progress::ProgressLine;
use crate::base::shape::MatmulShape;
use crate::base::sudo::as_caller;
use crate::matmul::data::MatmulOperands;
use crate::matmul::engine_run::{self, MatmulResult};
use crate::matmul::expected::CpuResult;
use crate::matmul::report::{
    DeviceReport, FailedJobs, ProblemReport, ProgramCounter, RunReport, SelfTestReport, time_of,
};

pub(crate) fn run(test: &SelfTestFlags) -> Result<Verdict, Failure> {
    match (test.soak.client, test.soak.seconds) {
        (Some(cases), _) => soak::client(test, cases.unwrap_or(u64::MAX)),
        (None, Some(seconds)) => soak::run(test, seconds),
        (None, None) => once(test),
    }
}

/// Multiplies one pair of matrices, as often as requested.
fn once(test: &SelfTestFlags) -> Result<Verdict, Failure> {
    let MatmulShape { m, k, n } = test.shape;
    let [a_len, b_len, c_len] = test.shape.lengths()?;
    let opened = super::open_selected(&test.device.selector(), |options| {
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
    let operands = MatmulOperands::random(test.dtype, [a_len, b_len], test.seed);
    let (recorded, recorder) = recorded(&opened.device, test)?;
    let counter = Arc::new(ProgramCounter::default());
    let observer: Arc<dyn Observer> = Arc::<ProgramCounter>::clone(&counter);
    let engine = engine_run::engine_of_board(&recorded, test.fds.get())?.observed_by(observer);
    let weights = operands.load(&engine, test.dtype.dtype(), n, k)?;
    let problem = ProblemReport {
        dtype: test.dtype.to_string(),
        shape: test.shape,
        seed: test.seed,
        fds: test.fds.get(),
        plan: engine.prepare(&weights, m)?.plan().to_string(),
    };
    progress.aside(|| say(&problem.text()))?;
    let expected = CpuResult::compute(test.shape, &operands, weights.plan().k_tile_count());

    let (mut runs, mut failed) = (Vec::new(), None);
    progress.doing("multiplying");
    for _ in 0..test.repeat.get() {
        let start = Instant::now();
        let mut matmul = MatmulResult::unwritten(&operands, c_len);
        let multiplied = matmul.multiply(&engine, &weights, m, &operands);
        let wall = start.elapsed();
        if let Err(error) = multiplied {
            failed = Some(error);
            break;
        }
        runs.push(RunReport {
            wall_us: wall.as_secs_f64() * 1e6,
            comparison: expected.compare(&matmul, n),
        });
        progress.step();
    }
    let program = counter.of_one(runs.len() + usize::from(failed.is_some()));
    // Finished after a failed run too, since recordings serve to examine
    // failures.
    let recording = finish(test, recorder.as_ref())?;
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
        failed_jobs: FailedJobs::of(&engine),
        runs,
    };
    drop(progress);
    if let Some(folder) = &test.dump {
        let file = folder.join(DUMPED_REPORT);
        let text = serde_json::to_vec_pretty(&report).map_err(Failure::writing(&file))?;
        fs::write(&file, text).map_err(Failure::writing(&file))?;
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
    say(&(program.text() + &report.verdict_text() + &traced + &recording))?;
    Ok(verdict)
}

/// Name of the report in a dump, beside the recording.
const DUMPED_REPORT: &str = "report.json";

/// The device, with a recorder in front of it if requested.
fn recorded(device: &Device, test: &SelfTestFlags) -> Result<(Device, Option<Recorder>), Failure> {
    let Some(file) = test.record_file() else {
        return Ok((device.clone(), None));
    };
    if let Some(folder) = &test.dump {
        fs::create_dir_all(folder).map_err(Failure::output(format!(
            "cannot create the directory {}",
            folder.display()
        )))?;
    }
    let options = RecorderOptions {
        // If a board crashes, its last jobs must be on its disk.
        durable: !device.info().is_model,
        notes: vec![(
            "made by".to_owned(),
            "the self-test of npu-probe".to_owned(),
        )],
        ..RecorderOptions::default()
    };
    let recorder = as_caller(|| Recorder::create(&file, &device.info(), options))
        .map_err(Failure::output(file.display().to_string()))?;
    let device = recorder
        .open(device)
        .map_err(Failure::device("cannot open the device again"))?;
    Ok((device, Some(recorder)))
}

/// Ends a recording; returns the line about it.
fn finish(test: &SelfTestFlags, recorder: Option<&Recorder>) -> Result<String, Failure> {
    let (Some(file), Some(recorder)) = (test.record_file(), recorder) else {
        return Ok(String::new());
    };
    let ended = recorder.finish();
    let summary = ended.map_err(|error| Failure::Output(error.into()))?;
    let (file, jobs, bytes) = (file.display(), summary.jobs, summary.bytes);
    Ok(format!("recorded   {file}: {jobs} jobs, {bytes} bytes\n"))
}

/// Writes the modelled timeline, if requested; returns the line about it.
fn trace(test: &SelfTestFlags, model: Option<&Model>) -> Result<String, Failure> {
    let timeline = model.and_then(Model::timeline);
    let (Some(file), Some(timeline)) = (&test.files.trace, timeline) else {
        return Ok(String::new());
    };
    fs::write(file, timeline.to_chrome_trace()).map_err(Failure::writing(file))?;
    Ok(format!(
        "trace      {}: {} jobs, {:.1} us of modelled time at {} MHz (for ui.perfetto.dev)\n",
        file.display(),
        timeline.jobs().len(),
        seconds(timeline.end_ps()) * 1e6,
        timeline.machine().clock_hz / 1_000_000,
    ))
}
