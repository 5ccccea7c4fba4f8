// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options of the commands on capture files.

use std::path::PathBuf;

use clap::Args;
use npu_capture::ReplayOptions;

use super::common::{DeviceFlags, ReportFlags};

/// Binary logarithms of the units.
const MIB: u32 = 20;
const GIB: u32 = 30;

/// How captures are read.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct CaptureFlags {
    /// Read the complete part of an unfinished capture
    ///
    /// A capture is unfinished if its program or machine died during the recording.
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

    /// Memory limit for the jobs' buffer objects, MiB
    ///
    /// The gaps between the addresses of a job's objects count too. A small file may claim a
    /// lot of memory; a file that needs more than the limit is rejected before the replay.
    #[arg(long, value_name = "MIB", default_value_t = ReplayOptions::default().bytes_max >> MIB)]
    pub(crate) max_memory: u64,

    /// Limit of the data that all jobs together load and compare, GiB
    #[arg(long, value_name = "GIB", default_value_t = ReplayOptions::default().work_max >> GIB)]
    pub(crate) max_work: u64,

    #[command(flatten)]
    pub(crate) device: DeviceFlags,

    #[command(flatten)]
    pub(crate) report: ReportFlags,
}

impl ReplayFlags {
    /// The limits of a replay.
    pub(crate) fn options(&self) -> ReplayOptions {
        ReplayOptions {
            bytes_max: self.max_memory.saturating_mul(1 << MIB),
            work_max: self.max_work.saturating_mul(1 << GIB),
        }
    }
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
