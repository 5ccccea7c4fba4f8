// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pooling: input and output.
//!
//! ```text
//! in   SRC_BASE + c1*SRC_SURF_STRIDE + y*SRC_LINE_STRIDE + 16*x
//! out  DST_BASE + c1*DST_SURF_STRIDE + 16*(y*(OW + NOTCH) + x)
//! ```
//!
//! Source: E-pooling; E-pool-notch.

use super::cube::Cube;
use super::registers::{ReadRegisters, sizes, surfaces};
use crate::chip::ATOM_BYTES;
use crate::field::Register;
use crate::precision::{Precision, size_bits};
use crate::regs::{ppu, ppu_rdma};

/// POOLING_METHOD of averages.
pub const POOL_AVERAGE: u32 = 0;
/// POOLING_METHOD of maxima.
pub const POOL_MAX: u32 = 1;

/// Input or output of a pooling. Distances are in atoms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolCube {
    /// The base address.
    pub base: u32,
    /// Width, height and channels.
    pub size: [usize; 3],
    /// Distance from one line to the next.
    pub line: i64,
    /// Distance from one surface to the next.
    pub surface: i64,
}

impl PoolCube {
    /// What PPU_RDMA reads.
    pub(crate) fn read(regs: &impl ReadRegisters) -> Self {
        Self {
            base: regs.get::<ppu_rdma::SrcBaseAddr>().src_base_addr(),
            size: sizes([
                regs.get::<ppu_rdma::CubeInWidth>().cube_in_width(),
                regs.get::<ppu_rdma::CubeInHeight>().cube_in_height(),
                regs.get::<ppu_rdma::CubeInChannel>().cube_in_channel(),
            ]),
            line: regs
                .get::<ppu_rdma::SrcLineStride>()
                .src_line_stride()
                .into(),
            surface: regs
                .get::<ppu_rdma::SrcSurfStride>()
                .src_surf_stride()
                .into(),
        }
    }

    /// What the PPU writes.
    pub(crate) fn written(regs: &impl ReadRegisters) -> Self {
        let size = sizes([
            regs.get::<ppu::DataCubeOutWidth>().cube_out_width(),
            regs.get::<ppu::DataCubeOutHeight>().cube_out_height(),
            regs.get::<ppu::DataCubeOutChannel>().cube_out_channel(),
        ]);
        let notch = i64::from(regs.get::<ppu::OperationModeCfg>().notch_addr());
        Self {
            // The low bits belong to no field.
            base: regs.get::<ppu::DstBaseAddr>().bits() & !(ATOM_BYTES - 1),
            size,
            line: size[0] as i64 + notch,
            surface: regs.get::<ppu::DstSurfStride>().dst_surf_stride().into(),
        }
    }

    /// The atoms of the cube, of elements of `bits` bits.
    pub(crate) fn atoms(&self, bits: u32) -> Cube {
        let [width, height, channels] = self.size;
        let size = [width, height, surfaces(channels, bits)];
        Cube::plain(self.base, size, self.line, self.surface)
    }
}

/// A pooling from memory to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolTask {
    /// What PPU_RDMA reads.
    pub read: PoolCube,
    /// The size code of the elements that PPU_RDMA reads.
    pub read_size: u32,
    /// Width, height and channels that the PPU takes.
    pub input: [usize; 3],
    /// Width and height of the window.
    pub kernel: [usize; 2],
    /// POOLING_METHOD.
    pub method: u32,
    /// What the PPU writes.
    pub written: PoolCube,
    /// The type that it computes with.
    pub precision: Precision,
}

impl PoolTask {
    pub(crate) fn decode(regs: &impl ReadRegisters) -> Self {
        let kernel = regs.get::<ppu::PoolingKernelCfg>();
        Self {
            read: PoolCube::read(regs),
            read_size: regs.get::<ppu_rdma::DataFormat>().in_precision(),
            input: sizes([
                regs.get::<ppu::DataCubeInWidth>().cube_in_width(),
                regs.get::<ppu::DataCubeInHeight>().cube_in_height(),
                regs.get::<ppu::DataCubeInChannel>().cube_in_channel(),
            ]),
            kernel: sizes([kernel.kernel_width(), kernel.kernel_height()]),
            method: regs.get::<ppu::OperationModeCfg>().pooling_method(),
            written: PoolCube::written(regs),
            precision: Precision::from_code(regs.get::<ppu::DataFormat>().proc_precision()),
        }
    }

    /// The type that is pooled, given by the PPU's precision. The element width in
    /// PPU_RDMA matters little: rockchip-npu-notes measured int8 as exact with 8 and
    /// 16 bits, wrong with 4. All other combinations are pooled as fp16.
    #[must_use]
    pub const fn element(&self) -> Precision {
        match self.precision {
            Precision::Int8 | Precision::Int16 if self.read_size != 0 => self.precision,
            _ => Precision::Fp16,
        }
    }

    /// Bits of an element of input and output. By the manual's codes an atom of the
    /// input holds 32, 16, 8 or 4 channels. An atom of the output holds those of the
    /// PPU's precision. The larger number applies to both.
    fn bits(&self) -> u32 {
        size_bits(self.read_size).min(self.precision.bits())
    }

    /// The part of the input that is read.
    #[must_use]
    pub fn source(&self) -> Cube {
        let ([width, height, _], [_, _, channels]) = (self.input, self.written.size);
        let size = [width, height, channels];
        PoolCube { size, ..self.read }.atoms(self.bits())
    }

    /// The cube of results that the PPU writes.
    #[must_use]
    pub fn target(&self) -> Cube {
        self.written.atoms(self.bits())
    }
}
