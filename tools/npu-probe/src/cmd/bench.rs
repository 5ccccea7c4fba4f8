// SPDX-License-Identifier: MIT OR Apache-2.0
//! `npu-probe bench`: measures the speed of matmuls, or predicts it.

use std::num::NonZeroUsize;

use npu_matmul::{PlanOptions, Threads};

use crate::base::exit::{Failure, Verdict};
use crate::base::flags::BenchFlags;
use crate::base::output;
use crate::base::progress::ProgressLine;
use crate::matmul::engine_run;
use crate::matmul::report::DeviceReport;
use crate::measure::bench::{BenchReport, MeasuredMatmul, MeasuringConditions};

pub(crate) fn run(args: &BenchFlags) -> Result<Verdict, Failure> {
    if args.plan {
        return super::plan::run(args);
    }
    let opened = super::open(&args.device)?;
    let info = opened.device.info();
    let (options, refused) = args.machine.options(&info);
    let fds = args.fds.map_or(options.files(&info), NonZeroUsize::get);
    let device = DeviceReport::new(info, opened.why);
    let is_model = device.is_model;
    let threads = match args.threads {
        Some(threads) => Some(threads),
        None => Threads::from_env().map_err(|error| Failure::Usage(error.into()))?,
    };
    let kinds = args.dtypes();
    let profile = &options.profile;
    let mut report = BenchReport {
        conditions: MeasuringConditions::read(device, profile, refused, fds, threads),
        measurements: Vec::new(),
    };
    let steps = args.shapes.len() * kinds.len();
    let progress = ProgressLine::of(steps as u64, "matmuls");
    let say = |text: &str| progress.aside(|| args.report.say(text));
    say(&report.conditions.text())?;
    for &shape in &args.shapes {
        for &kind in kinds {
            progress.doing(&format!("{kind} {shape}"));
            let case = MeasuredMatmul {
                kind,
                shape,
                repeat: args.repeat.get(),
                is_model,
            };
            let options = PlanOptions {
                batch_rows: shape.m,
                ..options.clone()
            };
            let engine = engine_run::engine(&opened.device, fds, options, threads)?;
            let measurement = case.measure(&engine, profile)?;
            progress.step();
            say(&measurement.text())?;
            report.measurements.push(measurement);
        }
    }
    drop(progress);
    if args.report.json {
        output::print_json(&report)?;
    }
    Ok(Verdict::Pass)
}
