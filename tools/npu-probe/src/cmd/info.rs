// SPDX-License-Identifier: MIT OR Apache-2.0
//! `npu-probe info`: the chosen device, the reason, and its board's profile.

use clap::Args;
use npu_matmul::PlanOptions;
use serde::Serialize;

use crate::exit::{Failure, Verdict};
use crate::flags::{DeviceFlags, ReportFlags};
use crate::report::DeviceReport;

#[derive(Debug, Args)]
pub(crate) struct InfoFlags {
    #[command(flatten)]
    device: DeviceFlags,

    #[command(flatten)]
    report: ReportFlags,
}

#[derive(Debug, Serialize)]
struct Report {
    #[serde(flatten)]
    device: DeviceReport,
    profile: String,
    /// Why an existing profile is not used.
    #[serde(skip_serializing_if = "Option::is_none")]
    profile_refused: Option<String>,
}

pub(crate) fn run(args: &InfoFlags) -> Result<Verdict, Failure> {
    let opened = super::open(&args.device)?;
    let info = opened.device.info();
    let (options, refused) = PlanOptions::for_device(&info);
    let report = Report {
        device: DeviceReport::new(info, opened.why),
        profile: options.profile.name.to_string(),
        profile_refused: refused.map(|error| error.to_string()),
    };
    args.report.print(&report, || {
        let refused = report.profile_refused.iter();
        let refused: String = refused.map(|why| format!("           {why}\n")).collect();
        format!(
            "{}profile    {}\n{refused}",
            report.device.text(),
            report.profile
        )
    })?;
    Ok(Verdict::Pass)
}
