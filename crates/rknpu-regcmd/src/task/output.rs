// SPDX-License-Identifier: MIT OR Apache-2.0
//! The DPU's writer.
//!
//! The DPU writes channels in groups. A group has SIZE_E + 1 atoms for each pixel:
//!
//! ```text
//! addr(g, a, y, x) = base + 16 * (y*(W + NOTCH) + x + a*DST_SURF_STRIDE + g*SURF_ADD)
//! ```
//!
//! (E-writer.) Behind a convolution a group is the kernel group. If the DPU is fed
//! from memory, a group is as many channels as its atoms hold.

use super::cube::{Cube, Walk};
use super::registers::{ReadRegisters, sizes};
use crate::precision::Precision;
use crate::regs::dpu;

/// CONV_MODE of a depthwise convolution (E-field-widths).
pub const DEPTHWISE: u32 = 3;
/// OUTPUT_MODE: the output goes to memory only. Bit 1 of the field is memory.
pub const TO_MEMORY: u32 = 2;

/// What the DPU writes. Distances are in atoms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DpuOutput {
    /// DST_BASE_ADDR.
    pub base: u32,
    /// Width, height and channels of the DPU's cube.
    pub cube: [usize; 3],
    /// Width, height and channels in the writer's own registers. All programs that
    /// write them write them equal to `cube`.
    pub written: [usize; 3],
    /// Atoms skipped after each line.
    pub notch: usize,
    /// DST_SURF_STRIDE.
    pub surface: i64,
    /// SURF_ADD.
    pub surface_add: i64,
    /// Atoms of one pixel in one group: SIZE_E + 1.
    pub group_atoms: usize,
    /// Channels of a group.
    pub group: usize,
    /// The type of the convolution's operands, as the DPU names it.
    pub input: Precision,
    /// The type of the elements.
    pub precision: Precision,
}

impl DpuOutput {
    pub(crate) fn decode(regs: &impl ReadRegisters) -> Self {
        let format = regs.get::<dpu::DataFormat>();
        let mode = regs.get::<dpu::FeatureModeCfg>();
        let size = regs.get::<dpu::WdmaSize1>();
        let precision = Precision::from_code(format.out_precision());
        let group_atoms = regs.get::<dpu::BsOwCfg>().size_e_0() as usize + 1;
        let input = Precision::from_code(format.in_precision());
        Self {
            base: regs.get::<dpu::DstBaseAddr>().dst_base_addr(),
            cube: sizes([
                regs.get::<dpu::DataCubeWidth>().width(),
                regs.get::<dpu::DataCubeHeight>().height(),
                regs.get::<dpu::DataCubeChannel>().channel(),
            ]),
            written: sizes([
                size.width_wdma(),
                size.height_wdma(),
                regs.get::<dpu::WdmaSize0>().channel_wdma(),
            ]),
            notch: regs.get::<dpu::DataCubeNotchAddr>().notch_addr_0() as usize,
            surface: regs.get::<dpu::DstSurfStride>().dst_surf_stride().into(),
            surface_add: regs.get::<dpu::SurfaceAdd>().surf_add().into(),
            group_atoms,
            group: if mode.flying_mode() == 1 {
                group_atoms * precision.per_atom()
            } else if mode.conv_mode() == DEPTHWISE {
                input.depthwise_group()
            } else {
                input.kernel_group()
            },
            input,
            precision,
        }
    }

    /// The atoms of a cube of this size, with those of a group that hold no channel:
    /// whether these are written is not known.
    #[must_use]
    pub fn atoms(&self, [width, height, channels]: [usize; 3]) -> Cube {
        Cube {
            base: self.base,
            width,
            lines: Walk::plain(height, (width + self.notch) as i64),
            surfaces: Walk {
                count: channels.div_ceil(self.group) * self.group_atoms,
                group: self.group_atoms,
                step: self.surface,
                group_step: self.surface_add,
            },
        }
    }

    /// Channels that are written. In a flying task DATA_CUBE_CHANNEL limits them:
    /// allbilly's additions leave the writer's own number as an earlier convolution
    /// wrote it (E-writer-width).
    #[must_use]
    pub fn channels(&self, flying: bool) -> usize {
        let ([_, _, cube], [_, _, written]) = (self.cube, self.written);
        if flying { written.min(cube) } else { written }
    }

    /// Pixels of the cube.
    #[must_use]
    pub const fn pixels(&self) -> usize {
        self.cube[0] * self.cube[1]
    }
}
