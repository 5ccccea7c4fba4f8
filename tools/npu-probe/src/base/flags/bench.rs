// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options of `bench`.

use std::num::NonZeroUsize;

use clap::Args;
use npu_matmul::Threads;

use super::dtype::OperandDtypes;
use super::number::count;
use super::planning::MachineFlags;
use super::shared::{DeviceFlags, ReportFlags};
use crate::base::shape::{self, MatmulShape};

/// A projection of an 8B transformer for a prompt of 512 tokens.
const DEFAULT_SHAPE: &str = "512x4096x4096";

#[derive(Debug, Args)]
pub(crate) struct BenchFlags {
    #[arg(value_name = shape::FORM, help = shape::HELP, default_value = DEFAULT_SHAPE)]
    pub(crate) shapes: Vec<MatmulShape>,

    /// Run nothing: show the tiling and the predicted time
    ///
    /// Times are those of the timing model, with the profile of the board.
    #[arg(long, conflicts_with_all = ["repeat", "threads"])]
    pub(crate) plan: bool,

    /// Precisions of the operands [default: int8,fp16,int4]
    #[arg(long, ignore_case = true, value_delimiter = ',')]
    pub(crate) dtype: Vec<OperandDtypes>,

    /// Matmuls to measure, after one to warm up
    #[arg(long, value_name = "TIMES", default_value = "5", value_parser = count::<NonZeroUsize>)]
    pub(crate) repeat: NonZeroUsize,

    /// File descriptors to spread the work over [default: one for each core]
    #[arg(long, value_name = "NUMBER", value_parser = count::<NonZeroUsize>)]
    pub(crate) fds: Option<NonZeroUsize>,

    /// CPU threads: a number or auto, then ,pin or ,free [default: one for each CPU, free]
    ///
    /// On the fastest CPUs first; ,pin fixes each to one CPU. The variable NPU_THREADS does the
    /// same.
    #[arg(long)]
    pub(crate) threads: Option<Threads>,

    #[command(flatten)]
    pub(crate) machine: MachineFlags,

    #[command(flatten)]
    pub(crate) device: DeviceFlags,

    #[command(flatten)]
    pub(crate) report: ReportFlags,
}

impl BenchFlags {
    /// The requested precisions.
    pub(crate) fn dtypes(&self) -> &[OperandDtypes] {
        match self.dtype[..] {
            [] => &OperandDtypes::PLAIN,
            _ => &self.dtype,
        }
    }
}
