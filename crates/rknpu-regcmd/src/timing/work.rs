// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a task has to move and to compute: integers, independent of any clock.
//!
//! Counts follow the formulas by which the engines address memory (see
//! [`extents`](crate::extents())); a MAC clock is one step of the array: one
//! pixel, one tap, one group of channels and one group of kernels (RK3588 TRM:
//! 1024 int8 products a clock, twice as many of int4, half of 16-bit types, a
//! quarter of tf32; the groups are those of the weight layout).

use thiserror::Error;

use crate::chip::ATOM_BYTES;
use crate::extent::DmaEngine;
use crate::precision;
use crate::regfile::RegisterFile;
use crate::regs::{cna, core, dpu, dpu_rdma, ppu, ppu_rdma};
use crate::word::EnableMask;

/// The blocks of a convolution.
const CONVOLUTION: EnableMask = EnableMask::CNA
    .union(EnableMask::CORE)
    .union(EnableMask::DPU);
/// The blocks of a task whose main input MRDMA reads.
const FLYING: EnableMask = EnableMask::DPU.union(EnableMask::DPU_RDMA);
/// The blocks of pooling.
const POOLING: EnableMask = EnableMask::PPU.union(EnableMask::PPU_RDMA);

/// CONV_MODE of a depthwise convolution.
const DEPTHWISE: u32 = 3;
/// ARGB_IN of packed pixels of one channel; up to three more for more.
const ARGB_FIRST: u32 = 8;
/// COMB_USE: MRDMA and ERDMA share one operand, surface by surface.
const COMB_SHARED: u32 = 5;
/// Bytes of a BS or BN operand of one channel.
const OPERAND_BYTES: u64 = 4;
/// Lanes of the weight decompressor.
const LANES: u16 = 16;
/// Bits of an atom.
const ATOM_BITS: u64 = ATOM_BYTES as u64 * 8;
/// Bits of a container whose precision code names no narrower type.
const BITS_WIDEST: u32 = 32;

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

    fn put(&mut self, engine: DmaEngine, bytes: u64) {
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
    /// Total in the registers: precision codes that an engine does not know
    /// count as 32 bits wide, and nothing overflows.
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
        let groups = output.channels.div_ceil(output.group);
        work.bytes.put(DmaEngine::Feature, features);
        work.bytes.put(DmaEngine::Weight, weights.read);
        work.feature_fill_bytes = resident;
        work.weight_fill_bytes = weights.read.div_ceil(groups);
        work.decompress_clocks = weights.clocks;
        if enable.contains(EnableMask::DPU_RDMA) {
            work.bytes.add(&operands(regs, false));
        }

        let code = regs.get::<core::MiscCfg>().proc_precision();
        let taps = {
            let size = regs.get::<cna::WeightSize2>();
            u64::from(size.weight_width()) * u64::from(size.weight_height())
        };
        let pixels = u64::from(regs.get::<cna::DataSize3>().dataout_atomics());
        let channels = u64::from(regs.get::<cna::DataSize1>().datain_channel());
        let depthwise = regs.get::<core::MiscCfg>().dw_en() == 1;
        let (out, group) = (output.channels, u64::from(kernel_group(code)));
        let steps = if depthwise {
            // One kernel for each channel: the array's other rows idle.
            out.div_ceil(channel_group(code))
        } else {
            channels
                .div_ceil(channel_group(code))
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
        let bits = dpu_bits(regs.get::<dpu::DataFormat>().out_precision());
        let atoms = u64::from(regs.get::<dpu::BsOwCfg>().size_e_0()) + 1;
        let output = Output::decode(regs, atoms * ATOM_BITS / u64::from(bits));
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
        let read = precision::size_bits(regs.get::<ppu_rdma::DataFormat>().in_precision());
        let written = dpu_bits(regs.get::<ppu::DataFormat>().proc_precision());
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

/// What the DPU's writer writes.
struct Output {
    pixels: u64,
    channels: u64,
    /// Channels of a group.
    group: u64,
    /// Atoms of a pixel and group.
    atoms: u64,
}

impl Output {
    fn decode(regs: &RegisterFile, group: u64) -> Self {
        let width = u64::from(regs.get::<dpu::DataCubeWidth>().width()) + 1;
        let height = u64::from(regs.get::<dpu::DataCubeHeight>().height()) + 1;
        Self {
            pixels: width * height,
            channels: u64::from(regs.get::<dpu::WdmaSize0>().channel_wdma()) + 1,
            group: group.max(1),
            atoms: u64::from(regs.get::<dpu::BsOwCfg>().size_e_0()) + 1,
        }
    }

    fn bytes_of_group(&self) -> u64 {
        self.pixels * self.atoms * u64::from(ATOM_BYTES)
    }

    fn bytes(&self) -> u64 {
        self.channels.div_ceil(self.group) * self.bytes_of_group()
    }

    fn atoms_total(&self) -> u64 {
        self.bytes() / u64::from(ATOM_BYTES)
    }
}

/// Bytes of the features, and of those that must be there at the start.
fn features(regs: &RegisterFile) -> (u64, u64) {
    if regs.get::<cna::CbufCon0>().data_reuse() == 1 {
        return (0, 0);
    }
    let con1 = regs.get::<cna::ConvCon1>();
    let size = regs.get::<cna::FcDataSize0>();
    let (width, height) = (u64::from(size.dma_width()), u64::from(size.dma_height()));
    let line = if con1.argb_in() >= ARGB_FIRST {
        width * (u64::from(con1.argb_in() - ARGB_FIRST) % 4 + 1)
    } else {
        let channels = u64::from(regs.get::<cna::FcDataSize1>().dma_channel());
        width * atoms_of(channels, cna_bits(con1.in_precision())) * u64::from(ATOM_BYTES)
    };
    let grains = u64::from(regs.get::<cna::ConvCon2>().feature_grains());
    (line * height, line * grains.min(height))
}

/// What the fetch of the weights costs.
#[derive(Default)]
struct Weights {
    /// Bytes read.
    read: u64,
    /// Clocks of the decompressor.
    clocks: u64,
}

impl Weights {
    fn decode(regs: &RegisterFile) -> Self {
        if regs.get::<cna::CbufCon0>().weight_reuse() == 1 {
            return Self::default();
        }
        let raw = u64::from(regs.get::<cna::WeightSize0>().weight_bytes());
        let control = regs.get::<cna::DcompCtrl>();
        if control.decomp_control() == 0 || control.wt_dec_bypass() == 1 {
            return Self {
                read: raw,
                clocks: 0,
            };
        }
        let blocks = |lane: u16| {
            let last = regs.value(cna::DcompAmount0::OFFSET + lane * 4);
            u64::from(last) + 1
        };
        Self {
            read: (0..LANES).map(blocks).sum::<u64>() * u64::from(ATOM_BYTES),
            clocks: raw.div_ceil(LANES.into()),
        }
    }
}

/// Bytes that the four engines of DPU_RDMA read.
fn operands(regs: &RegisterFile, flying: bool) -> EngineBytes {
    let width = u64::from(regs.get::<dpu_rdma::DataCubeWidth>().width()) + 1;
    let height = u64::from(regs.get::<dpu_rdma::DataCubeHeight>().height()) + 1;
    let channels = u64::from(regs.get::<dpu_rdma::DataCubeChannel>().channel()) + 1;
    let mode = regs.get::<dpu_rdma::FeatureModeCfg>();
    let shared = !flying && mode.comb_use() == COMB_SHARED;
    let share = |surfaces: u64| {
        if shared {
            surfaces.div_ceil(2)
        } else {
            surfaces
        }
    };
    let surface = width * height * u64::from(ATOM_BYTES);
    let mut bytes = EngineBytes::default();
    if mode.mrdma_disable() == 0 {
        let surfaces = atoms_of(channels, dpu_bits(mode.in_precision()));
        bytes.put(DmaEngine::Mrdma, share(surfaces) * surface);
    }
    let erdma = regs.get::<dpu_rdma::ErdmaCfg>();
    if erdma.erdma_disable() == 0 {
        let surfaces = atoms_of(channels, precision::size_bits(erdma.erdma_data_size()));
        let read = match erdma.erdma_data_mode() {
            // One value for each channel.
            0 => surfaces * u64::from(ATOM_BYTES),
            _ => share(surfaces) * surface,
        };
        bytes.put(DmaEngine::Erdma, read);
    }
    let per_channel = |uses: u32| channels * OPERAND_BYTES * u64::from(uses.count_ones());
    let brdma = regs.get::<dpu_rdma::BrdmaCfg>().brdma_data_use();
    let nrdma = regs.get::<dpu_rdma::NrdmaCfg>().nrdma_data_use();
    bytes.put(DmaEngine::Brdma, per_channel(brdma));
    bytes.put(DmaEngine::Nrdma, per_channel(nrdma));
    bytes
}

/// Atoms that hold `channels` elements of `bits` bits.
fn atoms_of(channels: u64, bits: u32) -> u64 {
    (channels * u64::from(bits)).div_ceil(ATOM_BITS)
}

fn cna_bits(code: u32) -> u32 {
    precision::input_bits(code).unwrap_or(BITS_WIDEST)
}

fn dpu_bits(code: u32) -> u32 {
    precision::dpu_bits(code).unwrap_or(BITS_WIDEST)
}

/// Channels that the array multiplies in one clock.
const fn channel_group(code: u32) -> u64 {
    match code {
        precision::INT32 | precision::FP32 | precision::TF32 => 16,
        _ => 32,
    }
}

/// Kernels that the array works on in one clock.
const fn kernel_group(code: u32) -> u32 {
    match code {
        precision::INT8 => 32,
        precision::INT4 => 64,
        _ => 16,
    }
}

/// Channels that the DPU takes from CORE as one group.
fn group_from_core(regs: &RegisterFile) -> u64 {
    let group = kernel_group(regs.get::<dpu::DataFormat>().in_precision());
    let depthwise = regs.get::<dpu::FeatureModeCfg>().conv_mode() == DEPTHWISE;
    u64::from(if depthwise { 2 * group } else { group })
}
