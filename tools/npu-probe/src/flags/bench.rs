// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options of `npu-probe bench`.

use std::path::PathBuf;

use clap::Args;

use super::common::{DeviceFlags, ReportFlags};
use super::measuring::MeasuringFlags;

/// Options of `bench`.
#[derive(Debug, Args)]
pub(crate) struct BenchFlags {
    #[command(flatten)]
    pub(crate) measuring: MeasuringFlags,

    #[command(flatten)]
    pub(crate) device: DeviceFlags,

    #[command(flatten)]
    pub(crate) report: ReportFlags,

    /// Draw what was reached under the roof of compute and memory into this
    /// file
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
}
