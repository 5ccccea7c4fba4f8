// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options of `npu-probe doctor`.

use std::path::PathBuf;

use clap::Args;

use super::common::ReportFlags;

/// Options of `doctor`.
#[derive(Debug, Args)]
pub(crate) struct DoctorFlags {
    /// Print one block for a bug report, without anything private
    ///
    /// No paths but those of the system, and no names of users. Host names, serial
    /// numbers and addresses are not in any report.
    #[arg(long)]
    pub(crate) paste: bool,

    /// Look below this directory instead of the system's root
    #[arg(long, value_name = "DIR", default_value = "/", hide = true)]
    pub(crate) root: PathBuf,

    #[command(flatten)]
    pub(crate) report: ReportFlags,
}
