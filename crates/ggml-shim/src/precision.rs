// SPDX-License-Identifier: MIT OR Apache-2.0
//! In which numbers a product is computed.

/// The number formats that a product is computed in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum ComputeType {
    /// Both operands FP16, sums in FP32.
    Fp16,
    /// Both operands INT8, sums in INT32; one scale per activation row and one
    /// per output channel.
    Int8,
    /// The same of rotated operands: outliers are spread first.
    Int8Hadamard,
    /// INT4 weights and 8-bit activations, with scales per K group.
    W4A8,
    /// Both operands INT4 and rotated, with scales per K group.
    Int4Hadamard,
}

impl ComputeType {
    /// All of them, in the order of the statistics.
    pub(crate) const ALL: [Self; 5] = [
        Self::Fp16,
        Self::Int8,
        Self::Int8Hadamard,
        Self::W4A8,
        Self::Int4Hadamard,
    ];

    /// Short name, as in the statistics.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Fp16 => "fp16",
            Self::Int8 => "int8",
            Self::Int8Hadamard => "int8-hadamard",
            Self::W4A8 => "w4a8",
            Self::Int4Hadamard => "int4-hadamard",
        }
    }

    /// Whether operands are quantised, and so have an error that averages out
    /// only over many outputs.
    pub(crate) fn is_quantised(self) -> bool {
        self != Self::Fp16
    }
}

/// What the user wants, `GGML_ROCKET_PRECISION`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum PrecisionChoice {
    /// By the weights: whatever takes the least modelled time of those that lose
    /// little, see [`crate::quality`].
    #[default]
    Auto,
    /// All weights in this precision.
    Always(ComputeType),
}

impl PrecisionChoice {
    /// Every choice with its word in the environment.
    pub(crate) const WORDS: [(&'static str, Self); 6] = [
        ("auto", Self::Auto),
        ("f16", Self::Always(ComputeType::Fp16)),
        ("w8a8", Self::Always(ComputeType::Int8)),
        ("w8a8-hadamard", Self::Always(ComputeType::Int8Hadamard)),
        ("w4a8", Self::Always(ComputeType::W4A8)),
        ("w4a4-hadamard", Self::Always(ComputeType::Int4Hadamard)),
    ];

    /// Its word in the environment.
    pub(crate) fn word(self) -> &'static str {
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
