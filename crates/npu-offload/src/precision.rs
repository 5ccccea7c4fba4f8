// SPDX-License-Identifier: MIT OR Apache-2.0
//! In which numbers a product is computed.

use npu_matmul::quantise::search::Search;
use npu_matmul::quantise::{Operands, QuantiseOptions};
use npu_matmul::{Dtype, WeightFormat};

/// Channels of K that share a scale where weights have four bits: the least that the
/// NPU takes at a time, and what [`ComputeType::W4A8`] needs to lose as little as it promises
/// (docs/llama.md).
pub const K_GROUP: usize = Dtype::Int4.k_multiple();

/// The number formats that a product is computed in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ComputeType {
    /// Both operands FP16, sums in FP32.
    Fp16,
    /// Both operands INT8, sums in INT32; one scale per activation row and one
    /// per output channel.
    Int8,
    /// The same of rotated operands: outliers are spread first.
    Int8Hadamard,
    /// INT4 weights and 8-bit activations, with scales per K group.
    W4A8,
    /// The same of rotated operands.
    W4A8Hadamard,
    /// Both operands INT4 and rotated, with scales per K group.
    Int4Hadamard,
}

impl ComputeType {
    /// All of them, in the order of statistics.
    pub const ALL: [Self; 6] = [
        Self::Fp16,
        Self::Int8,
        Self::Int8Hadamard,
        Self::W4A8,
        Self::W4A8Hadamard,
        Self::Int4Hadamard,
    ];

    /// Short name, as in statistics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fp16 => "fp16",
            Self::Int8 => "int8",
            Self::Int8Hadamard => "int8-hadamard",
            Self::W4A8 => "w4a8",
            Self::W4A8Hadamard => "w4a8-hadamard",
            Self::Int4Hadamard => "int4-hadamard",
        }
    }

    /// Whether operands are quantised, and so have an error that averages out
    /// only over many outputs.
    #[must_use]
    pub fn is_quantised(self) -> bool {
        self != Self::Fp16
    }

    /// How weights are loaded for it.
    #[must_use]
    pub fn format(self) -> WeightFormat {
        match self {
            Self::Fp16 => WeightFormat::Fp16,
            _ => WeightFormat::Quantised(self.quantise_options()),
        }
    }

    /// How weights are quantised for it. (Of FP16, which is not, what INT8 would be.)
    #[must_use]
    pub fn quantise_options(self) -> QuantiseOptions {
        let (operands, rotated) = match self {
            Self::Fp16 | Self::Int8 => (Operands::W8A8, false),
            Self::Int8Hadamard => (Operands::W8A8, true),
            Self::W4A8 => (Operands::W4A8, false),
            Self::W4A8Hadamard => (Operands::W4A8, true),
            Self::Int4Hadamard => (Operands::W4A4, true),
        };
        let (k_group, search) = match operands {
            Operands::W8A8 => (None, Search::AbsMax),
            // Of a few levels none is to be wasted on the largest weight alone.
            Operands::W4A8 | Operands::W4A4 => (Some(K_GROUP), Search::MeanSquare),
        };
        QuantiseOptions {
            operands,
            k_group,
            search,
            rotated,
        }
    }
}

/// What the user wants, `GGML_ROCKET_PRECISION`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PrecisionChoice {
    /// By the weights, see [`OffloadRules::decide`](crate::OffloadRules::decide).
    #[default]
    Auto,
    /// All weights in this precision.
    Always(ComputeType),
}

impl PrecisionChoice {
    /// Every choice with its word.
    pub const WORDS: [(&'static str, Self); 7] = [
        ("auto", Self::Auto),
        ("f16", Self::Always(ComputeType::Fp16)),
        ("w8a8-hadamard", Self::Always(ComputeType::Int8Hadamard)),
        ("w8a8", Self::Always(ComputeType::Int8)),
        ("w4a8", Self::Always(ComputeType::W4A8)),
        ("w4a8-hadamard", Self::Always(ComputeType::W4A8Hadamard)),
        ("w4a4-hadamard", Self::Always(ComputeType::Int4Hadamard)),
    ];

    /// Its word in `GGML_ROCKET_PRECISION`.
    #[must_use]
    pub fn word(self) -> &'static str {
        let word = |(word, choice)| (choice == self).then_some(word);
        Self::WORDS.into_iter().find_map(word).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_choice_has_a_word() {
        let all = ComputeType::ALL.map(PrecisionChoice::Always);
        for choice in [PrecisionChoice::Auto].into_iter().chain(all) {
            assert!(!choice.word().is_empty(), "{choice:?}");
        }
    }

    #[test]
    fn every_precision_has_a_place_in_the_statistics() {
        for (index, precision) in ComputeType::ALL.iter().enumerate() {
            assert_eq!(*precision as usize, index);
        }
    }

    #[test]
    fn names_tell_which_operands_are_rotated() {
        for precision in ComputeType::ALL {
            let rotated = precision.quantise_options().rotated;
            assert_eq!(rotated, precision.name().contains("hadamard"));
        }
    }
}
