// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decodes register values and an enable mask into a convolution, a flying task or a
//! pooling.
//!
//! Every value of a register has a meaning here, as in silicon.
//! [`extents`](crate::extents()) and the lint report values that no known program
//! has.

mod conv;
mod cube;
mod features;
mod output;
mod pool;
mod reads;
mod registers;
mod uses;
mod window;
mod words;

use alloc::format;
use core::fmt;

use thiserror::Error;

use crate::regfile::RegisterFile;
use crate::regs::dpu;
use crate::word::EnableMask;

pub use conv::{Buffering, ConvTask, ConvWeights, DECOMPRESSOR_LANES, compressed_lanes};
pub use cube::{Cube, Walk};
pub use features::FeatureFetch;
pub use output::{DEPTHWISE, DpuOutput, TO_MEMORY};
pub use pool::{POOL_AVERAGE, POOL_MAX, PoolCube, PoolTask};
pub(crate) use reads::takes_operand;
pub use reads::{COMB_SHARED, PER_CHANNEL, PER_PIXEL};
pub use reads::{ChannelRead, ElementRead, MainRead, Read, Reads};
pub(crate) use registers::{ReadRegisters, surfaces};
pub use uses::{RegisterUse, unwritten};
pub use window::WindowSteps;
pub use words::{TaskRegisters, tasks, tasks_after};

/// The blocks of a convolution.
pub const CONVOLUTION: EnableMask = EnableMask::CNA
    .union(EnableMask::CORE)
    .union(EnableMask::DPU);
/// The blocks of a task whose main input MRDMA reads.
pub const FLYING: EnableMask = EnableMask::DPU.union(EnableMask::DPU_RDMA);
/// The blocks of pooling.
pub const POOLING: EnableMask = EnableMask::PPU.union(EnableMask::PPU_RDMA);

/// The work of one pipeline of blocks, from memory to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(
    clippy::large_enum_variant,
    reason = "there is one at a time, on the stack"
)]
pub enum Task {
    /// CNA, CORE and DPU.
    Conv(ConvTask),
    /// DPU_RDMA and DPU.
    Flying {
        /// What DPU_RDMA reads.
        reads: Reads,
        /// What the DPU writes.
        output: DpuOutput,
    },
    /// PPU_RDMA and PPU.
    Pool(PoolTask),
}

/// Why a task cannot end: a block waits for one that does not start, or no block
/// starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TaskError {
    /// The DPU takes its input from memory, but DPU_RDMA is not enabled.
    #[error("the DPU is flying, but DPU_RDMA is not enabled")]
    NotRead,
    /// CNA, CORE, DPU or DPU_RDMA waits for a block that is not enabled.
    #[error("a block waits for one that is not enabled")]
    Waiting,
    /// Only one of PPU and PPU_RDMA is enabled.
    #[error("PPU and PPU_RDMA work together")]
    HalfPooling,
    /// No block is enabled.
    #[error("no block is enabled")]
    Nothing,
}

impl Task {
    /// What the blocks of `enable` do with `regs`, in order. Nothing follows an
    /// error. Bits that name no block do nothing.
    pub fn all(
        regs: &RegisterFile,
        enable: EnableMask,
    ) -> impl Iterator<Item = Result<Self, TaskError>> {
        let flying = regs.get::<dpu::FeatureModeCfg>().flying_mode() == 1;
        let main = if enable.contains(FLYING) && flying {
            Some(Ok(Self::Flying {
                reads: Reads::decode(regs),
                output: DpuOutput::decode(regs),
            }))
        } else if enable.contains(CONVOLUTION) && flying {
            Some(Err(TaskError::NotRead))
        } else if enable.contains(CONVOLUTION) {
            let with_reads = enable.contains(EnableMask::DPU_RDMA);
            Some(Ok(Self::Conv(ConvTask::decode(regs, with_reads))))
        } else if enable.intersects(CONVOLUTION.union(FLYING)) {
            Some(Err(TaskError::Waiting))
        } else {
            None
        };
        let pool = if enable.contains(POOLING) {
            Some(Ok(Self::Pool(PoolTask::decode(regs))))
        } else if enable.intersects(POOLING) {
            Some(Err(TaskError::HalfPooling))
        } else if main.is_none() {
            Some(Err(TaskError::Nothing))
        } else {
            None
        };
        let failed = matches!(main, Some(Err(_)));
        main.into_iter().chain(pool.filter(|_| !failed))
    }
}

/// One line: the operation, its input cube and its output cube.
impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = |[width, height, channels]: [usize; 3]| format!("{width}x{height}x{channels}");
        match self {
            Self::Conv(conv) => {
                let kind = if conv.depthwise {
                    "depthwise convolution"
                } else {
                    "convolution"
                };
                let (features, output) = (&conv.features, &conv.output);
                let [across, down] = conv.weights.kernel;
                write!(
                    f,
                    "{kind}: {} of {}, kernel {across}x{down}, to {} of {}",
                    size(features.window),
                    features.precision,
                    size(output.written),
                    output.precision
                )
            }
            Self::Flying { reads, output } => write!(
                f,
                "elementwise: {} of {} to {} of {}",
                size(reads.cube),
                reads.precision,
                size(output.written),
                output.precision
            ),
            Self::Pool(pool) => {
                let [across, down] = pool.kernel;
                write!(
                    f,
                    "pooling: {} of {}, kernel {across}x{down}, to {}",
                    size(pool.input),
                    pool.precision,
                    size(pool.written.size)
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn blocks_that_wait_are_an_error() {
        let all = |enable| Task::all(&RegisterFile::new(), enable).collect::<Vec<_>>();
        assert_eq!(all(EnableMask::CNA), [Err(TaskError::Waiting)]);
        assert_eq!(all(EnableMask::PPU), [Err(TaskError::HalfPooling)]);
        assert_eq!(all(EnableMask::empty()), [Err(TaskError::Nothing)]);
        let both = all(CONVOLUTION | EnableMask::PPU);
        assert!(matches!(
            both[..],
            [Ok(Task::Conv(_)), Err(TaskError::HalfPooling)]
        ));
    }
}
