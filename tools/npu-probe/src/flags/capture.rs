// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options of the commands on capture files.

use std::path::PathBuf;

use clap::Args;

use super::common::{DeviceFlags, ReportFlags};

/// A capture to look at.
#[derive(Debug, Args)]
pub(crate) struct CaptureFlags {
    /// Capture file
    pub(crate) file: PathBuf,

    /// Read what is whole of a capture without an end
    ///
    /// That is one whose program or machine died while it was recorded.
    #[arg(long)]
    pub(crate) unfinished: bool,

    #[command(flatten)]
    pub(crate) report: ReportFlags,
}

/// Options of `replay`.
#[derive(Debug, Args)]
pub(crate) struct ReplayFlags {
    #[command(flatten)]
    pub(crate) capture: CaptureFlags,

    #[command(flatten)]
    pub(crate) device: DeviceFlags,
}

/// Options of `diff`.
#[derive(Debug, Args)]
pub(crate) struct DiffFlags {
    /// Capture file
    pub(crate) first: PathBuf,

    /// Capture file
    pub(crate) second: PathBuf,

    /// Read what is whole of captures without an end
    #[arg(long)]
    pub(crate) unfinished: bool,

    #[command(flatten)]
    pub(crate) report: ReportFlags,
}
