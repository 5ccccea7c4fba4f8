// SPDX-License-Identifier: MIT OR Apache-2.0
//! Element types on the command line.

use std::fmt;

use clap::ValueEnum;
use clap::builder::PossibleValue;
use npu_matmul::Dtype;
use serde::{Deserialize, Serialize};

/// The element types of a matmul's operands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum OperandDtypes {
    /// Signed 8-bit integers; the result is exact, in 32 bits
    #[default]
    Int8,
    /// IEEE half precision; the result is single precision, within an error bound
    Fp16,
    /// Integers from -8 to 7; the result is exact, in 32 bits
    Int4,
    /// Floats, quantised to int8 with a scale for each row of A and of B; the result is single
    /// precision
    W8a8,
}

impl OperandDtypes {
    /// The types that `bench` measures by default.
    pub(crate) const PLAIN: [Self; 3] = [Self::Int8, Self::Fp16, Self::Int4];

    /// The type in which the NPU multiplies.
    pub(crate) const fn dtype(self) -> Dtype {
        match self {
            Self::Int8 | Self::W8a8 => Dtype::Int8,
            Self::Fp16 => Dtype::Fp16,
            Self::Int4 => Dtype::Int4,
        }
    }
}

impl fmt::Display for OperandDtypes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value();
        f.pad(value.as_ref().map_or("", PossibleValue::get_name))
    }
}
