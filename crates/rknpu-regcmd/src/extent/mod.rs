// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory that a task touches, computed from its register values.
//!
//! Each DMA engine that runs has one range, from the first to the last byte that it
//! can reach. Safe execution depends on these ranges, so they may be too large but
//! never too small. If sources allow two interpretations of a register, the range
//! covers both; a mode that no source describes is an error. The program's own words
//! are not included.

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

/// The memory that the blocks of `enable` touch when they run with `regs`.
///
/// Engines that do not run have no extent: engines of blocks that are not enabled,
/// read engines that are turned off, and fetches that a reuse bit skips.
///
/// # Errors
/// [`ExtentError`]: an unknown mode, or addresses that leave 32 bits.
pub fn extents(regs: &RegisterFile, enable: EnableMask) -> Result<Vec<Extent>, ExtentError> {
    compute(&Reader::new(regs), enable)
}

/// Like [`extents`], with the first register that was used without having been
/// written: its value is that of another program.
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

/// The last atom that a completed task has certainly written, at the largest counters
/// of its writer. `None` if nothing is written to memory, or the geometry is in
/// doubt.
pub(crate) fn last_written_atom(regs: &RegisterFile, enable: EnableMask) -> Option<Iova> {
    let pools = enable.contains(EnableMask::PPU);
    let written =
        written(regs, enable).filter(|_| pools || !dpu::stops_early(&Reader::new(regs), enable))?;
    u32::try_from(written.last_atom()).ok().map(Iova)
}

/// The output element that a task with `regs` writes at the byte `iova`. `None` if it
/// writes none there, or the geometry is in doubt.
#[must_use]
pub fn written_element(
    regs: &RegisterFile,
    enable: EnableMask,
    iova: u64,
) -> Option<WrittenElement> {
    written(regs, enable)?.element(i64::try_from(iova).ok()?)
}

/// The output of a task; `None` if there is none or its geometry is in doubt.
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
    // Programs do not write this register: the kernel writes 0 before each task.
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
