// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pooling: input and output.
//!
//! ```text
//! in   SRC_BASE + c1*SRC_SURF_STRIDE + y*SRC_LINE_STRIDE + 16*x
//! out  DST_BASE + c1*DST_SURF_STRIDE + 16*(y*(OW + NOTCH) + x)
//! ```
//!
//! Source: librocketnpu, measured on silicon for fp16; RK3588 TRM for the notch.

use super::cube::{Cube, Walk};
use super::{Registers, sizes};
use crate::chip::ATOM_BYTES;
use crate::field::Register;
use crate::precision::{Precision, size_bits};
use crate::regs::{ppu, ppu_rdma};

/// What PPU_RDMA reads. Distances are in atoms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolRead {
    /// SRC_BASE_ADDR.
    pub base: u32,
    /// Width, height and channels.
    pub cube: [usize; 3],
    /// SRC_LINE_STRIDE.
    pub line: u32,
    /// SRC_SURF_STRIDE.
    pub surface: u32,
    /// The size code of the elements.
    pub size: u32,
}

impl PoolRead {
    /// Reads the registers; every value means something.
    #[must_use]
    pub fn decode(regs: &impl Registers) -> Self {
        Self {
            base: regs.get::<ppu_rdma::SrcBaseAddr>().src_base_addr(),
            cube: sizes([
                regs.get::<ppu_rdma::CubeInWidth>().cube_in_width(),
                regs.get::<ppu_rdma::CubeInHeight>().cube_in_height(),
                regs.get::<ppu_rdma::CubeInChannel>().cube_in_channel(),
            ]),
            line: regs.get::<ppu_rdma::SrcLineStride>().src_line_stride(),
            surface: regs.get::<ppu_rdma::SrcSurfStride>().src_surf_stride(),
            size: regs.get::<ppu_rdma::DataFormat>().in_precision(),
        }
    }

    /// The atoms of so many pixels and surfaces.
    #[must_use]
    pub fn atoms(&self, [width, height, surfaces]: [usize; 3]) -> Cube {
        Cube {
            base: self.base,
            width,
            lines: Walk::plain(height, self.line.into()),
            surfaces: Walk::plain(surfaces, self.surface.into()),
        }
    }
}

/// What the PPU writes. Distances are in atoms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolWrite {
    /// DST_BASE_ADDR.
    pub base: u32,
    /// Width, height and channels.
    pub cube: [usize; 3],
    /// DST_SURF_STRIDE.
    pub surface: u32,
    /// Atoms skipped after each line.
    pub notch: u32,
    /// The type of the elements.
    pub precision: Precision,
}

impl PoolWrite {
    /// Reads the registers; every value means something.
    #[must_use]
    pub fn decode(regs: &impl Registers) -> Self {
        Self {
            // The low bits belong to no field.
            base: regs.get::<ppu::DstBaseAddr>().bits() & !(ATOM_BYTES - 1),
            cube: sizes([
                regs.get::<ppu::DataCubeOutWidth>().cube_out_width(),
                regs.get::<ppu::DataCubeOutHeight>().cube_out_height(),
                regs.get::<ppu::DataCubeOutChannel>().cube_out_channel(),
            ]),
            surface: regs.get::<ppu::DstSurfStride>().dst_surf_stride(),
            notch: regs.get::<ppu::OperationModeCfg>().notch_addr(),
            precision: Precision::from_code(regs.get::<ppu::DataFormat>().proc_precision()),
        }
    }

    /// The atoms of so many surfaces.
    #[must_use]
    pub fn atoms(&self, surfaces: usize) -> Cube {
        let [width, height, _] = self.cube;
        Cube {
            base: self.base,
            width,
            lines: Walk::plain(height, width as i64 + i64::from(self.notch)),
            surfaces: Walk::plain(surfaces, self.surface.into()),
        }
    }
}

/// A pooling from memory to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pool {
    /// What PPU_RDMA reads.
    pub read: PoolRead,
    /// Width, height and channels that the PPU takes.
    pub input: [usize; 3],
    /// Width and height of the window.
    pub kernel: [usize; 2],
    /// What it makes of them.
    pub write: PoolWrite,
}

impl Pool {
    /// Reads the registers; every value means something.
    #[must_use]
    pub fn decode(regs: &impl Registers) -> Self {
        let kernel = regs.get::<ppu::PoolingKernelCfg>();
        Self {
            read: PoolRead::decode(regs),
            input: sizes([
                regs.get::<ppu::DataCubeInWidth>().cube_in_width(),
                regs.get::<ppu::DataCubeInHeight>().cube_in_height(),
                regs.get::<ppu::DataCubeInChannel>().cube_in_channel(),
            ]),
            kernel: sizes([kernel.kernel_width(), kernel.kernel_height()]),
            write: PoolWrite::decode(regs),
        }
    }

    /// Surfaces of input and output. By the manual's codes an atom that is read
    /// holds 32, 16, 8 or 4 channels; one that is written, those of the PPU's
    /// precision; the more of both count.
    #[must_use]
    pub fn surfaces(&self) -> usize {
        let bits = size_bits(self.read.size).min(self.write.precision.bits());
        super::surfaces(self.write.cube[2], bits)
    }

    /// What is read of the input.
    #[must_use]
    pub fn source(&self) -> Cube {
        let [width, height, _] = self.input;
        self.read.atoms([width, height, self.surfaces()])
    }

    /// What is written.
    #[must_use]
    pub fn target(&self) -> Cube {
        self.write.atoms(self.surfaces())
    }
}
