// SPDX-License-Identifier: MIT OR Apache-2.0
//! The data types of the NPU, and the properties of each, in one table.
//!
//! Codes: E-precision-codes. Groups: E-weight-groups.

use core::fmt;

use crate::chip::ATOM_BYTES;

/// A data type. CNA, CORE, DPU and DPU_RDMA select it with a three-bit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Precision {
    /// int8.
    Int8,
    /// int16.
    Int16,
    /// IEEE binary16.
    Fp16,
    /// bfloat16.
    Bf16,
    /// int32; DPU only.
    Int32,
    /// IEEE binary32; DPU only.
    Fp32,
    /// int4, two to a byte, the even one in the low nibble.
    Int4,
    /// tf32 in the container of an fp32; CNA and CORE only.
    Tf32,
}

/// The properties of a data type.
struct Definition {
    precision: Precision,
    name: &'static str,
    bits: u32,
    kernel_group: usize,
    channel_group: usize,
    accumulator: Precision,
}

/// By code, for every chip: [`ChipProfile`](crate::ChipProfile) has no groups of channels.
/// The groups decide more than layouts: the rate of multiplications, the groups of
/// depthwise convolutions, and whether a group of results fits SIZE_E (rules/writer.rs).
/// No known program has int32 or fp32 as inputs of CORE. Their groups are those of tf32,
/// which the DPU calls fp32.
const TABLE: [Definition; 8] = {
    use Precision::{Bf16, Fp16, Fp32, Int4, Int8, Int16, Int32, Tf32};
    const fn row(
        precision: Precision,
        name: &'static str,
        bits: u32,
        [kernel_group, channel_group]: [usize; 2],
        accumulator: Precision,
    ) -> Definition {
        Definition {
            precision,
            name,
            bits,
            kernel_group,
            channel_group,
            accumulator,
        }
    }
    [
        row(Int8, "int8", 8, [32, 32], Int32),
        row(Int16, "int16", 16, [16, 32], Int32),
        row(Fp16, "fp16", 16, [16, 32], Fp32),
        row(Bf16, "bf16", 16, [16, 32], Fp32),
        row(Int32, "int32", 32, [16, 16], Int32),
        row(Fp32, "fp32", 32, [16, 16], Fp32),
        row(Int4, "int4", 4, [64, 32], Int32),
        row(Tf32, "tf32", 32, [16, 16], Fp32),
    ]
};

impl Precision {
    const fn definition(self) -> &'static Definition {
        &TABLE[self as usize]
    }

    /// The type that a three-bit field selects; every code is a type.
    #[must_use]
    pub const fn from_code(code: u32) -> Self {
        TABLE[code as usize & 7].precision
    }

    /// The code of the field that selects it.
    #[must_use]
    pub const fn code(self) -> u32 {
        self as u32
    }

    /// Bits of an element.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.definition().bits
    }

    /// Elements of an atom ("C2").
    #[must_use]
    pub const fn per_atom(self) -> usize {
        (ATOM_BYTES * 8 / self.bits()) as usize
    }

    /// Bytes that `elements` of this type take, rounded up.
    #[must_use]
    pub const fn bytes(self, elements: u64) -> u64 {
        (elements * self.bits() as u64).div_ceil(8)
    }

    /// Kernels (output channels) that CORE computes together, and hands to the
    /// DPU together.
    #[must_use]
    pub const fn kernel_group(self) -> usize {
        self.definition().kernel_group
    }

    /// Channels computed together in a depthwise convolution: twice the kernel
    /// group, as measured for int8 and fp16 (E-depthwise-groups).
    #[must_use]
    pub const fn depthwise_group(self) -> usize {
        2 * self.kernel_group()
    }

    /// Input channels that lie together in the weights of one kernel.
    #[must_use]
    pub const fn channel_group(self) -> usize {
        self.definition().channel_group
    }

    /// Multiply-accumulates of a core in one clock: a group of channels times a
    /// group of kernels (E-mac-rate).
    #[must_use]
    pub const fn macs_per_clock(self) -> u64 {
        (self.kernel_group() * self.channel_group()) as u64
    }

    /// The type of the sums in the accumulators.
    #[must_use]
    pub const fn accumulator(self) -> Self {
        self.definition().accumulator
    }

    /// Whether values of this type run through the float pipeline.
    #[must_use]
    pub const fn is_float(self) -> bool {
        matches!(self.accumulator(), Self::Fp32)
    }

    /// The DPU's name for this type of CORE.
    pub(crate) const fn in_dpu(self) -> Self {
        match self {
            Self::Tf32 => Self::Fp32,
            same => same,
        }
    }

    /// Whether known programs show how many output channels CORE hands to the DPU at
    /// a time, for this input type of the DPU (inferred: E-writer).
    pub(crate) const fn leaves_in_groups(self, depthwise: bool) -> bool {
        match self {
            Self::Int32 | Self::Tf32 => false,
            Self::Int4 | Self::Fp32 => !depthwise,
            Self::Int8 | Self::Int16 | Self::Fp16 | Self::Bf16 => true,
        }
    }
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.definition().name)
    }
}

/// Bits of an element, from the two-bit size code of ERDMA, EW and PPU_RDMA.
pub(crate) const fn size_bits(code: u32) -> u32 {
    4 << (code & 3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_in_the_order_of_the_codes() {
        for code in 0..8 {
            assert_eq!(Precision::from_code(code).code(), code);
        }
    }

    #[test]
    fn bytes_round_up_to_whole_bytes() {
        assert_eq!(Precision::Int4.bytes(3), 2);
        assert_eq!(Precision::Int8.bytes(3), 3);
        assert_eq!(Precision::Fp16.bytes(3), 6);
        assert_eq!(Precision::Tf32.bytes(3), 12);
    }
}
