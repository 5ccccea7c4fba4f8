// SPDX-License-Identifier: MIT OR Apache-2.0
//! The format of weights on the devices.

use crate::numbers::dtype::Dtype;
use crate::numbers::quantise::{INT8_K_MAX, Quantisation};

/// Format of weights on the devices; it determines the types of activations and results.
///
/// | weights | activations | result |
/// |---|---|---|
/// | `Int8` | `i8` | `i32`, exact; K is at most 131,071 |
/// | `Int4` | `i8` of -8..=7 | `i32`, exact; K is below 2^25 |
/// | `Fp16` | `f16` | `f32` or `f16`; see [`Dtype::Fp16`] |
/// | `Quantised` | `f32` | `f32`: the exact integer sums, times two scales |
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WeightFormat {
    /// 8-bit integers.
    Int8,
    /// 4-bit integers.
    Int4,
    /// IEEE binary16.
    Fp16,
    /// Integers with scales, quantised from floats.
    Quantised(Quantisation),
}

impl WeightFormat {
    /// Precision of the matmul on the NPU.
    #[must_use]
    pub const fn dtype(&self) -> Dtype {
        match self {
            Self::Int8 | Self::Quantised(_) => Dtype::Int8,
            Self::Int4 => Dtype::Int4,
            Self::Fp16 => Dtype::Fp16,
        }
    }

    /// Largest K whose sums fit in 32 bits for all values.
    pub(crate) const fn deepest(&self) -> usize {
        let sums = i32::MAX as usize;
        match self {
            Self::Int8 => sums / (128 * 128),
            Self::Int4 => sums / (8 * 8),
            Self::Quantised(_) => INT8_K_MAX,
            Self::Fp16 => usize::MAX,
        }
    }

    /// Name for messages.
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Int8 => "int8",
            Self::Int4 => "int4",
            Self::Fp16 => "fp16",
            Self::Quantised(Quantisation::W8A8) => "quantised int8",
            Self::Quantised(Quantisation::W8A8Hadamard) => "rotated and quantised int8",
        }
    }
}
