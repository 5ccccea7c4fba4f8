// SPDX-License-Identifier: MIT OR Apache-2.0
//! The precision that a matmul is computed in.

use npu_matmul::WeightFormat;
use npu_matmul::quantise::Quantisation;

/// The number formats that a matmul is computed in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ComputeType {
    /// Both operands FP16, sums in FP32.
    Fp16,
    /// [`Quantisation::W8A8Hadamard`].
    Int8Hadamard,
}

impl ComputeType {
    /// All precisions, in the order of the statistics.
    pub const ALL: [Self; 2] = [Self::Fp16, Self::Int8Hadamard];

    /// Short name in the statistics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fp16 => "fp16",
            Self::Int8Hadamard => "int8-hadamard",
        }
    }

    /// Quantisation of the operands; `None` for FP16. Its error averages out only over many
    /// outputs.
    #[must_use]
    pub const fn quantisation(self) -> Option<Quantisation> {
        match self {
            Self::Fp16 => None,
            Self::Int8Hadamard => Some(Quantisation::W8A8Hadamard),
        }
    }

    /// Format in which weights are loaded for this precision.
    #[must_use]
    pub fn format(self) -> WeightFormat {
        self.quantisation()
            .map_or(WeightFormat::Fp16, WeightFormat::Quantised)
    }
}

/// The user's choice of precision, `GGML_ROCKET_PRECISION`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PrecisionChoice {
    /// The weights decide: see [`OffloadRules::decide`](crate::OffloadRules::decide).
    #[default]
    Auto,
    /// All weights in this precision.
    Always(ComputeType),
}

impl PrecisionChoice {
    /// All choices with their words.
    pub const WORDS: [(&'static str, Self); 3] = [
        ("auto", Self::Auto),
        ("f16", Self::Always(ComputeType::Fp16)),
        ("w8a8-hadamard", Self::Always(ComputeType::Int8Hadamard)),
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
}
