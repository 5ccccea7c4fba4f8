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
mod engine;
mod ppu;
mod rdma;
mod reader;

use alloc::vec::Vec;

use crate::field::RegisterInfo;
use crate::regfile::RegisterFile;
use crate::regs::pc;
use crate::word::{EnableMask, Iova};

use element::Written;
pub use element::WrittenElement;
pub use engine::{Direction, DmaEngine, Extent, ExtentError};
use reader::Reader;

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
