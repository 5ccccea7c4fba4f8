// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options of the self-test, and what they come to.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::Args;
use npu_matmul::Dtype;

use super::dtype::DtypeArg;
use crate::shape::{self, ProductShape};

/// Options of the self-test. All optional here, so that one that is given with
/// a command can be refused.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Self-test")]
pub(crate) struct SelfTestFlags {
    /// Precision of the matrices [default: int8]
    #[arg(long)]
    dtype: Option<DtypeArg>,

    #[arg(long, value_name = shape::FORM, help = format!("{} [default: {DEFAULT_SHAPE}]", shape::HELP))]
    shape: Option<ProductShape>,

    /// Start of the random numbers; the same seed gives the same matrices on
    /// every machine [default: 1]
    #[arg(long)]
    seed: Option<u64>,

    /// Multiply this many times, and check each result [default: 1]
    #[arg(long, value_name = "TIMES")]
    repeat: Option<NonZeroUsize>,

    /// File descriptors to spread the columns over [default: 1]
    ///
    /// The kernel runs one job at a time for each, on any core that is free:
    /// three keep the three cores of an RK3588 busy.
    #[arg(long, value_name = "NUMBER")]
    fds: Option<NonZeroUsize>,

    /// Write programs, disassembly, matrices and a manifest into this directory
    ///
    /// That is what it takes to find out why a result is wrong. The directory
    /// is made if need be; files of an earlier dump are replaced.
    #[arg(long, value_name = "DIR")]
    dump: Option<PathBuf>,

    /// Write when each engine of the NPU would have worked into this file
    ///
    /// By modelled time, so only on the software model. The format is Chrome's
    /// trace event JSON: open the file at ui.perfetto.dev.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,

    /// Record all jobs, with all that they touch, into this file
    ///
    /// For `replay`, `lint`, `decode` and `diff`, here or elsewhere. Jobs then
    /// run one at a time.
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
}

/// A self-test with every choice made.
#[derive(Clone, Debug)]
pub(crate) struct SelfTest {
    pub(crate) dtype: Dtype,
    pub(crate) shape: ProductShape,
    pub(crate) seed: u64,
    pub(crate) repeat: usize,
    pub(crate) fds: usize,
    pub(crate) dump: Option<PathBuf>,
    pub(crate) trace: Option<PathBuf>,
    pub(crate) record: Option<PathBuf>,
}

/// One tile of every precision.
const DEFAULT_SHAPE: ProductShape = ProductShape {
    m: 64,
    k: 64,
    n: 64,
};

impl SelfTestFlags {
    pub(super) fn any(&self) -> bool {
        let Self {
            dtype,
            shape,
            seed,
            repeat,
            fds,
            dump,
            trace,
            record,
        } = self;
        dtype.is_some()
            || shape.is_some()
            || repeat.or(*fds).is_some()
            || seed.is_some()
            || dump.is_some()
            || trace.is_some()
            || record.is_some()
    }

    pub(crate) fn resolve(&self) -> SelfTest {
        let count = |given: Option<NonZeroUsize>| given.map_or(1, NonZeroUsize::get);
        SelfTest {
            dtype: self.dtype.unwrap_or(DtypeArg::Int8).dtype(),
            shape: self.shape.unwrap_or(DEFAULT_SHAPE),
            seed: self.seed.unwrap_or(1),
            repeat: count(self.repeat),
            fds: count(self.fds),
            dump: self.dump.clone(),
            trace: self.trace.clone(),
            record: self.record.clone(),
        }
    }
}
