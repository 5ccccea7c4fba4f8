// SPDX-License-Identifier: MIT OR Apache-2.0
//! `npu-probe info`: which device, why that one, and what is known of its board.

use npu_matmul::PlanOptions;
use serde::Serialize;

use crate::exit::{Failure, Verdict};
use crate::flags::Flags;
use crate::output;
use crate::report::DeviceReport;

/// The report of `info`.
#[derive(Debug, Serialize)]
struct Report {
    #[serde(flatten)]
    device: DeviceReport,
    /// Name of the board's profile.
    profile: String,
    /// Why the profile that there is is not used.
    #[serde(skip_serializing_if = "Option::is_none")]
    profile_refused: Option<String>,
}

pub(crate) fn run(flags: &Flags) -> Result<Verdict, Failure> {
    let opened = super::open(flags)?;
    let info = opened.device.info();
    let (options, refused) = PlanOptions::for_device(&info);
    let report = Report {
        device: DeviceReport::new(info, opened.why),
        profile: options.profile.name.to_string(),
        profile_refused: refused.map(|error| error.to_string()),
    };
    if flags.json {
        output::print_json(&report)?;
    } else {
        output::print(&report.device.text())?;
        output::print(&format!("profile    {}\n", report.profile))?;
        if let Some(why) = &report.profile_refused {
            output::print(&format!("           {why}\n"))?;
        }
    }
    Ok(Verdict::Pass)
}
