// SPDX-License-Identifier: MIT OR Apache-2.0
//! The four read engines of the DPU.
//!
//! ```text
//! MRDMA  SRC_BASE + 16 * (c1*(W*H + SURF_NOTCH) + y*(W + LINE_NOTCH) + x)
//! ERDMA  EW_BASE  + 16 * (c1*EW_SURF_STRIDE + y*(W + EW_LINE_NOTCH) + x), per pixel
//!        EW_BASE  + 16 * c1, per channel
//! COMB_USE = 5: MRDMA takes the even surfaces, ERDMA the odd ones; each
//!        advances by W*H and its notch from one surface to its next
//! BRDMA, NRDMA: four bytes for each channel
//! ```
//!
//! (E-rdma-address.) Whether a line notch also adds to the distance of surfaces is
//! not known, nor what an EW operand's own notch adds to: [`Read::far`] is the larger
//! interpretation.

use super::cube::Cube;
use super::registers::{ReadRegisters, sizes, surfaces};
use crate::chip::ATOM_BYTES;
use crate::precision::{Precision, size_bits};
use crate::regs::{dpu, dpu_rdma};

/// COMB_USE: MRDMA and ERDMA share one operand: surfaces alternate.
pub const COMB_SHARED: u32 = 5;
/// ERDMA_DATA_MODE: one value for each channel.
pub const PER_CHANNEL: u32 = 0;
/// ERDMA_DATA_MODE: one value for each pixel and channel.
pub const PER_PIXEL: u32 = 1;

/// Whether EW takes an operand from memory.
pub(crate) fn takes_operand(regs: &impl ReadRegisters) -> bool {
    let ew = regs.get::<dpu::EwCfg>();
    ew.ew_bypass() == 0 && ew.ew_op_bypass() == 0 && ew.ew_op_src() == 1
}

/// A cube that an engine reads, by the two interpretations of its notches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    /// The interpretation that reaches less far. Programs that ran on silicon agree
    /// with it.
    pub near: Cube,
    /// The interpretation that reaches farther.
    pub far: Cube,
}

/// What MRDMA reads. Distances are in atoms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MainRead {
    /// SRC_BASE_ADDR.
    pub base: u32,
    /// Skipped after each line.
    pub line_notch: usize,
    /// Skipped after each surface.
    pub surface_notch: usize,
}

/// What ERDMA reads. Distances are in atoms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ElementRead {
    /// EW_BASE_ADDR.
    pub base: u32,
    /// ERDMA_DATA_MODE: 0 a value for each channel, 1 for each pixel and channel.
    pub mode: u32,
    /// Bits of an element.
    pub bits: u32,
    /// EW_SURF_STRIDE.
    pub stride: usize,
    /// Skipped after each line.
    pub line_notch: usize,
    /// Skipped after each surface.
    pub surface_notch: usize,
}

/// What BRDMA or NRDMA reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChannelRead {
    /// The base address.
    pub base: u32,
    /// DATA_USE: one bit for each consumer of the operands.
    pub uses: u32,
}

/// Bits of DATA_USE: whose operands are read.
impl ChannelRead {
    /// The operand of the ALU.
    pub const ALU: u32 = 1;
    /// The operand of the weight zero point correction.
    pub const CPEND: u32 = 2;
    /// The operand of the multiplier.
    pub const MUL: u32 = 4;
    /// The shift of the multiplier's products.
    pub const SHIFT: u32 = 8;

    /// `None` if no consumer takes operands.
    fn new(uses: u32, base: impl FnOnce() -> u32) -> Option<Self> {
        (uses != 0).then(|| Self { base: base(), uses })
    }

    /// Bytes read for `channels` channels: four for each channel and consumer.
    #[must_use]
    pub fn bytes(&self, channels: usize) -> usize {
        channels * size_of::<u32>() * self.uses.count_ones() as usize
    }

    /// The atoms that hold these bytes.
    #[must_use]
    pub fn atoms(&self, channels: usize) -> Cube {
        let width = self.bytes(channels).div_ceil(ATOM_BYTES as usize);
        Cube::plain(self.base, [width, 1, 1], 0, 0)
    }
}

/// What DPU_RDMA reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reads {
    /// Width, height and channels of the cube that all engines walk.
    pub cube: [usize; 3],
    /// FLYING_MODE: MRDMA feeds the DPU.
    pub flying: bool,
    /// COMB_USE.
    pub comb_use: u32,
    /// The type that MRDMA reads.
    pub precision: Precision,
    /// PROC_PRECISION.
    pub proc_precision: Precision,
    /// MRDMA widens fp16 to fp32.
    pub widens: bool,
    /// MRDMA, if it is on.
    pub main: Option<MainRead>,
    /// ERDMA, if it is on.
    pub element: Option<ElementRead>,
    /// BRDMA, if anything takes its operands.
    pub bs: Option<ChannelRead>,
    /// NRDMA, if anything takes its operands.
    pub bn: Option<ChannelRead>,
}

impl Reads {
    pub(crate) fn decode(regs: &impl ReadRegisters) -> Self {
        let height = regs.get::<dpu_rdma::DataCubeHeight>();
        let mode = regs.get::<dpu_rdma::FeatureModeCfg>();
        let erdma = regs.get::<dpu_rdma::ErdmaCfg>();
        Self {
            cube: sizes([
                regs.get::<dpu_rdma::DataCubeWidth>().width(),
                height.height(),
                regs.get::<dpu_rdma::DataCubeChannel>().channel(),
            ]),
            flying: mode.flying_mode() == 1,
            comb_use: mode.comb_use(),
            precision: Precision::from_code(mode.in_precision()),
            proc_precision: Precision::from_code(mode.proc_precision()),
            widens: mode.mrdma_fp16tofp32_en() == 1,
            main: (mode.mrdma_disable() == 0).then(|| MainRead {
                base: regs.get::<dpu_rdma::SrcBaseAddr>().src_base_addr(),
                line_notch: regs.get::<dpu_rdma::SrcDmaCfg>().line_notch_addr() as usize,
                surface_notch: regs.get::<dpu_rdma::SurfNotch>().surf_notch_addr() as usize,
            }),
            element: (erdma.erdma_disable() == 0).then(|| ElementRead {
                base: regs.get::<dpu_rdma::EwBaseAddr>().ew_base_addr(),
                mode: erdma.erdma_data_mode(),
                bits: size_bits(erdma.erdma_data_size()),
                stride: regs.get::<dpu_rdma::EwSurfStride>().ew_surf_stride() as usize,
                line_notch: height.ew_line_notch_addr() as usize,
                surface_notch: regs.get::<dpu_rdma::EwSurfNotch>().ew_surf_notch() as usize,
            }),
            bs: ChannelRead::new(regs.get::<dpu_rdma::BrdmaCfg>().brdma_data_use(), || {
                regs.get::<dpu_rdma::BsBaseAddr>().bs_base_addr()
            }),
            bn: ChannelRead::new(regs.get::<dpu_rdma::NrdmaCfg>().nrdma_data_use(), || {
                regs.get::<dpu_rdma::BnBaseAddr>().bn_base_addr()
            }),
        }
    }

    /// Type of an element of EW's operand. `float` says whether the DPU computes with
    /// floats. A 16-bit operand is read as int8 if PROC_PRECISION is int8 (measured).
    /// `None` if no operand is read.
    #[must_use]
    pub fn operand_precision(&self, float: bool) -> Option<Precision> {
        Some(match (self.element?.bits, self.proc_precision) {
            (4, _) => Precision::Int4,
            (8, _) | (16, Precision::Int8) => Precision::Int8,
            (16, Precision::Bf16) => Precision::Bf16,
            (16, _) if float => Precision::Fp16,
            (16, _) => Precision::Int16,
            _ if float => Precision::Fp32,
            _ => Precision::Int32,
        })
    }

    /// Pixels of the cube.
    #[must_use]
    pub const fn pixels(&self) -> usize {
        self.cube[0] * self.cube[1]
    }

    /// Whether MRDMA and ERDMA share one operand. `flying` says whether the DPU is
    /// fed from memory.
    #[must_use]
    pub const fn shares(&self, flying: bool) -> bool {
        !flying && self.comb_use == COMB_SHARED
    }

    /// What MRDMA reads.
    #[must_use]
    pub fn main_read(&self, flying: bool) -> Option<Read> {
        let main = self.main?;
        let surfaces = self.surfaces(self.precision.bits(), flying);
        let notch = main.surface_notch;
        let read = |pitch| self.walk(main.base, main.line_notch, surfaces, pitch);
        Some(Read {
            near: read(self.pixels() + notch),
            far: read(self.cube[1] * (self.cube[0] + main.line_notch) + notch),
        })
    }

    /// What ERDMA reads.
    #[must_use]
    pub fn element_read(&self, flying: bool) -> Option<Read> {
        let element = self.element?;
        let notch = element.surface_notch;
        let shared = self.surfaces(element.bits, flying);
        if element.mode == PER_CHANNEL {
            let all = surfaces(self.cube[2], element.bits);
            let atoms = |pitch| Cube::plain(element.base, [1, 1, all], 0, pitch);
            return Some(Read {
                near: atoms(1),
                far: atoms((element.stride.max(1) + notch) as i64),
            });
        }
        let read = |pitch| self.walk(element.base, element.line_notch, shared, pitch);
        let lines = self.cube[1] * (self.cube[0] + element.line_notch);
        Some(Read {
            near: read(if self.shares(flying) {
                self.pixels() + notch
            } else {
                element.stride
            }),
            far: read(element.stride.max(lines) + notch),
        })
    }

    /// Number of surfaces that one engine reads, of elements of `bits` bits.
    fn surfaces(&self, bits: u32, flying: bool) -> usize {
        let all = surfaces(self.cube[2], bits);
        if self.shares(flying) {
            all.div_ceil(2)
        } else {
            all
        }
    }

    fn walk(&self, base: u32, line_notch: usize, surfaces: usize, pitch: usize) -> Cube {
        let [width, height, _] = self.cube;
        let size = [width, height, surfaces];
        Cube::plain(base, size, (width + line_notch) as i64, pitch as i64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(test_support::cases(256))]

        #[test]
        fn the_farther_reading_covers_the_nearer(
            cube in prop::array::uniform3(1usize..40),
            line_notch in 0usize..5,
            surface_notch in 0usize..50,
            stride in 0usize..50,
            mode in 0u32..2,
            bits in prop::sample::select(std::vec![4u32, 8, 16, 32]),
            comb_use in prop::sample::select(std::vec![0, COMB_SHARED]),
            flying: bool,
        ) {
            let reads = Reads {
                cube,
                flying,
                comb_use,
                precision: Precision::Fp16,
                proc_precision: Precision::Fp16,
                widens: false,
                main: Some(MainRead { base: 16, line_notch, surface_notch }),
                element: Some(ElementRead { base: 16, mode, bits, stride, line_notch, surface_notch }),
                bs: None,
                bn: None,
            };
            for read in [reads.main_read(flying), reads.element_read(flying)] {
                let [near, far] = read.map(|read| [read.near, read.far].map(|cube| cube.bounds())).unwrap();
                let (near, far) = (near.unwrap(), far.unwrap());
                prop_assert!(far.start <= near.start && near.end <= far.end);
            }
        }
    }
}
