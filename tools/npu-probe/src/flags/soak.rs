// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options of `npu-probe soak`.

use std::num::NonZeroU64;

use clap::Args;

use super::common::{DeviceFlags, ReportFlags};

/// Options of `soak`.
#[derive(Debug, Args)]
pub(crate) struct SoakFlags {
    /// Start no process later than that; those that run end their work
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    pub(crate) seconds: u64,

    /// Processes at a time
    #[arg(long, value_name = "NUMBER", default_value = "4")]
    pub(crate) processes: NonZeroU64,

    /// Kill about half of the processes, each at a random moment
    ///
    /// Released kernels use freed memory where a process is killed that has a
    /// job on the NPU, which can damage whatever is in memory, and on the disks:
    /// docs/driver.md, use-after-close.
    #[arg(long)]
    pub(crate) kill: bool,

    /// Count products of which the driver killed a job, instead of failing
    ///
    /// The driver gives a job 500 ms by the clock. A virtual machine on a busy host
    /// may take longer to hear of its end.
    #[arg(long)]
    pub(crate) allow_timeouts: bool,

    /// Start of the random numbers
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,

    /// Be one of the processes, and multiply so many matrices [default: no end]
    #[arg(long, hide = true)]
    pub(crate) client: Option<Option<u64>>,

    #[command(flatten)]
    pub(crate) device: DeviceFlags,

    #[command(flatten)]
    pub(crate) report: ReportFlags,
}
