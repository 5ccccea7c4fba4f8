// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options of the self-test.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::Args;

use super::common::{DeviceFlags, ReportFlags, RunFiles};
use super::dtype::OperandDtypes;
use crate::shape::{self, MatmulShape};

/// One tile of every precision.
const DEFAULT_SHAPE: MatmulShape = MatmulShape {
    m: 64,
    k: 64,
    n: 64,
};

/// Options of the self-test.
#[derive(Debug, Args)]
pub(crate) struct SelfTestFlags {
    #[command(flatten)]
    pub(crate) device: DeviceFlags,

    /// Precision of the operands
    #[arg(long, default_value = "int8")]
    pub(crate) dtype: OperandDtypes,

    #[arg(long, value_name = shape::FORM, help = shape::HELP, default_value_t = DEFAULT_SHAPE)]
    pub(crate) shape: MatmulShape,

    /// Seed of the random numbers; the same seed gives the same matrices on every machine
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,

    /// Multiply this many times, and check each result
    #[arg(long, value_name = "TIMES", default_value = "1")]
    pub(crate) repeat: NonZeroUsize,

    /// File descriptors to spread the columns over
    ///
    /// The kernel runs one job at a time for each, on any free core. Three keep the three
    /// cores of an RK3588 busy.
    #[arg(long, value_name = "NUMBER", default_value = "1")]
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
    pub(crate) report: ReportFlags,
}

impl SelfTestFlags {
    /// The file of the recording, if one was requested.
    pub(crate) fn record_file(&self) -> Option<PathBuf> {
        let dumped = || Some(self.dump.as_ref()?.join("jobs.rkcap"));
        self.files.record.clone().or_else(dumped)
    }
}
