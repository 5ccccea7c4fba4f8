// SPDX-License-Identifier: MIT OR Apache-2.0
//! `npu-probe doctor`: checks whether this machine can use its NPU.

use std::path::PathBuf;

use clap::Args;

use crate::base::exit::{Failure, NO_DEVICE};
use crate::base::flags::ReportFlags;
use crate::doctor::{self, SystemRoot};

#[derive(Debug, Args)]
pub(crate) struct DoctorFlags {
    /// Print a block for a bug report, without private data
    ///
    /// The block has system paths only, and no user names. No report of this command has host
    /// names, serial numbers or network addresses.
    #[arg(long)]
    paste: bool,

    /// Check the system below this directory instead of the system's root
    #[arg(long, value_name = "DIR", default_value = "/", hide = true)]
    root: PathBuf,

    #[command(flatten)]
    report: ReportFlags,
}

/// Prints the report; the exit code is 3 if no NPU is usable.
pub(crate) fn run(doctor: &DoctorFlags) -> Result<u8, Failure> {
    let report = doctor::examine(&SystemRoot::new(&doctor.root, doctor.paste));
    doctor.report.print(&report, || {
        if doctor.paste {
            report.paste()
        } else {
            report.text()
        }
    })?;
    Ok(if report.usable_node.is_some() {
        0
    } else {
        NO_DEVICE
    })
}
