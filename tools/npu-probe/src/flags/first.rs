// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options of `npu-probe first`, of its rungs, and of `npu-probe explain`.

use std::path::PathBuf;

use clap::Args;

use super::{DeviceFlags, ReportFlags};

/// Options of `first`, which `evidence` has too.
#[derive(Debug, Args)]
pub(crate) struct FirstFlags {
    /// Directory of the results, and of the archive that is made of them
    #[arg(short, long, value_name = "DIR", default_value = "npu-evidence")]
    pub(crate) output: PathBuf,

    /// Run again what failed, was killed, or took the machine down
    #[arg(long)]
    pub(crate) retry: bool,

    /// Kill what takes longer than this [default: 2 to 30 minutes, by the step]
    #[arg(long, value_name = "SECONDS")]
    pub(crate) limit: Option<u64>,

    /// The profile's file, if the board must keep away from something
    /// [default: rocket-npu/profile.json in the user's configuration]
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) device: DeviceFlags,

    #[command(flatten)]
    pub(crate) report: ReportFlags,
}

/// Options of `rung`.
#[derive(Debug, Args)]
pub(crate) struct RungFlags {
    /// Its name
    pub(crate) name: String,

    /// Run instead the program of its parent, each time with one register of this rung
    #[arg(long)]
    pub(crate) flip: bool,

    #[command(flatten)]
    pub(crate) device: DeviceFlags,
}

/// Options of `explain`.
#[derive(Debug, Args)]
pub(crate) struct ExplainFlags {
    /// The archive that `first` or `evidence` has made
    pub(crate) archive: PathBuf,

    #[command(flatten)]
    pub(crate) report: ReportFlags,
}
