// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bytes and groups that registers ask the engines for.

use super::work::EngineBytes;
use crate::chip::ATOM_BYTES;
use crate::extent::DmaEngine;
use crate::precision::{Precision, size_bits};
use crate::regfile::RegisterFile;
use crate::regs::{cna, dpu, dpu_rdma};

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
pub(super) const ATOM_BITS: u64 = ATOM_BYTES as u64 * 8;

/// What the DPU's writer writes.
pub(super) struct Output {
    pixels: u64,
    pub(super) channels: u64,
    /// Channels of a group.
    group: u64,
    /// Atoms of a pixel and group.
    atoms: u64,
}

impl Output {
    pub(super) fn decode(regs: &RegisterFile, group: u64) -> Self {
        let width = u64::from(regs.get::<dpu::DataCubeWidth>().width()) + 1;
        let height = u64::from(regs.get::<dpu::DataCubeHeight>().height()) + 1;
        Self {
            pixels: width * height,
            channels: u64::from(regs.get::<dpu::WdmaSize0>().channel_wdma()) + 1,
            group: group.max(1),
            atoms: u64::from(regs.get::<dpu::BsOwCfg>().size_e_0()) + 1,
        }
    }

    pub(super) fn bytes_of_group(&self) -> u64 {
        self.pixels * self.atoms * u64::from(ATOM_BYTES)
    }

    /// Groups of channels.
    pub(super) fn groups(&self) -> u64 {
        self.channels.div_ceil(self.group)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.groups() * self.bytes_of_group()
    }

    pub(super) fn atoms_total(&self) -> u64 {
        self.bytes() / u64::from(ATOM_BYTES)
    }
}

/// Bytes of the features, and of those that must be there at the start.
pub(super) fn features(regs: &RegisterFile) -> (u64, u64) {
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
        width
            * atoms_of(channels, Precision::from_code(con1.in_precision()).bits())
            * u64::from(ATOM_BYTES)
    };
    let grains = u64::from(regs.get::<cna::ConvCon2>().feature_grains());
    (line * height, line * grains.min(height))
}

/// What the fetch of the weights costs.
#[derive(Default)]
pub(super) struct Weights {
    /// Bytes read.
    pub(super) read: u64,
    /// Clocks of the decompressor.
    pub(super) clocks: u64,
}

impl Weights {
    pub(super) fn decode(regs: &RegisterFile) -> Self {
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
pub(super) fn operands(regs: &RegisterFile, flying: bool) -> EngineBytes {
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
        let surfaces = atoms_of(channels, Precision::from_code(mode.in_precision()).bits());
        bytes.put(DmaEngine::Mrdma, share(surfaces) * surface);
    }
    let erdma = regs.get::<dpu_rdma::ErdmaCfg>();
    if erdma.erdma_disable() == 0 {
        let surfaces = atoms_of(channels, size_bits(erdma.erdma_data_size()));
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
pub(super) fn atoms_of(channels: u64, bits: u32) -> u64 {
    (channels * u64::from(bits)).div_ceil(ATOM_BITS)
}

/// Channels that the DPU takes from CORE as one group.
pub(super) fn group_from_core(regs: &RegisterFile) -> u64 {
    let input = Precision::from_code(regs.get::<dpu::DataFormat>().in_precision());
    let depthwise = regs.get::<dpu::FeatureModeCfg>().conv_mode() == DEPTHWISE;
    let group = if depthwise {
        input.depthwise_group()
    } else {
        input.kernel_group()
    };
    group as u64
}
