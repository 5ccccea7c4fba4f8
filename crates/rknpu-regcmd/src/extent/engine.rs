// SPDX-License-Identifier: MIT OR Apache-2.0
//! The engines that touch memory, and their extents.

use core::fmt;

use thiserror::Error;

use crate::field::{Register, RegisterInfo};
use crate::regs::{cna, dpu, dpu_rdma, ppu, ppu_rdma};
use crate::word::Iova;

/// A memory master of a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DmaEngine {
    /// CNA: feature data.
    Feature,
    /// CNA: weights.
    Weight,
    /// DPU_RDMA: main input.
    Mrdma,
    /// DPU_RDMA: BS operands.
    Brdma,
    /// DPU_RDMA: BN operands.
    Nrdma,
    /// DPU_RDMA: EW operand.
    Erdma,
    /// DPU: output.
    DpuWrite,
    /// PPU_RDMA: pooling input.
    PpuRead,
    /// PPU: output.
    PpuWrite,
}

impl DmaEngine {
    /// All engines, in the order of their declaration.
    pub const ALL: [Self; 9] = [
        Self::Feature,
        Self::Weight,
        Self::Mrdma,
        Self::Brdma,
        Self::Nrdma,
        Self::Erdma,
        Self::DpuWrite,
        Self::PpuRead,
        Self::PpuWrite,
    ];

    const fn definition(self) -> (&'static str, &'static RegisterInfo, Direction) {
        use Direction::{Read, Write};
        match self {
            Self::Feature => ("feature fetch", cna::FeatureDataAddr::INFO, Read),
            Self::Weight => ("weight fetch", cna::DcompAddr0::INFO, Read),
            Self::Mrdma => ("MRDMA", dpu_rdma::SrcBaseAddr::INFO, Read),
            Self::Brdma => ("BRDMA", dpu_rdma::BsBaseAddr::INFO, Read),
            Self::Nrdma => ("NRDMA", dpu_rdma::BnBaseAddr::INFO, Read),
            Self::Erdma => ("ERDMA", dpu_rdma::EwBaseAddr::INFO, Read),
            Self::DpuWrite => ("DPU writer", dpu::DstBaseAddr::INFO, Write),
            Self::PpuRead => ("PPU reader", ppu_rdma::SrcBaseAddr::INFO, Read),
            Self::PpuWrite => ("PPU writer", ppu::DstBaseAddr::INFO, Write),
        }
    }

    /// The register that holds its base address.
    #[must_use]
    pub const fn base(self) -> &'static RegisterInfo {
        self.definition().1
    }

    /// Whether it reads or writes.
    #[must_use]
    pub const fn direction(self) -> Direction {
        self.definition().2
    }
}

impl fmt::Display for DmaEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.definition().0)
    }
}

/// Direction of an access to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Direction {
    /// From memory to the NPU.
    Read,
    /// From the NPU to memory.
    Write,
}

/// The range from the first to the last byte that an engine can touch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Extent {
    /// The engine that touches them.
    pub engine: DmaEngine,
    /// First byte, an IOVA.
    pub start: u64,
    /// One past the last byte; at most 2^32.
    pub end: u64,
}

impl Extent {
    /// Whether the whole range lies in `len` bytes from `iova` on.
    #[must_use]
    pub fn within(&self, iova: Iova, len: u32) -> bool {
        let start = u64::from(iova.0);
        start <= self.start && self.end <= start + u64::from(len)
    }
}

impl fmt::Display for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {:#010x}..{:#x}", self.engine, self.start, self.end)
    }
}

/// Why the memory that a task touches is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ExtentError {
    /// The enable mask starts blocks that no source describes.
    #[error("the enable mask starts unknown blocks: bits {0:#x}")]
    UnknownBlocks(u32),
    /// A field holds a value whose effect on addresses is not known.
    #[error("{register}.{field} = {value}: what this mode accesses is not known")]
    UnknownMode {
        /// The register.
        register: &'static str,
        /// The field.
        field: &'static str,
        /// Value of the field.
        value: u32,
    },
    /// A size is 0, in a field that holds the size itself, not size - 1.
    #[error("{register}.{field} is 0, and what an empty fetch accesses is not known")]
    Empty {
        /// The register.
        register: &'static str,
        /// The field.
        field: &'static str,
    },
    /// CORE and DPU disagree about the type of the accumulators.
    #[error("CORE computes in precision {core}, but the DPU takes precision {dpu}")]
    PrecisionMismatch {
        /// CORE MISC_CFG.proc_precision.
        core: u32,
        /// DPU DATA_FORMAT.in_precision.
        dpu: u32,
    },
    /// Two registers differ that all known programs write alike. Which of them
    /// applies is not known.
    #[error("{first} and {second} disagree about {what}; what they access is then not known")]
    Disagreement {
        /// Name of one register.
        first: &'static str,
        /// Name of the other register.
        second: &'static str,
        /// What they disagree about.
        what: &'static str,
    },
    /// PC TASK_DMA_BASE_ADDR, which shifts every address, is not 0.
    #[error("TASK_DMA_BASE_ADDR is {0:#x}; programs must leave it at 0")]
    DmaBase(u32),
    /// A base address is not a multiple of 16.
    #[error("{register} is {value:#010x}; base addresses are multiples of 16")]
    Unaligned {
        /// The register.
        register: &'static str,
        /// Value of the register.
        value: u32,
    },
    /// The range leaves the 4 GiB of IO virtual addresses.
    #[error("the {engine} would access {start:#x} to {end:#x}, beyond 32-bit addresses")]
    OutOfRange {
        /// The engine.
        engine: DmaEngine,
        /// First byte.
        start: i64,
        /// One past the last byte.
        end: i64,
    },
}
