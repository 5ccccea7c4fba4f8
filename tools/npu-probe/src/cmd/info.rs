// SPDX-License-Identifier: MIT OR Apache-2.0
//! `npu-probe info`: which device, and why that one.

use crate::exit::{Failure, Verdict};
use crate::flags::Flags;
use crate::output;
use crate::report::DeviceReport;

pub(crate) fn run(flags: &Flags) -> Result<Verdict, Failure> {
    let opened = super::open(flags)?;
    let report = DeviceReport::new(opened.device.info(), opened.why);
    if flags.json {
        output::print_json(&report)?;
    } else {
        output::print(&report.text())?;
    }
    Ok(Verdict::Pass)
}
