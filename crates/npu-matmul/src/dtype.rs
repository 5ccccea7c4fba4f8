// SPDX-License-Identifier: MIT OR Apache-2.0
//! Precisions: what goes into the NPU, what comes out, and the numbers of its
//! memory formats that follow from the element sizes.
//!
//! Atoms and groups stand in the table of [`rknpu_regcmd::Precision`].

use std::fmt;

use rknpu_regcmd::{ChipProfile, MatmulType};
use serde::{Deserialize, Serialize};

pub use npu_kernels::ATOM_BYTES;

// The kernels know no registers: their atom is an independent witness.
const _: () = assert!(ATOM_BYTES == rknpu_regcmd::ATOM_BYTES as usize);

/// Input channels of one weight group, the same for every input type here.
pub const CHANNEL_GROUP: usize = Dtype::Int8.k_multiple();
const _: () =
    assert!(Dtype::Int4.k_multiple() == CHANNEL_GROUP && Dtype::Fp16.k_multiple() == CHANNEL_GROUP);

/// Rows of an activation tile are a multiple of this: the feature fetch walks
/// lines in such groups, and other heights gave wrong results (E-surface-pitch).
pub const ROW_MULTIPLE: usize = ChipProfile::RK3588.line_group as usize;

/// The precision of a product: what its operands are, and with that what the
/// NPU adds up in and writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dtype {
    /// Signed 8-bit operands, exact 32-bit results.
    ///
    /// A tile has 16384 channels at most, so that its sums stay below 2^14 * 2^14
    /// in magnitude and the NPU's 32 bits never saturate. The CPU adds K tiles up
    /// modulo 2^32.
    Int8,
    /// Signed 4-bit operands (-8..=7). The NPU writes 16-bit results that
    /// saturate (E-int4-saturates); tiles are bounded so that none does, and the
    /// CPU adds the tiles up to exact 32-bit results.
    ///
    /// [`INT4_K_TILE_MAX`](crate::plan::INT4_K_TILE_MAX) channels never do:
    /// 384 * 8 * 8 < 32767. Activations are at most 8 in magnitude, so a deeper
    /// tile is exact, too, where the magnitudes of each kernel's weights in it
    /// add up to 32767 / 8 or less; [`int4_depth`](crate::plan::int4_depth) finds
    /// that depth.
    ///
    /// 8-bit activations are 16 h + l, both signed and of four bits. Their
    /// product is 16 H + L of two that are exact.
    Int4,
    /// IEEE binary16 operands, binary32 results.
    ///
    /// A result is off by the sum of three errors. The NPU adds in binary32, in an
    /// order that it does not tell: 2^-20 * sum|a*b|. The CPU adds T K tiles up in
    /// binary32, and each addition is off by half an ulp of a sum that is no
    /// larger than sum|a*b|: (T - 1) * 2^-24 * sum|a*b|. The last rounding costs
    /// half an ulp. Results in binary16 are rounded once more.
    Fp16,
}

impl Dtype {
    /// All precisions, for tables and tests.
    pub const ALL: [Self; 3] = [Self::Int8, Self::Int4, Self::Fp16];

    /// The type of the operands.
    #[must_use]
    pub const fn operand(self) -> rknpu_regcmd::Precision {
        self.matmul_type().operand()
    }

    /// Bits of one operand element.
    #[must_use]
    pub const fn input_bits(self) -> usize {
        self.operand().bits() as usize
    }

    /// Bytes that `elements` operand elements occupy; `elements` is even for
    /// [`Dtype::Int4`] (every padded K is).
    #[must_use]
    pub const fn input_bytes(self, elements: usize) -> usize {
        elements * self.input_bits() / 8
    }

    /// Operand elements in one atom: the channels of one surface.
    #[must_use]
    pub const fn atom_elements(self) -> usize {
        self.operand().per_atom()
    }

    /// Output channels of one kernel group: N is padded to a multiple of it
    /// and may be cut only at its boundaries.
    #[must_use]
    pub const fn kernel_group(self) -> usize {
        self.operand().kernel_group()
    }

    /// K is padded with zeros to a multiple of this.
    #[must_use]
    pub const fn k_multiple(self) -> usize {
        self.operand().channel_group()
    }

    /// Where a plan is free, its K tiles are multiples of this: the channels of one entry of CBUF, at
    /// which each line begins (E-entries). Whether lines that end within an entry are read
    /// right is contested (E-line-rounding).
    #[must_use]
    pub const fn k_tile_multiple(self) -> usize {
        rknpu_regcmd::CBUF_ENTRY_BYTES as usize * 8 / self.input_bits()
    }

    /// Bytes of one element that the NPU writes, unrounded.
    #[must_use]
    pub const fn output_bytes(self) -> usize {
        self.matmul_type().out_bytes() as usize
    }

    /// Multiply-accumulates of one core in one clock cycle.
    #[must_use]
    pub const fn macs_per_clock(self) -> u64 {
        self.operand().macs_per_clock()
    }

    /// The register program that computes this precision with `results`.
    #[must_use]
    pub const fn matmul_type_of(self, results: Results) -> MatmulType {
        match (self, results) {
            (Self::Fp16, Results::Halves) => MatmulType::Fp16ToFp16,
            _ => self.matmul_type(),
        }
    }

    /// The register program that computes this precision's sums.
    #[must_use]
    pub const fn matmul_type(self) -> MatmulType {
        match self {
            Self::Int8 => MatmulType::Int8ToInt32,
            Self::Int4 => MatmulType::Int4ToInt16,
            Self::Fp16 => MatmulType::Fp16ToFp32,
        }
    }
}

/// What the NPU makes of a product's sums.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Results {
    /// It writes them: int32, binary32, or int16 that do not saturate.
    #[default]
    Sums,
    /// It rounds those of FP16 to binary16 and writes half the bytes. Where K
    /// is cut it cannot: the rounded parts would add up to less than that
    /// exactness. Other precisions have no such results.
    Halves,
}

/// The elements of C, as a caller gets them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Output {
    /// Of integer weights.
    I32,
    /// Of FP16 weights, and of quantised ones.
    F32,
    /// Of FP16 weights. Where the plan leaves K whole, the NPU rounds and writes half
    /// the bytes; else the CPU adds the K tiles up in binary32 and rounds once. What is
    /// too large becomes an infinity.
    F16,
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.operand().fmt(f)
    }
}
