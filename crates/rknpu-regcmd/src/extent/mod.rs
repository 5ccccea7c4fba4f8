// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a task touches in memory, computed from its register values.
//!
//! For each DMA engine that runs: the range from the first to the last byte
//! that it can reach. The safety of running a program rests on it, so it errs
//! on one side only: where sources leave two readings of a register, the range
//! covers both, and a mode that no source describes is an error. The words of
//! the program itself are not part of it.

mod cna;
mod dpu;
mod element;
mod ppu;
mod rdma;

use alloc::vec::Vec;
use core::cell::Cell;
use core::fmt;
use core::ops::Range;

use thiserror::Error;

use crate::chip::ATOM_BYTES;
use crate::field::{AddressRegister, Register, RegisterInfo};
use crate::regfile::RegisterFile;
use crate::regs::{cna as cna_regs, dpu as dpu_regs, dpu_rdma, pc, ppu as ppu_regs, ppu_rdma};
use crate::task::{Cube, ReadRegisters};
use crate::word::{EnableMask, Iova};

use element::Written;
pub use element::WrittenElement;

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
            Self::Feature => ("feature fetch", cna_regs::FeatureDataAddr::INFO, Read),
            Self::Weight => ("weight fetch", cna_regs::DcompAddr0::INFO, Read),
            Self::Mrdma => ("MRDMA", dpu_rdma::SrcBaseAddr::INFO, Read),
            Self::Brdma => ("BRDMA", dpu_rdma::BsBaseAddr::INFO, Read),
            Self::Nrdma => ("NRDMA", dpu_rdma::BnBaseAddr::INFO, Read),
            Self::Erdma => ("ERDMA", dpu_rdma::EwBaseAddr::INFO, Read),
            Self::DpuWrite => ("DPU writer", dpu_regs::DstBaseAddr::INFO, Write),
            Self::PpuRead => ("PPU reader", ppu_rdma::SrcBaseAddr::INFO, Read),
            Self::PpuWrite => ("PPU writer", ppu_regs::DstBaseAddr::INFO, Write),
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From memory to the NPU.
    Read,
    /// From the NPU to memory.
    Write,
}

/// The bytes between the first and the last that an engine can touch.
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

/// Why it cannot be told what a task touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ExtentError {
    /// The enable mask starts blocks that no source describes.
    #[error("the enable mask starts unknown blocks: bits {0:#x}")]
    UnknownBlocks(u32),
    /// A field holds a value whose effect on addresses is not known.
    #[error("{register}.{field} = {value}: what this mode touches is not known")]
    UnknownMode {
        /// The register.
        register: &'static str,
        /// The field.
        field: &'static str,
        /// Value of the field.
        value: u32,
    },
    /// A size that is written as it is, not less one, is 0.
    #[error("{register}.{field} is 0, and what an empty fetch touches is not known")]
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
    /// Two registers that all known programs write alike differ, and which of
    /// them decides is not known.
    #[error("{first} and {second} disagree about {what}; what is touched is then not known")]
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
    #[error("the {engine} would touch {start:#x} to {end:#x}, outside of 32-bit addresses")]
    OutOfRange {
        /// The engine that would.
        engine: DmaEngine,
        /// First byte.
        start: i64,
        /// One past the last byte.
        end: i64,
    },
}

/// What the blocks of `enable` touch, run with `regs`.
///
/// Engines that do not run have no extent: those of blocks that are not
/// enabled, read engines that are turned off, fetches that a reuse bit skips.
///
/// # Errors
/// [`ExtentError`]: an unknown mode, or addresses that leave 32 bits.
pub fn extents(regs: &RegisterFile, enable: EnableMask) -> Result<Vec<Extent>, ExtentError> {
    compute(&Reader::new(regs), enable)
}

/// As [`extents`], and the first register that was consulted without having
/// been written: the value of such a one is somebody else's.
pub(crate) fn extents_and_unwritten(
    regs: &RegisterFile,
    enable: EnableMask,
) -> (
    Result<Vec<Extent>, ExtentError>,
    Option<&'static RegisterInfo>,
) {
    let reader = Reader::new(regs);
    let extents = compute(&reader, enable);
    (extents, reader.unwritten.get())
}

/// The last atom that a completed task has surely written, by the largest
/// counters of its writer: `None` where nothing is written to memory, or where
/// the geometry leaves doubt.
pub(crate) fn last_written_atom(regs: &RegisterFile, enable: EnableMask) -> Option<Iova> {
    let pools = enable.contains(EnableMask::PPU);
    let written =
        written(regs, enable).filter(|_| pools || !dpu::stops_early(&Reader::new(regs), enable))?;
    u32::try_from(written.last_atom()).ok().map(Iova)
}

/// The element of its output that a task writes at the byte `iova`, run with
/// `regs`: `None` where it writes none there, or where the geometry leaves
/// doubt.
#[must_use]
pub fn written_element(
    regs: &RegisterFile,
    enable: EnableMask,
    iova: u64,
) -> Option<WrittenElement> {
    written(regs, enable)?.element(i64::try_from(iova).ok()?)
}

/// What a task writes, where that is beyond doubt.
fn written(regs: &RegisterFile, enable: EnableMask) -> Option<Written> {
    let reader = Reader::new(regs);
    if enable.contains(EnableMask::PPU) {
        ppu::written(&reader).ok()
    } else if enable.contains(EnableMask::DPU) {
        dpu::written(&reader, enable)
    } else {
        None
    }
}

fn compute(reader: &Reader<'_>, enable: EnableMask) -> Result<Vec<Extent>, ExtentError> {
    let unknown = enable.bits() & !EnableMask::all().bits();
    if unknown != 0 {
        return Err(ExtentError::UnknownBlocks(unknown));
    }
    // Not a register of programs: the kernel writes 0 before each task.
    let base = reader.regs.value(pc::TaskDmaBaseAddr::OFFSET);
    if base != 0 {
        return Err(ExtentError::DmaBase(base));
    }
    let mut extents = Vec::new();
    if enable.contains(EnableMask::CNA) {
        cna::extents(reader, &mut extents)?;
    }
    if enable.contains(EnableMask::DPU_RDMA) {
        rdma::extents(reader, &mut extents)?;
    }
    if enable.contains(EnableMask::DPU) {
        dpu::extents(reader, enable, &mut extents)?;
    }
    ppu::extents(reader, enable, &mut extents)?;
    Ok(extents)
}

/// Reads registers and remembers whether one of them was not written.
struct Reader<'a> {
    regs: &'a RegisterFile,
    unwritten: Cell<Option<&'static RegisterInfo>>,
}

impl<'a> Reader<'a> {
    fn new(regs: &'a RegisterFile) -> Self {
        Self {
            regs,
            unwritten: Cell::new(None),
        }
    }

    /// An error unless the base address in `R` is that of an atom.
    fn aligned<R: AddressRegister>(&self) -> Result<(), ExtentError> {
        let value = self.get::<R>().bits();
        if !value.is_multiple_of(ATOM_BYTES) {
            return Err(ExtentError::Unaligned {
                register: R::INFO.name,
                value,
            });
        }
        Ok(())
    }
}

impl ReadRegisters for Reader<'_> {
    fn get<R: Register>(&self) -> R {
        if !self.regs.was_written(R::INFO.offset) && self.unwritten.get().is_none() {
            self.unwritten.set(Some(R::INFO));
        }
        self.regs.get()
    }
}

/// An error unless the registers `A` and `B` say the same of `what`.
fn must_agree<A: Register, B: Register>(
    what: &'static str,
    [a, b]: [impl PartialEq; 2],
) -> Result<(), ExtentError> {
    if a == b {
        return Ok(());
    }
    Err(ExtentError::Disagreement {
        first: A::INFO.name,
        second: B::INFO.name,
        what,
    })
}

/// Returns an error unless each field has one of the values of which it is known
/// what they touch: those of the known programs.
macro_rules! known {
    ($reader:expr; $($block:ident::$register:ident { $($field:ident: $values:pat),+ })+) => {
        $($(
            let value = $reader.get::<$block::$register>().$field();
            if !matches!(value, $values) {
                return Err($crate::extent::unknown::<$block::$register>(
                    stringify!($field),
                    value,
                ));
            }
        )+)+
    };
}
use known;

fn unknown<R: Register>(field: &'static str, value: u32) -> ExtentError {
    ExtentError::UnknownMode {
        register: R::INFO.name,
        field,
        value,
    }
}

/// The extent of `engine`, which walks one of `cubes`.
fn touched(engine: DmaEngine, cubes: &[Cube]) -> Result<Extent, ExtentError> {
    let all = cubes.iter().filter_map(Cube::bounds);
    let union = all.reduce(|a, b| a.start.min(b.start)..a.end.max(b.end));
    bytes(engine, union.unwrap_or_default())
}

fn bytes(engine: DmaEngine, Range { start, end }: Range<i64>) -> Result<Extent, ExtentError> {
    match (u64::try_from(start), u64::try_from(end)) {
        (Ok(first), Ok(past)) if past <= 1 << 32 => Ok(Extent {
            engine,
            start: first,
            end: past,
        }),
        _ => Err(ExtentError::OutOfRange { engine, start, end }),
    }
}
