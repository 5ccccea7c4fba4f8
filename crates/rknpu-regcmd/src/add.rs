// SPDX-License-Identifier: MIT OR Apache-2.0
//! An elementwise sum of int32 as one task: C = A + B.
//!
//! No CNA and no CORE: the DPU takes its main input from memory ("flying"). MRDMA
//! brings A, ERDMA brings B, EW adds, and the writer puts C where it belongs. All
//! three are cubes of the same size whose surfaces follow one another, so that
//! each is one run of bytes and the cube's shape is a matter of counters alone:
//!
//! ```text
//! cube of `width` pixels in one line, `channels` channels, 4 to an atom:
//!   surface 0: atom 0 .. width-1 | surface 1: ... | .. surface channels/4 - 1
//! ```
//!
//! Values: E-int32-add, not under mainline `rocket`; with C in place of A, too
//! (E-flying-in-place). A sum beyond 32 bits saturates (E-int-ew), so whoever wants
//! it modulo 2^32 stays in range.

use thiserror::Error;

use crate::chip::ATOM_BYTES;
use crate::field::FieldRangeError;
use crate::passive::{self, BURST_16, SCALE_ONE};
use crate::precision::Precision;
use crate::program::{BufferRef, Program, RegisterSet, set};
use crate::regs::{dpu, dpu_rdma};
use crate::task::{FLYING, PER_PIXEL, TO_MEMORY};

/// EW ALU operation: add.
const ADD: u32 = 2;
/// Size code of an operand of 32 bits.
const SIZE_32: u32 = 3;

/// int32 values of an atom.
const LANES: u32 = ATOM_BYTES / size_of::<i32>() as u32;

/// C = A + B of int32 values, in one task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddTask {
    /// Pixels: atoms of a surface.
    pub width: u32,
    /// Channels: a multiple of [`AddTask::CHANNEL_MULTIPLE`].
    pub channels: u32,
    /// The first operand.
    pub a: BufferRef,
    /// The second.
    pub b: BufferRef,
    /// Where the sums are written: in the place of an operand, or apart from
    /// both.
    pub c: BufferRef,
}

/// The rule that a sum breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AddError {
    /// A width that was not measured.
    #[error("a sum of {width} atoms a surface: 1 to {max} are known to work; add in pieces")]
    Width {
        /// Atoms of a surface of the task.
        width: u32,
        /// Most atoms that were measured.
        max: u32,
    },
    /// Channels that were not measured.
    #[error(
        "a sum of {channels} channels: multiples of {multiple} up to {max} are known to work; \
         add in pieces"
    )]
    Channels {
        /// Channels of the task.
        channels: u32,
        /// What channels must be a multiple of.
        multiple: u32,
        /// Most channels that were measured.
        max: u32,
    },
    /// An operand does not begin at an atom.
    #[error("operand {operand} begins {offset} bytes into its buffer, not a multiple of 16")]
    Unaligned {
        /// "A", "B" or "C".
        operand: &'static str,
        /// Bytes from the beginning of the buffer.
        offset: u32,
    },
    /// The sums would overwrite values that are still to be read.
    #[error("C overlaps {0} without being in its place")]
    Overlap(&'static str),
    /// A value does not fit its register. The rules above exclude it.
    #[error("the sum does not fit the registers: {0}")]
    Register(#[from] FieldRangeError),
}

impl AddTask {
    /// Most atoms of a surface that were measured (E-int32-add).
    pub const WIDTH_MAX: u32 = 128;
    /// Most channels that were measured (E-int32-add).
    pub const CHANNELS_MAX: u32 = 1024;
    /// What channels must be a multiple of, as measured (E-int32-add).
    pub const CHANNEL_MULTIPLE: u32 = 32;

    /// Bytes of each operand and of the sums; for sizes beyond all legality the
    /// largest number.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        (self.width as u64)
            .saturating_mul(self.channels as u64)
            .saturating_mul(size_of::<i32>() as u64)
    }

    /// Checks every rule.
    ///
    /// # Errors
    /// The first rule that is broken.
    pub fn check(&self) -> Result<(), AddError> {
        let &Self {
            width, channels, ..
        } = self;
        let max = Self::WIDTH_MAX;
        if width == 0 || width > max {
            return Err(AddError::Width { width, max });
        }
        let (multiple, max) = (Self::CHANNEL_MULTIPLE, Self::CHANNELS_MAX);
        if channels == 0 || channels > max || !channels.is_multiple_of(multiple) {
            return Err(AddError::Channels {
                channels,
                multiple,
                max,
            });
        }
        for (operand, at) in [("A", self.a), ("B", self.b), ("C", self.c)] {
            if !at.offset.is_multiple_of(ATOM_BYTES) {
                let offset = at.offset;
                return Err(AddError::Unaligned { operand, offset });
            }
        }
        for (operand, at) in [("A", self.a), ("B", self.b)] {
            let apart = u64::from(at.offset.abs_diff(self.c.offset)) >= self.bytes();
            if at.buffer == self.c.buffer && at != self.c && !apart {
                return Err(AddError::Overlap(operand));
            }
        }
        Ok(())
    }

    /// The register program.
    ///
    /// # Errors
    /// The rule that the task breaks.
    pub fn program(&self) -> Result<Program, AddError> {
        self.check()?;
        let mut set = RegisterSet::new();
        self.set_dpu(&mut set)?;
        self.set_reader(&mut set)?;
        Ok(set.program(FLYING))
    }

    /// EW adds, all else is bypassed.
    fn set_dpu(&self, set: &mut RegisterSet) -> Result<(), FieldRangeError> {
        let (width, channels) = (self.width, self.channels);
        let code = Precision::Int32.code();
        passive::set(set)?;
        set! { set;
            dpu::FeatureModeCfg { flying_mode: 1, output_mode: TO_MEMORY, burst_len: BURST_16 }
            dpu::DataFormat { proc_precision: code, in_precision: code, out_precision: code }
            dpu::DstSurfStride { dst_surf_stride: width }
            dpu::DataCubeWidth { width: width - 1 }
            dpu::DataCubeChannel { channel: channels - 1, orig_channel: channels - 1 }
            // SIZE_E 0: an atom at a time.
            dpu::BsOwCfg { od_bypass: 1 }
            dpu::WdmaSize0 { channel_wdma: channels - 1 }
            dpu::WdmaSize1 { width_wdma: width - 1 }
            // Without OP_CVT_BYPASS: float garbage (E-int32-add-cvt).
            dpu::EwCfg {
                ew_op_src: 1, ew_lut_bypass: 1, ew_op_cvt_bypass: 1, ew_relu_bypass: 1,
                ew_alu_algo: ADD, edata_size: SIZE_32, ew_data_mode: PER_PIXEL
            }
            dpu::OutCvtScale { out_cvt_scale: SCALE_ONE.cast_signed() }
            dpu::SurfaceAdd { surf_add: width }
        }
        set.set_address::<dpu::DstBaseAddr>(self.c);
        Ok(())
    }

    /// MRDMA and ERDMA, each for itself (COMB_USE 0).
    fn set_reader(&self, set: &mut RegisterSet) -> Result<(), FieldRangeError> {
        let code = Precision::Int32.code();
        set! { set;
            dpu_rdma::DataCubeWidth { width: self.width - 1 }
            dpu_rdma::DataCubeChannel { channel: self.channels - 1 }
            dpu_rdma::ErdmaCfg { erdma_data_size: SIZE_32, erdma_data_mode: PER_PIXEL }
            dpu_rdma::EwSurfStride { ew_surf_stride: self.width }
            dpu_rdma::FeatureModeCfg {
                flying_mode: 1, proc_precision: code, burst_len: BURST_16, in_precision: code
            }
        }
        set.set_address::<dpu_rdma::SrcBaseAddr>(self.a)
            .set_address::<dpu_rdma::EwBaseAddr>(self.b);
        Ok(())
    }
}

/// The width and channels of tasks that together add `atoms` atoms, in the order
/// of the run: as few tasks as the measured sizes allow, but for one more where
/// the rest is no whole surface.
///
/// `None` where the run is no whole number of [`AddTask::CHANNEL_MULTIPLE`]
/// channels, which no result of a product is.
#[must_use]
pub fn add_pieces(atoms: u64) -> Option<impl Iterator<Item = (u32, u32)>> {
    /// Atoms of a pixel in the least number of channels.
    const STEP: u64 = (AddTask::CHANNEL_MULTIPLE / LANES) as u64;
    /// Such steps in a pixel of the most channels.
    const STEPS_MAX: u64 = (AddTask::CHANNELS_MAX / AddTask::CHANNEL_MULTIPLE) as u64;
    const WIDTH_MAX: u64 = AddTask::WIDTH_MAX as u64;

    if !atoms.is_multiple_of(STEP) {
        return None;
    }
    let mut steps = atoms / STEP;
    Some(core::iter::from_fn(move || {
        let (width, deep) = match steps {
            0 => return None,
            // What fills no line of the widest.
            1..WIDTH_MAX => (steps, 1),
            _ => (WIDTH_MAX, (steps / WIDTH_MAX).min(STEPS_MAX)),
        };
        steps -= width * deep;
        // Both are bounded by the constants above.
        Some((width as u32, deep as u32 * AddTask::CHANNEL_MULTIPLE))
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::BufferId;

    fn task() -> AddTask {
        AddTask {
            width: 128,
            channels: 1024,
            a: BufferId(0).at(0),
            b: BufferId(0).at(1 << 19),
            c: BufferId(1).at(0),
        }
    }

    #[test]
    fn each_rule_is_named() {
        assert_eq!(task().check(), Ok(()));
        let max = AddTask::WIDTH_MAX;
        for width in [0, 129] {
            let task = AddTask { width, ..task() };
            assert_eq!(task.check(), Err(AddError::Width { width, max }));
        }
        for channels in [0, 16, 48, 1056, u32::MAX] {
            let refused = AddTask { channels, ..task() }.program();
            assert!(matches!(refused, Err(AddError::Channels { .. })));
        }
        let unaligned = AddTask {
            b: BufferId(0).at((1 << 19) + 8),
            ..task()
        };
        let (operand, offset) = ("B", (1 << 19) + 8);
        assert_eq!(
            unaligned.check(),
            Err(AddError::Unaligned { operand, offset })
        );
    }

    #[test]
    fn sums_lie_in_an_operands_place_or_apart() {
        let to = |c| AddTask { c, ..task() }.check();
        for place in [0, 1 << 19, 1 << 20] {
            assert_eq!(to(BufferId(0).at(place)), Ok(()));
        }
        let refused = |operand| Err(AddError::Overlap(operand));
        assert_eq!(to(BufferId(0).at(16)), refused("A"));
        assert_eq!(to(BufferId(0).at((1 << 20) - 16)), refused("B"));
        assert_eq!(to(BufferId(1).at(16)), Ok(()));
    }

    #[test]
    fn pieces_are_legal_and_cover_the_run() {
        for steps in (0..20_000).chain([1 << 20, (1 << 20) + 1]) {
            let atoms = steps * 8;
            let mut covered = 0;
            let mut count = 0;
            for (width, channels) in add_pieces(atoms).unwrap() {
                let piece = AddTask {
                    width,
                    channels,
                    b: BufferId(2).at(0),
                    ..task()
                };
                assert_eq!(piece.check(), Ok(()));
                covered += piece.bytes() / u64::from(ATOM_BYTES);
                count += 1;
            }
            assert_eq!(covered, atoms);
            assert!(count <= steps / (128 * 32) + 2);
        }
        assert!(add_pieces(12).is_none());
    }
}
