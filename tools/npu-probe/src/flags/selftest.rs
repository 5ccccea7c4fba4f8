// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options of the self-test.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::Args;

use super::common::{DeviceFlags, ReportFlags};
use super::dtype::OperandDtypes;
use crate::shape::{self, ProductShape};

/// One tile of every precision.
const DEFAULT_SHAPE: ProductShape = ProductShape {
    m: 64,
    k: 64,
    n: 64,
};

/// Options of the self-test.
#[derive(Debug, Args)]
#[command(next_help_heading = "Options of the self-test")]
pub(crate) struct SelfTestFlags {
    #[command(flatten)]
    pub(crate) device: DeviceFlags,

    /// Precision of the operands
    #[arg(long, default_value = "int8")]
    pub(crate) dtype: OperandDtypes,

    #[arg(long, value_name = shape::FORM, help = shape::HELP, default_value_t = DEFAULT_SHAPE)]
    pub(crate) shape: ProductShape,

    /// Start of the random numbers; the same seed gives the same matrices on
    /// every machine
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,

    /// Multiply this many times, and check each result
    #[arg(long, value_name = "TIMES", default_value = "1")]
    pub(crate) repeat: NonZeroUsize,

    /// File descriptors to spread the columns over
    ///
    /// The kernel runs one job at a time for each, on any core that is free:
    /// three keep the three cores of an RK3588 busy.
    #[arg(long, value_name = "NUMBER", default_value = "1")]
    pub(crate) fds: NonZeroUsize,

    /// Write programs, disassembly, matrices and a manifest into this directory
    ///
    /// That is what it takes to find out why a result is wrong. The directory
    /// is made if need be; files of an earlier dump are replaced.
    #[arg(long, value_name = "DIR")]
    pub(crate) dump: Option<PathBuf>,

    /// Write when each engine of the NPU would have worked into this file
    ///
    /// By modelled time, so only on the software model. The format is Chrome's
    /// trace event JSON: open the file at ui.perfetto.dev.
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,

    /// Record all jobs, with all that they touch, into this file
    ///
    /// For `replay`, `lint`, `decode` and `diff`, here or elsewhere. Jobs then
    /// run one at a time.
    #[arg(long, value_name = "FILE")]
    pub(crate) record: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) report: ReportFlags,
}
