// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options of `npu-probe soak`.

use std::num::NonZeroU64;

use clap::Args;

use super::common::{DeviceFlags, ReportFlags};

/// Options of `soak`.
#[derive(Debug, Args)]
pub(crate) struct SoakFlags {
    /// Start processes for this time; running ones then finish their work
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    pub(crate) seconds: u64,

    /// Processes at the same time
    #[arg(long, value_name = "NUMBER", default_value = "4")]
    pub(crate) processes: NonZeroU64,

    /// Kill about half of the processes, each at a random moment
    ///
    /// Released kernels use freed memory if a process with a job on the NPU is killed. That
    /// can damage any memory, and the disks: docs/driver.md, use-after-close.
    #[arg(long)]
    pub(crate) kill: bool,

    /// Count matmuls whose job the driver killed, instead of failing
    ///
    /// The driver kills a job after 500 ms of wall time. A virtual machine on a busy host may
    /// see the end of a job later.
    #[arg(long)]
    pub(crate) allow_timeouts: bool,

    /// Seed of the random numbers
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,

    /// Run as one of the processes, for this many matmuls [default: no limit]
    #[arg(long, hide = true)]
    pub(crate) client: Option<Option<u64>>,

    #[command(flatten)]
    pub(crate) device: DeviceFlags,

    #[command(flatten)]
    pub(crate) report: ReportFlags,
}
