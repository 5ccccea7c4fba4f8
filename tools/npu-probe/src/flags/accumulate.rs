// SPDX-License-Identifier: MIT OR Apache-2.0
//! The option that says who adds up the sums of K tiles: the NPU or the CPU.

use clap::{Args, ValueEnum};
use npu_matmul::plan::Accumulate;

/// The option of whoever plans products.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct AccumulateFlags {
    /// Who adds up the K tiles of int8 products
    ///
    /// Measured plans are of the CPU's sums.
    #[arg(
        long,
        value_name = "WHO",
        default_value = "cpu",
        conflicts_with = "plans"
    )]
    accumulate: Who,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Who {
    /// The CPU, as it reads the results of each
    Cpu,
    /// The NPU, in tasks of its own, where sums of such a depth cannot overflow;
    /// seen to work under the vendor's kernel only
    Npu,
}

impl AccumulateFlags {
    pub(crate) const fn get(self) -> Accumulate {
        match self.accumulate {
            Who::Cpu => Accumulate::Cpu,
            Who::Npu => Accumulate::Npu,
        }
    }
}
