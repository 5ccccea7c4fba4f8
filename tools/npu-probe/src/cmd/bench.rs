// SPDX-License-Identifier: MIT OR Apache-2.0
//! `npu-probe bench`: how fast products are.

use std::sync::Arc;

use super::measuring;
use crate::bench::{BenchReport, MeasuringConditions};
use crate::exit::{Failure, Verdict};
use crate::flags::{BenchFlags, Flags};
use crate::output;
use crate::plans_file;
use crate::report::DeviceReport;

pub(crate) fn run(flags: &Flags, args: &BenchFlags) -> Result<Verdict, Failure> {
    let measuring = &args.measuring;
    let plans = args.plans.as_deref().map(plans_file::read).transpose()?;
    let opened = super::open(flags)?;
    let info = opened.device.info();
    let machine = measuring.machine();
    let plans = plans
        .map(|plans| plans_file::if_for(plans, &info, &machine))
        .transpose();
    let device = DeviceReport::new(info, opened.why);
    let is_model = device.is_model;
    let fds = measuring.fds(device.cores);
    let threads = measuring.threads()?;
    let mut conditions = MeasuringConditions::look(device, measuring.clock.get(), fds, threads);
    let plans = match plans {
        Ok(plans) => plans,
        Err(other) => {
            conditions.plans_not_used = Some(other.to_string());
            None
        }
    };
    let mut report = BenchReport {
        conditions,
        measurements: Vec::new(),
    };
    let say = |text: &str| output::print_unless(flags.json, text);
    say(&report.conditions.text())?;
    for &shape in measuring.shapes() {
        for &kind in measuring.kinds() {
            let case = measuring.case(kind, shape, is_model);
            let mut options = measuring.plan_options(&case);
            options.tuned = plans.as_ref().map(Arc::clone);
            let engine = measuring::engine(&opened.device, fds, options, threads)?;
            let measurement = case.measure(&engine, plans.as_deref())?;
            say(&measurement.text())?;
            report.measurements.push(measurement);
        }
    }
    if flags.json {
        output::print_json(&report)?;
    }
    if let Some(file) = &args.svg {
        report.draw(file, &machine)?;
    }
    Ok(Verdict::Pass)
}
