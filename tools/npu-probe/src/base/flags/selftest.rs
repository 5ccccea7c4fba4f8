// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options of the self-test.

use std::num::{NonZeroU64, NonZeroUsize};
use std::path::PathBuf;

use clap::Args;

use super::dtype::OperandDtypes;
use super::number::{count, number};
use super::shared::{DeviceFlags, ReportFlags, RunFiles};
use crate::base::shape::{self, MatmulShape};

/// One tile of every precision.
const DEFAULT_SHAPE: &str = "64x64x64";

#[derive(Debug, Args)]
pub(crate) struct SelfTestFlags {
    #[command(flatten)]
    pub(crate) device: DeviceFlags,

    /// Precision of the operands
    #[arg(long, ignore_case = true, default_value = "int8")]
    pub(crate) dtype: OperandDtypes,

    #[arg(long, value_name = shape::FORM, help = shape::HELP, default_value = DEFAULT_SHAPE)]
    pub(crate) shape: MatmulShape,

    /// Seed of the random numbers
    ///
    /// The same seed gives the same matrices on every machine.
    #[arg(long, default_value_t = 1, value_parser = number::<u64>)]
    pub(crate) seed: u64,

    /// Multiply this many times, and check each result
    #[arg(long, value_name = "TIMES", default_value = "1", value_parser = count::<NonZeroUsize>)]
    pub(crate) repeat: NonZeroUsize,

    /// File descriptors to spread the columns over
    ///
    /// The kernel runs one job at a time for each, on any free core. Three keep the three
    /// cores of an RK3588 busy.
    #[arg(long, value_name = "NUMBER", default_value = "1", value_parser = count::<NonZeroUsize>)]
    pub(crate) fds: NonZeroUsize,

    /// Write the files to debug a wrong result to this directory
    ///
    /// `jobs.rkcap` is the recording that --record writes. `report.json` is the report that
    /// --json prints. `npu-probe replay DIR/jobs.rkcap --device model` compares the results
    /// with the software model's; `decode` prints the programs.
    #[arg(long, value_name = "DIR", conflicts_with = "record")]
    pub(crate) dump: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) files: RunFiles,

    #[command(flatten)]
    pub(crate) soak: SoakFlags,

    #[command(flatten)]
    pub(crate) report: ReportFlags,
}

impl SelfTestFlags {
    /// The file of the recording, if one was requested.
    pub(crate) fn record_file(&self) -> Option<PathBuf> {
        let dumped = || Some(self.dump.as_ref()?.join("jobs.rkcap"));
        self.files.record.clone().or_else(dumped)
    }
}

#[derive(Debug, Args)]
pub(crate) struct SoakFlags {
    /// Stress the NPU for this time, from several processes
    ///
    /// Random matmuls of all sizes and precisions, over one to three files each. Every element is compared with
    /// the CPU's, exactly. Running processes finish their work at the end. The exit code is 4
    /// if a process fails or the driver kills a job. On the software model each process has a
    /// separate model.
    #[arg(long, value_name = "SECONDS", value_parser = number::<u64>, overrides_with = "seconds",
        conflicts_with_all = ["dtype", "shape", "repeat", "fds", "dump", "record", "trace"])]
    pub(crate) seconds: Option<u64>,

    /// Processes at the same time
    #[arg(long, value_name = "NUMBER", default_value = "4", requires = "seconds",
        value_parser = count::<NonZeroU64>)]
    pub(crate) processes: NonZeroU64,

    /// Kill about half of the processes, each at a random moment
    ///
    /// Released kernels use freed memory if a process with a job on the NPU is killed. That
    /// can damage any memory, and the disks: docs/driver.md, use-after-close.
    #[arg(long, hide_short_help = true, requires = "seconds")]
    pub(crate) kill: bool,

    /// Count matmuls whose job the driver killed, instead of failing
    ///
    /// The driver kills a job after 500 ms of wall time. A virtual machine on a busy host may
    /// see the end of a job later.
    #[arg(long, hide_short_help = true, requires = "seconds")]
    pub(crate) allow_timeouts: bool,

    /// Run as one of the processes, for this many matmuls [default: no limit]
    #[arg(long, hide = true)]
    pub(crate) client: Option<Option<u64>>,
}
