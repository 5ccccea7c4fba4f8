// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options of `npu-probe plan`.

use std::num::NonZeroUsize;

use clap::Args;

use super::common::{DeviceFlags, ReportFlags};
use super::dtype::OperandDtypes;
use super::planning::PlanningFlags;
use crate::shape::{self, MatmulShape};

/// Options of `plan`.
#[derive(Debug, Args)]
pub(crate) struct PlanFlags {
    #[arg(value_name = shape::FORM, help = shape::HELP)]
    pub(crate) shape: MatmulShape,

    /// Precision of the operands
    #[arg(long, default_value = "int8")]
    pub(crate) dtype: OperandDtypes,

    /// File descriptors to spread the columns over [default: one for each core]
    #[arg(long, value_name = "NUMBER")]
    pub(crate) fds: Option<NonZeroUsize>,

    /// Depth of a K tile, a multiple of 32 [default: the fastest]
    #[arg(long, value_name = "DEPTH")]
    pub(crate) k_tile: Option<NonZeroUsize>,

    /// Memory limit for weights on all file descriptors together, MiB [default: none]
    #[arg(long, value_name = "MIB")]
    pub(crate) memory: Option<u64>,

    #[command(flatten)]
    pub(crate) planning: PlanningFlags,

    #[command(flatten)]
    pub(crate) device: DeviceFlags,

    #[command(flatten)]
    pub(crate) report: ReportFlags,
}
