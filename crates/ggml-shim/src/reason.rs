// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why an operation is not offloaded.

/// Why an operation stays with the CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeclineReason {
    /// Another operation.
    NotAProduct,
    /// The weights are the result of another operation: attention.
    Computed,
    /// The weights are an input of the graph.
    Input,
    /// The weights lie in a buffer that is not one of weights.
    Elsewhere,
    /// The CPU has rearranged the weights, and they were not packed before.
    NotPacked,
    /// The user does not want these weights on the NPU, or they do not fit.
    LeftToCpu,
    /// Weights of a type that ggml cannot decode to f32.
    WeightType,
    /// Activations that are not F32.
    ActivationType,
    /// A layout in memory that cannot be read row by row.
    NotContiguous,
    /// Dimensions that do not make a product.
    Shape,
    /// Fewer rows than GGML_ROCKET_MIN_M.
    SmallBatch,
    /// The NPU is slower with these weights, whatever the batch.
    Slower,
    /// Too few outputs for INT8.
    FewOutputs,
    /// Dot products too long for INT8.
    TooDeep,
}

impl DeclineReason {
    /// All of them, in the order of the statistics.
    pub(crate) const ALL: [Self; 14] = [
        Self::NotAProduct,
        Self::Computed,
        Self::Input,
        Self::Elsewhere,
        Self::NotPacked,
        Self::LeftToCpu,
        Self::WeightType,
        Self::ActivationType,
        Self::NotContiguous,
        Self::Shape,
        Self::SmallBatch,
        Self::Slower,
        Self::FewOutputs,
        Self::TooDeep,
    ];

    /// A few words for the statistics.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::NotAProduct => "not a matrix product",
            Self::Computed => "no stored weights (attention)",
            Self::Input => "weights are an input of the graph (rotations of a KV cache)",
            Self::Elsewhere => "weights not in a buffer of weights",
            Self::NotPacked => "weights rearranged for the CPU only",
            Self::LeftToCpu => "weights excluded, or beyond the memory for them",
            Self::WeightType => "weights that ggml cannot decode",
            Self::ActivationType => "activations not F32",
            Self::NotContiguous => "rows not contiguous in memory",
            Self::Shape => "dimensions make no product",
            Self::SmallBatch => "fewer rows than GGML_ROCKET_MIN_M",
            Self::Slower => "weights with which the CPU is faster (modelled)",
            Self::FewOutputs => "too few outputs for INT8",
            Self::TooDeep => "dot products too long for INT8",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_a_place_in_the_statistics() {
        for (index, reason) in DeclineReason::ALL.iter().enumerate() {
            assert_eq!(*reason as usize, index);
        }
    }
}
