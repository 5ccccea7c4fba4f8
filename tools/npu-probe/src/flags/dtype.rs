// SPDX-License-Identifier: MIT OR Apache-2.0
//! Precisions on the command line.

use clap::ValueEnum;
use npu_matmul::Precision;

/// Precision on the command line.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Dtype {
    /// Signed 8-bit integers; the result is exact, 32 bits
    Int8,
    /// IEEE half precision; the result is single precision, within a bound
    Fp16,
    /// Integers from -8 to 7; the result is exact, 32 bits
    Int4,
}

impl Dtype {
    pub(crate) const fn precision(self) -> Precision {
        match self {
            Self::Int8 => Precision::Int8,
            Self::Fp16 => Precision::Fp16,
            Self::Int4 => Precision::Int4,
        }
    }
}
