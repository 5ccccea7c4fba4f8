// SPDX-License-Identifier: MIT OR Apache-2.0
//! `npu-probe bench`: measures the speed of matmuls.

use npu_matmul::PlanOptions;

use super::measuring;
use crate::bench::{BenchReport, MeasuredMatmul, MeasuringConditions};
use crate::exit::{Failure, Verdict};
use crate::flags::BenchFlags;
use crate::output;
use crate::progress::ProgressLine;
use crate::report::DeviceReport;

pub(crate) fn run(args: &BenchFlags) -> Result<Verdict, Failure> {
    let opened = super::open(&args.device)?;
    let info = opened.device.info();
    let planning = &args.planning;
    let (options, refused) = planning.machine.options(&info);
    let fds = args.fds(&info);
    let device = DeviceReport::new(info, opened.why);
    let is_model = device.is_model;
    let threads = args.threads()?;
    let profile = &options.profile;
    let mut report = BenchReport {
        conditions: MeasuringConditions::read(device, profile, refused, fds, threads),
        measurements: Vec::new(),
    };
    let steps = args.shapes.len() * args.kinds().len();
    let progress = ProgressLine::of(steps as u64, "matmuls");
    let say = |text: &str| progress.aside(|| args.report.say(text));
    say(&report.conditions.text())?;
    for &shape in &args.shapes {
        for &kind in args.kinds() {
            progress.doing(&format!("{kind} {shape}"));
            let dtype = kind.dtype();
            let case = MeasuredMatmul {
                kind,
                results: planning.results(dtype),
                int4_depth: planning.int4_depth(dtype, shape.k),
                shape,
                repeat: args.repeat.get(),
                is_model,
            };
            let options = PlanOptions {
                conditions: planning.conditions(dtype, shape.m),
                ..options.clone()
            };
            let engine = measuring::engine(&opened.device, fds, options, threads)?;
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
