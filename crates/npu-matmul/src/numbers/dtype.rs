// SPDX-License-Identifier: MIT OR Apache-2.0
//! Precisions of operands and results, and the sizes in the NPU's memory formats that follow from
//! them.
//!
//! [`rknpu_regcmd::Precision`] has the table of atoms and groups.

use std::fmt;

use rknpu_regcmd::{ChipProfile, TaskType};
use serde::{Deserialize, Serialize};

pub use npu_kernels::ATOM_BYTES;

// npu-kernels does not depend on the register crate and has its own constant: compare them.
const _: () = assert!(ATOM_BYTES == rknpu_regcmd::ATOM_BYTES as usize);

/// Input channels of one weight group, the same for every input type here.
pub const CHANNEL_GROUP: usize = Dtype::Int8.k_multiple();
const _: () =
    assert!(Dtype::Int4.k_multiple() == CHANNEL_GROUP && Dtype::Fp16.k_multiple() == CHANNEL_GROUP);

/// The number of rows in an activation tile is a multiple of this. The feature fetch reads lines in
/// such groups; other heights gave wrong results (E-surface-pitch).
pub const ROW_MULTIPLE: usize = ChipProfile::RK3588.line_group as usize;

/// Precision of a matmul: its operands, and with them the NPU's accumulator and output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dtype {
    /// Signed 8-bit operands, exact 32-bit results.
    ///
    /// A tile has at most 16384 channels. Its sums stay below 2^14 * 2^14 in magnitude, so the
    /// NPU's 32 bits never saturate. The CPU adds K tiles modulo 2^32.
    Int8,
    /// Signed 4-bit operands (-8..=7), exact 32-bit results. The NPU writes 16-bit results that
    /// saturate (E-int4-saturates). Tiles are limited so that none saturates; the CPU adds them up
    /// in 32 bits.
    ///
    /// [`INT4_K_TILE_MAX`](crate::plan::INT4_K_TILE_MAX) channels are always safe (384 * 8 * 8 <
    /// 32767). A deeper tile is safe if the magnitudes of each kernel's weights in it add up to at
    /// most 32767 / 8, because activations are at most 8 in magnitude.
    /// [`int4_depth`](crate::plan::int4_depth) finds that depth.
    ///
    /// An 8-bit activation is split into 16 h + l, both signed 4-bit numbers. The result is 16 H +
    /// L, from two exact matmuls.
    Int4,
    /// IEEE binary16 operands, binary32 results.
    ///
    /// The error of a result is the sum of three parts. The NPU adds in binary32, in an unknown
    /// order: 2^-20 * sum|a*b|. The CPU adds T K tiles in binary32; each addition is off by half an
    /// ulp of a sum of at most sum|a*b|: (T - 1) * 2^-24 * sum|a*b|. The last rounding adds half an
    /// ulp.
    Fp16,
}

impl Dtype {
    /// All precisions, for tables and tests.
    pub const ALL: [Self; 3] = [Self::Int8, Self::Int4, Self::Fp16];

    /// Type of the operands.
    #[must_use]
    pub const fn operand(self) -> rknpu_regcmd::Precision {
        self.matmul_type().operand()
    }

    /// Bits of one operand element.
    #[must_use]
    pub const fn input_bits(self) -> usize {
        self.operand().bits() as usize
    }

    /// Bytes of `elements` operand elements. For [`Dtype::Int4`] `elements` must be even; every
    /// padded K is.
    #[must_use]
    pub const fn input_bytes(self, elements: usize) -> usize {
        elements * self.input_bits() / 8
    }

    /// Output channels of one kernel group. N is padded to a multiple of it and split only at such
    /// multiples.
    #[must_use]
    pub const fn kernel_group(self) -> usize {
        self.operand().kernel_group()
    }

    /// K is padded with zeros to a multiple of this.
    #[must_use]
    pub const fn k_multiple(self) -> usize {
        self.operand().channel_group()
    }

    /// Preferred multiple for the depth of K tiles: the channels of one CBUF entry. Each line
    /// begins at an entry (E-entries). Sources disagree whether lines that end within an entry are
    /// read correctly (E-line-rounding).
    #[must_use]
    pub const fn k_tile_multiple(self) -> usize {
        rknpu_regcmd::CBUF_ENTRY_BYTES as usize * 8 / self.input_bits()
    }

    /// Bytes of one element of the NPU's sums, before any rounding.
    #[must_use]
    pub const fn output_bytes(self) -> usize {
        self.matmul_type().out_bytes() as usize
    }

    /// Multiply-accumulates of one core in one clock cycle.
    #[must_use]
    pub const fn macs_per_clock(self) -> u64 {
        self.operand().macs_per_clock()
    }

    /// The type of register program for this precision.
    #[must_use]
    pub const fn matmul_type(self) -> TaskType {
        match self {
            Self::Int8 => TaskType::Int8ToInt32,
            Self::Int4 => TaskType::Int4ToInt16,
            Self::Fp16 => TaskType::Fp16ToFp32,
        }
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.operand().fmt(f)
    }
}
