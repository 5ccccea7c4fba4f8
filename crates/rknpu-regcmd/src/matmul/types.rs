// SPDX-License-Identifier: MIT OR Apache-2.0
//! Operand and result types of matmuls.

use crate::precision::Precision;

/// The operand and result types of a matmul.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub enum TaskType {
    /// int8 operands, exact int32 sums.
    Int8ToInt32,
    /// fp16 operands, fp32 sums.
    Fp16ToFp32,
    /// fp16 operands, sums rounded to fp16 once; how the chip rounds is unknown
    /// (E-fp32-to-fp16).
    Fp16ToFp16,
    /// int4 operands (two's complement, the even index in the low nibble),
    /// int16 sums that saturate.
    Int4ToInt16,
}

impl TaskType {
    /// All types.
    pub const ALL: [Self; 4] = [
        Self::Int8ToInt32,
        Self::Fp16ToFp32,
        Self::Fp16ToFp16,
        Self::Int4ToInt16,
    ];

    /// The type of A and B.
    #[must_use]
    pub const fn operand(self) -> Precision {
        match self {
            Self::Int8ToInt32 => Precision::Int8,
            Self::Fp16ToFp32 | Self::Fp16ToFp16 => Precision::Fp16,
            Self::Int4ToInt16 => Precision::Int4,
        }
    }

    /// The type of C.
    #[must_use]
    pub const fn result(self) -> Precision {
        match self {
            Self::Int8ToInt32 | Self::Fp16ToFp32 => self.operand().accumulator(),
            Self::Fp16ToFp16 => Precision::Fp16,
            Self::Int4ToInt16 => Precision::Int16,
        }
    }

    /// Bytes of an element of C.
    #[must_use]
    pub const fn out_bytes(self) -> u32 {
        self.result().bits() / 8
    }

    /// What K must be a multiple of: the channels of one weight group.
    #[must_use]
    pub const fn k_multiple(self) -> u32 {
        self.operand().channel_group() as u32
    }

    /// What N must be a multiple of: the kernel group.
    #[must_use]
    pub const fn n_multiple(self) -> u32 {
        self.operand().kernel_group() as u32
    }
}
