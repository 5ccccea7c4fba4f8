// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options of `npu-probe bench`.

use std::num::NonZeroUsize;

use clap::Args;
use npu_matmul::Threads;
use rocket_uapi::DeviceInfo;

use super::common::{DeviceFlags, ReportFlags};
use super::dtype::OperandDtypes;
use super::planning::PlanningFlags;
use crate::exit::Failure;
use crate::shape::{self, MatmulShape};

/// A projection of an 8B transformer for a prompt of 512 tokens.
const DEFAULT_SHAPE: MatmulShape = MatmulShape {
    m: 512,
    k: 4096,
    n: 4096,
};

/// Options of `bench`.
#[derive(Debug, Args)]
pub(crate) struct BenchFlags {
    #[arg(value_name = shape::FORM, help = shape::HELP, default_values_t = [DEFAULT_SHAPE])]
    pub(crate) shapes: Vec<MatmulShape>,

    /// Precisions of the operands [default: int8,fp16,int4]
    #[arg(long, value_delimiter = ',')]
    dtype: Vec<OperandDtypes>,

    /// Matmuls to measure, after one to warm up
    #[arg(long, value_name = "TIMES", default_value = "5")]
    pub(crate) repeat: NonZeroUsize,

    /// File descriptors to spread the work over [default: one for each core]
    #[arg(long, value_name = "NUMBER")]
    fds: Option<NonZeroUsize>,

    /// CPU threads, on the fastest CPUs first: a number or auto, then ,pin (fixed to one CPU
    /// each) or ,free; the variable NPU_THREADS does the same [default: one for each CPU,
    /// free]
    #[arg(long)]
    threads: Option<Threads>,

    #[command(flatten)]
    pub(crate) planning: PlanningFlags,

    #[command(flatten)]
    pub(crate) device: DeviceFlags,

    #[command(flatten)]
    pub(crate) report: ReportFlags,
}

impl BenchFlags {
    /// The operand types to measure: at least one.
    pub(crate) fn kinds(&self) -> &[OperandDtypes] {
        match self.dtype[..] {
            [] => &OperandDtypes::PLAIN,
            _ => &self.dtype,
        }
    }

    /// Number of file descriptors to use on this device.
    pub(crate) fn fds(&self, device: &DeviceInfo) -> usize {
        self.fds.map_or(device.files(), NonZeroUsize::get)
    }

    pub(crate) fn threads(&self) -> Result<Option<Threads>, Failure> {
        match self.threads {
            Some(threads) => Ok(Some(threads)),
            None => Threads::from_env().map_err(|error| Failure::Usage(error.into())),
        }
    }
}
