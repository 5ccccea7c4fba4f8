// SPDX-License-Identifier: MIT OR Apache-2.0
//! `npu-probe bench`: the speed of matmuls.

use super::measuring;
use crate::bench::{BenchReport, MeasuringConditions};
use crate::exit::{Failure, Verdict};
use crate::flags::BenchFlags;
use crate::output;
use crate::progress::ProgressLine;
use crate::report::DeviceReport;

pub(crate) fn run(args: &BenchFlags) -> Result<Verdict, Failure> {
    let measuring = &args.measuring;
    let opened = super::open(&args.device)?;
    let info = opened.device.info();
    let (options, refused) = measuring.planning.machine.options(&info);
    let machine = options.profile.machine;
    let device = DeviceReport::new(info, opened.why);
    let is_model = device.is_model;
    let fds = measuring.fds(device.cores);
    let threads = measuring.threads()?;
    let profile = &options.profile;
    let mut report = BenchReport {
        conditions: MeasuringConditions::look(device, profile, refused, fds, threads),
        measurements: Vec::new(),
    };
    let steps = measuring.shapes.len() * measuring.kinds().len();
    let progress = ProgressLine::of(steps as u64, "matmuls");
    let say = |text: &str| progress.aside(|| args.report.say(text));
    say(&report.conditions.text())?;
    for &shape in &measuring.shapes {
        for &kind in measuring.kinds() {
            progress.doing(&format!("{kind} {shape}"));
            let case = measuring.case(kind, shape, machine, is_model);
            let options = measuring.plan_options(&case, &options);
            let profile = options.profile.clone();
            let engine = measuring::engine(&opened.device, fds, options, threads)?;
            let measurement = case.measure(&engine, &profile)?;
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
