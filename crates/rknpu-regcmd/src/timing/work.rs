// SPDX-License-Identifier: MIT OR Apache-2.0
//! The work of a task: what it moves and computes, as integers that do not depend on
//! a clock.
//!
//! Counts follow the formulas by which the engines address memory (see
//! [`extents`](crate::extents())). A MAC clock is one step of the array: one pixel,
//! one tap, one group of channels and one group of kernels (E-mac-rate; the groups
//! are those of the weight layout).

use thiserror::Error;

use super::counts::{EngineBytes, atoms_of_group, features, groups, operands, weights};
use crate::chip::ATOM_BYTES;
use crate::extent::DmaEngine;
use crate::regfile::RegisterFile;
use crate::task::{ConvTask, DpuOutput, PoolTask, Reads, Task};
use crate::word::EnableMask;

/// Why the work of a task is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum WorkError {
    /// The mask starts blocks that no source describes.
    #[error("the enable mask starts unknown blocks: bits {0:#x}")]
    UnknownBlocks(u32),
    /// A block waits for one that does not start, or no block starts.
    #[error(
        "the blocks of enable mask {0:#x} cannot end a task; start CNA, CORE and DPU, \
         or DPU and DPU_RDMA with flying_mode 1, or PPU and PPU_RDMA"
    )]
    Incomplete(u32),
}

/// What one task moves and computes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct TaskWork {
    /// Bytes of command words; see [`Self::fetching`].
    pub command_bytes: u64,
    /// Bytes that the engines move.
    pub bytes: EngineBytes,
    /// Bytes of features that must be in CBUF before the first MAC: the first
    /// FEATURE_GRAINS lines.
    pub feature_fill_bytes: u64,
    /// Bytes of weights that must be in CBUF by then: the first group of kernels.
    pub weight_fill_bytes: u64,
    /// Bytes that leave after the last MAC: the output of one group.
    pub drain_bytes: u64,
    /// Clocks of the MAC array.
    pub mac_clocks: u64,
    /// Multiplications of the task, without those that pad groups.
    pub macs: u64,
    /// Clocks of the weight decompressor: a byte of each of its 16 lanes per clock
    /// (assumed; no source says).
    pub decompress_clocks: u64,
    /// Clocks of the DPU: an atom of output per clock (assumed; no source says, and
    /// it limits no known program).
    pub dpu_clocks: u64,
    /// Clocks of the PPU: an atom and tap per clock (assumed, likewise).
    pub ppu_clocks: u64,
}

impl TaskWork {
    /// The work of the blocks of `enable`, run with `regs`.
    ///
    /// Accepts any register values: nothing overflows.
    ///
    /// # Errors
    /// [`WorkError`]: the mask starts no set of blocks that can end.
    pub fn of(regs: &RegisterFile, enable: EnableMask) -> Result<Self, WorkError> {
        let unknown = enable.bits() & !EnableMask::all().bits();
        if unknown != 0 {
            return Err(WorkError::UnknownBlocks(unknown));
        }
        let incomplete = WorkError::Incomplete(enable.bits());
        let mut work = Self::default();
        for task in Task::all(regs, enable) {
            work.add(&match task.map_err(|_| incomplete)? {
                Task::Conv(conv) => Self::convolution(regs, &conv),
                Task::Flying { reads, output } => Self::flying(&reads, &output),
                Task::Pool(pool) => Self::pooling(&pool),
            });
        }
        Ok(work)
    }

    /// The same work, with the fetch of a program of `words` command words.
    #[must_use]
    pub fn fetching(mut self, words: u64) -> Self {
        self.command_bytes = words.saturating_mul(size_of::<u64>() as u64);
        self
    }

    /// All bytes, commands included.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        self.bytes.total().saturating_add(self.command_bytes)
    }

    /// Adds the work of another task, as if one task did both.
    pub fn add(&mut self, other: &Self) {
        self.bytes.add(&other.bytes);
        let mut other = *other;
        for (mine, more) in self.counts().into_iter().zip(other.counts()) {
            *mine = mine.saturating_add(*more);
        }
    }

    /// All but [`Self::bytes`].
    fn counts(&mut self) -> [&mut u64; 9] {
        [
            &mut self.command_bytes,
            &mut self.feature_fill_bytes,
            &mut self.weight_fill_bytes,
            &mut self.drain_bytes,
            &mut self.mac_clocks,
            &mut self.macs,
            &mut self.decompress_clocks,
            &mut self.dpu_clocks,
            &mut self.ppu_clocks,
        ]
    }

    fn writing(output: &DpuOutput) -> Self {
        let atoms = groups(output) * atoms_of_group(output);
        let mut work = Self {
            dpu_clocks: atoms,
            ..Self::default()
        };
        work.bytes
            .put(DmaEngine::DpuWrite, atoms * u64::from(ATOM_BYTES));
        work
    }

    /// CNA to CORE to DPU to memory.
    fn convolution(regs: &RegisterFile, conv: &ConvTask) -> Self {
        let output = &conv.output;
        let mut work = Self::writing(output);
        work.drain_bytes = atoms_of_group(output) * u64::from(ATOM_BYTES);
        let (features, resident) = features(conv);
        let (weights, decompress_clocks) = weights(regs, conv);
        work.bytes.put(DmaEngine::Feature, features);
        work.bytes.put(DmaEngine::Weight, weights);
        work.feature_fill_bytes = resident;
        work.weight_fill_bytes = weights.div_ceil(groups(output));
        work.decompress_clocks = decompress_clocks;
        if let Some(reads) = &conv.reads {
            work.bytes.add(&operands(reads, false));
        }

        let channel_groups =
            |channels: usize| channels.div_ceil(conv.precision.channel_group()) as u64;
        let (out, channels) = (output.written[2], conv.features.window[2]);
        let (steps, products) = if conv.depthwise {
            // One kernel for each channel: the array's other rows idle.
            (channel_groups(out), out as u64)
        } else {
            let kernels = out.div_ceil(conv.precision.kernel_group()) as u64;
            let steps = channel_groups(channels).max(1).saturating_mul(kernels);
            (steps, (out * channels) as u64)
        };
        // At most 2^22 pixels, 2^10 taps, 2^12 groups, 2^9 groups of kernels.
        let (pixels, taps) = (conv.pixels as u64, conv.weights.taps() as u64);
        work.mac_clocks = pixels.saturating_mul(taps.max(1)).saturating_mul(steps);
        work.macs = pixels.saturating_mul(taps).saturating_mul(products);
        work
    }

    /// MRDMA to DPU to memory.
    fn flying(reads: &Reads, output: &DpuOutput) -> Self {
        let mut work = Self::writing(output);
        work.bytes.add(&operands(reads, true));
        work
    }

    /// PPU_RDMA to PPU to memory.
    fn pooling(pool: &PoolTask) -> Self {
        let (read, written) = (pool.source().atoms(), pool.target().atoms());
        let taps = (pool.kernel[0] * pool.kernel[1]) as u64;
        let mut work = Self {
            ppu_clocks: written * taps,
            ..Self::default()
        };
        let atom = u64::from(ATOM_BYTES);
        work.bytes.put(DmaEngine::PpuRead, read * atom);
        work.bytes.put(DmaEngine::PpuWrite, written * atom);
        work
    }
}
