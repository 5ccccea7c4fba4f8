// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options of `npu-probe bench`.

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
}
