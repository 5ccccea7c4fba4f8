// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a task has to move and to compute: integers, independent of any clock.
//!
//! Counts follow the formulas by which the engines address memory (see
//! [`extents`](crate::extents())); a MAC clock is one step of the array: one
//! pixel, one tap, one group of channels and one group of kernels (RK3588 TRM:
//! 1024 int8 products a clock, twice as many of int4, half of 16-bit types, a
//! quarter of tf32; the groups are those of the weight layout).

use thiserror::Error;

use super::counts::{Output, Weights, atoms_of, features, group_from_core, operands};
use crate::chip::ATOM_BYTES;
use crate::extent::DmaEngine;
use crate::precision::{Precision, size_bits};
use crate::regfile::RegisterFile;
use crate::regs::{cna, core, dpu, ppu, ppu_rdma};
use crate::word::EnableMask;

/// The blocks of a convolution.
const CONVOLUTION: EnableMask = EnableMask::CNA
    .union(EnableMask::CORE)
    .union(EnableMask::DPU);
/// The blocks of a task whose main input MRDMA reads.
const FLYING: EnableMask = EnableMask::DPU.union(EnableMask::DPU_RDMA);
/// The blocks of pooling.
const POOLING: EnableMask = EnableMask::PPU.union(EnableMask::PPU_RDMA);

/// Why it cannot be told what a task does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum WorkError {
    /// The mask starts blocks that no source describes.
    #[error("the enable mask starts unknown blocks: bits {bits:#x}")]
    UnknownBlocks {
        /// The bits.
        bits: u32,
    },
    /// Blocks start that wait for one that does not, or none starts.
    #[error(
        "the blocks of enable mask {mask:#x} cannot end a task; start CNA, CORE and DPU, \
         or DPU and DPU_RDMA with flying_mode 1, or PPU and PPU_RDMA"
    )]
    Incomplete {
        /// The mask.
        mask: u32,
    },
}

/// Bytes that each engine moves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct EngineBytes([u64; DmaEngine::ALL.len()]);

impl EngineBytes {
    /// Bytes of one engine.
    #[must_use]
    pub fn of(&self, engine: DmaEngine) -> u64 {
        self.0[engine as usize]
    }

    /// Bytes of all engines.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0
            .iter()
            .fold(0, |sum, &bytes| sum.saturating_add(bytes))
    }

    pub(super) fn put(&mut self, engine: DmaEngine, bytes: u64) {
        self.0[engine as usize] = bytes;
    }

    fn add(&mut self, other: &Self) {
        for (mine, more) in self.0.iter_mut().zip(other.0) {
            *mine = mine.saturating_add(more);
        }
    }
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
    /// Bytes of weights that must be there: the first group of kernels.
    pub weight_fill_bytes: u64,
    /// Bytes that leave after the last MAC: the output of one group.
    pub drain_bytes: u64,
    /// Clocks of the MAC array.
    pub mac_clocks: u64,
    /// Multiplications that the task is about, without those that pad groups.
    pub macs: u64,
    /// Clocks of the weight decompressor: a byte of each of its 16 lanes
    /// (assumed; no source tells).
    pub decompress_clocks: u64,
    /// Clocks of the DPU: an atom of output each (assumed; no source tells,
    /// and no known program is bound by it).
    pub dpu_clocks: u64,
    /// Clocks of the PPU: an atom and tap each (assumed, likewise).
    pub ppu_clocks: u64,
}

impl TaskWork {
    /// The work of the blocks of `enable`, run with `regs`.
    ///
    /// Total in the registers: nothing overflows.
    ///
    /// # Errors
    /// [`WorkError`]: the mask starts no set of blocks that can end.
    pub fn of(regs: &RegisterFile, enable: EnableMask) -> Result<Self, WorkError> {
        let unknown = enable.bits() & !EnableMask::all().bits();
        if unknown != 0 {
            return Err(WorkError::UnknownBlocks { bits: unknown });
        }
        let incomplete = WorkError::Incomplete {
            mask: enable.bits(),
        };
        let flying = regs.get::<dpu::FeatureModeCfg>().flying_mode() == 1;
        let mut work = Self::default();
        if enable.contains(FLYING) && flying {
            work.add(&Self::flying(regs));
        } else if enable.contains(CONVOLUTION) && !flying {
            work.add(&Self::convolution(regs, enable));
        } else if enable.intersects(CONVOLUTION.union(FLYING)) {
            return Err(incomplete);
        }
        if enable.contains(POOLING) {
            work.add(&Self::pooling(regs));
        } else if enable.intersects(POOLING) || enable.is_empty() {
            return Err(incomplete);
        }
        Ok(work)
    }

    /// The same work with the fetch of a program of `words` command words.
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

    /// Adds the work of another task, as if one did both.
    pub fn add(&mut self, other: &Self) {
        let Self {
            command_bytes,
            bytes,
            feature_fill_bytes,
            weight_fill_bytes,
            drain_bytes,
            mac_clocks,
            macs,
            decompress_clocks,
            dpu_clocks,
            ppu_clocks,
        } = self;
        bytes.add(&other.bytes);
        for (mine, more) in [
            (command_bytes, other.command_bytes),
            (feature_fill_bytes, other.feature_fill_bytes),
            (weight_fill_bytes, other.weight_fill_bytes),
            (drain_bytes, other.drain_bytes),
            (mac_clocks, other.mac_clocks),
            (macs, other.macs),
            (decompress_clocks, other.decompress_clocks),
            (dpu_clocks, other.dpu_clocks),
            (ppu_clocks, other.ppu_clocks),
        ] {
            *mine = mine.saturating_add(more);
        }
    }

    /// CNA to CORE to DPU to memory.
    fn convolution(regs: &RegisterFile, enable: EnableMask) -> Self {
        let output = Output::decode(regs, group_from_core(regs));
        let mut work = Self {
            drain_bytes: output.bytes_of_group(),
            dpu_clocks: output.atoms_total(),
            ..Self::default()
        };
        work.bytes.put(DmaEngine::DpuWrite, output.bytes());
        let (features, resident) = features(regs);
        let weights = Weights::decode(regs);
        work.bytes.put(DmaEngine::Feature, features);
        work.bytes.put(DmaEngine::Weight, weights.read);
        work.feature_fill_bytes = resident;
        work.weight_fill_bytes = weights.read.div_ceil(output.groups());
        work.decompress_clocks = weights.clocks;
        if enable.contains(EnableMask::DPU_RDMA) {
            work.bytes.add(&operands(regs, false));
        }

        let precision = Precision::from_code(regs.get::<core::MiscCfg>().proc_precision());
        let channel_group = precision.channel_group() as u64;
        let taps = {
            let size = regs.get::<cna::WeightSize2>();
            u64::from(size.weight_width()) * u64::from(size.weight_height())
        };
        let pixels = u64::from(regs.get::<cna::DataSize3>().dataout_atomics());
        let channels = u64::from(regs.get::<cna::DataSize1>().datain_channel());
        let depthwise = regs.get::<core::MiscCfg>().dw_en() == 1;
        let (out, group) = (output.channels, precision.kernel_group() as u64);
        let steps = if depthwise {
            // One kernel for each channel: the array's other rows idle.
            out.div_ceil(channel_group)
        } else {
            channels
                .div_ceil(channel_group)
                .max(1)
                .saturating_mul(out.div_ceil(group))
        };
        let products = if depthwise { out } else { out * channels };
        // At most 2^22 pixels, 2^10 taps, 2^12 groups, 2^9 groups of kernels.
        let positions = pixels.saturating_mul(taps.max(1));
        work.mac_clocks = positions.saturating_mul(steps);
        work.macs = pixels.saturating_mul(taps).saturating_mul(products);
        work
    }

    /// MRDMA to DPU to memory.
    fn flying(regs: &RegisterFile) -> Self {
        // A group of the writer is SIZE_E + 1 atoms of output here.
        let out = Precision::from_code(regs.get::<dpu::DataFormat>().out_precision());
        let atoms = u64::from(regs.get::<dpu::BsOwCfg>().size_e_0()) + 1;
        let output = Output::decode(regs, atoms * out.per_atom() as u64);
        let mut work = Self {
            bytes: operands(regs, true),
            dpu_clocks: output.atoms_total(),
            ..Self::default()
        };
        work.bytes.put(DmaEngine::DpuWrite, output.bytes());
        work
    }

    /// PPU_RDMA to PPU to memory.
    fn pooling(regs: &RegisterFile) -> Self {
        let kernel = regs.get::<ppu::PoolingKernelCfg>();
        let taps = u64::from(kernel.kernel_width() + 1) * u64::from(kernel.kernel_height() + 1);
        let size = |width: u32, height: u32| u64::from(width + 1) * u64::from(height + 1);
        let pixels_in = size(
            regs.get::<ppu::DataCubeInWidth>().cube_in_width(),
            regs.get::<ppu::DataCubeInHeight>().cube_in_height(),
        );
        let pixels_out = size(
            regs.get::<ppu::DataCubeOutWidth>().cube_out_width(),
            regs.get::<ppu::DataCubeOutHeight>().cube_out_height(),
        );
        let channels = u64::from(regs.get::<ppu::DataCubeOutChannel>().cube_out_channel()) + 1;
        let read = size_bits(regs.get::<ppu_rdma::DataFormat>().in_precision());
        let written = Precision::from_code(regs.get::<ppu::DataFormat>().proc_precision()).bits();
        // The narrower of the two types says how many channels an atom has.
        let surfaces = atoms_of(channels, read.min(written));
        let atom = u64::from(ATOM_BYTES);
        let mut work = Self {
            ppu_clocks: surfaces * pixels_out * taps,
            ..Self::default()
        };
        let bytes = &mut work.bytes;
        bytes.put(DmaEngine::PpuRead, surfaces * pixels_in * atom);
        bytes.put(DmaEngine::PpuWrite, surfaces * pixels_out * atom);
        work
    }
}
