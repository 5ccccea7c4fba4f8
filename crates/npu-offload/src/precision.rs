// SPDX-License-Identifier: MIT OR Apache-2.0
//! In which numbers a product is computed.

use npu_matmul::Dtype;
use npu_matmul::quantise::rotate::Rotation;
use npu_matmul::quantise::search::Search;
use npu_matmul::quantise::{Operands, QuantiseOptions, Scheme};

/// Channels of K that share a scale where weights have four bits: the least that the
/// NPU takes at a time, and what [`ComputeType::W4A8`] needs to lose as little as it promises
/// (docs/llama.md).
pub const K_GROUP: usize = Dtype::Int4.k_multiple();

/// Start of the signs of rotations: any will do, and the same one gives the
/// same results each time.
const ROTATION_SEED: u64 = 1;

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

    /// What the NPU multiplies.
    #[must_use]
    pub fn operands(self) -> Dtype {
        match self {
            Self::Fp16 => Dtype::Fp16,
            Self::Int8 | Self::Int8Hadamard => Dtype::Int8,
            Self::W4A8 | Self::W4A8Hadamard | Self::Int4Hadamard => Dtype::Int4,
        }
    }

    /// How weights of rows of `k` are quantised for it. (Of FP16, which is not, what INT8 would be.)
    #[must_use]
    pub fn quantise_options(self, k: usize) -> QuantiseOptions {
        let k_group = Scheme::PerKGroup(K_GROUP);
        let (operands, scheme, rotated) = match self {
            Self::Fp16 | Self::Int8 => (Operands::W8A8, Scheme::PerChannel, false),
            Self::Int8Hadamard => (Operands::W8A8, Scheme::PerChannel, true),
            Self::W4A8 => (Operands::W4A8, k_group, false),
            Self::W4A8Hadamard => (Operands::W4A8, k_group, true),
            Self::Int4Hadamard => (Operands::W4A4, k_group, true),
        };
        QuantiseOptions {
            operands,
            scheme,
            // Of a few levels none is to be wasted on the largest weight alone.
            search: match operands {
                Operands::W8A8 => Search::AbsMax,
                _ => Search::MeanSquare,
            },
            rotation: rotated.then(|| Rotation::new(k, ROTATION_SEED)).flatten(),
            ..QuantiseOptions::default()
        }
    }
}

/// What the user wants, `GGML_ROCKET_PRECISION`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PrecisionChoice {
    /// By the weights, see [`OffloadRules::precision`](crate::OffloadRules::precision).
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

    /// Its word.
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
    fn operands_are_those_that_are_quantised_for() {
        for precision in ComputeType::ALL {
            if precision.is_quantised() {
                let options = precision.quantise_options(4096);
                assert_eq!(options.operands.dtype(), precision.operands());
                assert_eq!(
                    options.rotation.is_some(),
                    precision.name().contains("hadamard")
                );
            }
        }
    }
}
