// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options of `npu-probe doctor`.

use std::path::PathBuf;

use clap::Args;

use super::common::ReportFlags;

/// Options of `doctor`.
#[derive(Debug, Args)]
pub(crate) struct DoctorFlags {
    /// Print a block for a bug report, without private data
    ///
    /// The block has system paths only, and no user names. No report of this command has host
    /// names, serial numbers or network addresses.
    #[arg(long)]
    pub(crate) paste: bool,

    /// Check the system below this directory instead of the system's root
    #[arg(long, value_name = "DIR", default_value = "/", hide = true)]
    pub(crate) root: PathBuf,

    #[command(flatten)]
    pub(crate) report: ReportFlags,
}
