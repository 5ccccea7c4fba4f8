// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options of the commands on capture files.

use std::path::PathBuf;

use clap::Args;

use super::common::{DeviceFlags, ReportFlags};

/// How captures are read.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct CaptureFlags {
    /// Read what is whole of a capture without an end
    ///
    /// That is one whose program or machine died while it was recorded.
    #[arg(long)]
    pub(crate) unfinished: bool,
}

/// Options of `replay`.
#[derive(Debug, Args)]
pub(crate) struct ReplayFlags {
    /// Capture file
    pub(crate) file: PathBuf,

    #[command(flatten)]
    pub(crate) capture: CaptureFlags,

    #[command(flatten)]
    pub(crate) device: DeviceFlags,

    #[command(flatten)]
    pub(crate) report: ReportFlags,
}

/// Options of `diff`.
#[derive(Debug, Args)]
pub(crate) struct DiffFlags {
    /// Capture file
    pub(crate) first: PathBuf,

    /// Capture file to compare it with
    pub(crate) second: PathBuf,

    #[command(flatten)]
    pub(crate) capture: CaptureFlags,

    #[command(flatten)]
    pub(crate) report: ReportFlags,
}
