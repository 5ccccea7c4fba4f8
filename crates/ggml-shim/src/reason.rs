// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why an operation is not offloaded.

use crate::budget::LeftOnCpu;

/// Why an operation stays on the CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeclineReason {
    /// Neither a matmul nor attention.
    NotAMatmul,
    /// The weights are the result of another operation: attention.
    Computed,
    /// The weights are an input of the graph.
    Input,
    /// The program only asks where to put the weights.
    Asked,
    /// The weights lie in a buffer that is not for weights.
    Elsewhere,
    /// The CPU has rearranged the weights, and they were not packed before.
    NotPacked,
    /// The weights lie in a buffer that was made before this library was loaded.
    Unseen,
    /// The weights are a part of a stored tensor, or another shape of one.
    Part,
    /// The weights cannot be divided into tiles.
    NoPlan,
    /// The user does not want these weights on the NPU.
    Excluded,
    /// The weights do not fit into the memory for them.
    Memory,
    /// The weights do not fit into the NPU's address space.
    Addresses,
    /// The process would have too many mappings.
    Mappings,
    /// Packing the weights failed.
    NotPackable,
    /// A graph writes the weights.
    Written,
    /// Weights of a type that ggml cannot decode to f32.
    WeightType,
    /// Activations that are not F32.
    ActivationType,
    /// A layout in memory that cannot be read row by row.
    NotContiguous,
    /// Dimensions that do not fit a matmul.
    Shape,
    /// Fewer rows than are offloaded, by GGML_ROCKET_MIN_M or the modelled times.
    SmallBatch,
    /// The NPU is slower with these weights, whatever the batch.
    Slower,
    /// Too few outputs for INT8.
    FewOutputs,
    /// Dot products too long for INT8.
    TooDeep,
    /// The NPU has computed this precision wrong.
    Distrusted,
    /// GGML_ROCKET_ATTENTION=0.
    AttentionOff,
    /// Attention of too few rows.
    AttentionRows,
    /// The NPU is slower with this attention, whatever the batch.
    AttentionSlower,
    /// A matmul of attention without flash attention that the rules decline.
    AttentionMatmuls,
    /// Operands of attention of an unsupported type.
    AttentionType,
    /// Heads that are too long.
    AttentionHead,
    /// Operands of attention that cannot be read in place.
    AttentionPlace,
    /// Attention that cannot be divided into tiles.
    AttentionPlan,
    /// Attention with unknown operands, or with parameters that are not finite.
    AttentionKind,
}

impl DeclineReason {
    /// All reasons, in the order of the statistics.
    pub(crate) const ALL: [Self; 33] = [
        Self::NotAMatmul,
        Self::Computed,
        Self::Input,
        Self::Asked,
        Self::Elsewhere,
        Self::NotPacked,
        Self::Unseen,
        Self::Part,
        Self::NoPlan,
        Self::Excluded,
        Self::Memory,
        Self::Addresses,
        Self::Mappings,
        Self::NotPackable,
        Self::Written,
        Self::WeightType,
        Self::ActivationType,
        Self::NotContiguous,
        Self::Shape,
        Self::SmallBatch,
        Self::Slower,
        Self::FewOutputs,
        Self::TooDeep,
        Self::Distrusted,
        Self::AttentionOff,
        Self::AttentionRows,
        Self::AttentionSlower,
        Self::AttentionMatmuls,
        Self::AttentionType,
        Self::AttentionHead,
        Self::AttentionPlace,
        Self::AttentionPlan,
        Self::AttentionKind,
    ];

    /// A few words for the statistics.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::NotAMatmul => "neither a matmul nor attention",
            Self::Computed => "no stored weights (attention)",
            Self::Input => "weights are an input of the graph (rotations of a KV cache)",
            Self::Asked => "query about weight placement (left to the CPU)",
            Self::Elsewhere => "weights not in a buffer of weights",
            Self::NotPacked => "weights rearranged for the CPU only",
            Self::Unseen => "weights in a buffer made before this backend was loaded",
            Self::Part => "weights are a part or another shape of a stored tensor",
            Self::NoPlan => "weights of a size without a plan",
            Self::Excluded => "weights excluded by GGML_ROCKET_TENSORS",
            Self::Memory => "weights beyond GGML_ROCKET_MEM",
            Self::Addresses => "weights beyond the NPU's address space",
            Self::Mappings => "weights beyond vm.max_map_count",
            Self::NotPackable => "weights that could not be packed, see the log",
            Self::Written => "weights that a graph writes",
            Self::WeightType => "weights that ggml cannot decode",
            Self::ActivationType => "activations not F32",
            Self::NotContiguous => "rows not contiguous in memory",
            Self::Shape => "dimensions do not fit a matmul",
            Self::SmallBatch => "fewer rows than the threshold (GGML_ROCKET_MIN_M)",
            Self::Slower => "weights with which the CPU is faster (modelled)",
            Self::FewOutputs => "too few outputs for INT8",
            Self::TooDeep => "dot products too long for INT8",
            Self::Distrusted => "a precision that the NPU computed wrong, see the log",
            Self::AttentionOff => "attention excluded by GGML_ROCKET_ATTENTION",
            Self::AttentionRows => "attention of few rows",
            Self::AttentionSlower => "attention with which the CPU is faster (modelled)",
            Self::AttentionMatmuls => "attention without flash attention (-fa off)",
            Self::AttentionType => "attention with operands of an unsupported type",
            Self::AttentionHead => "attention with heads of more than 576 elements",
            Self::AttentionPlace => "attention with operands not in plain memory",
            Self::AttentionPlan => "attention of a size without a plan",
            Self::AttentionKind => "attention with unknown operands or parameters",
        }
    }
}

impl From<LeftOnCpu> for DeclineReason {
    fn from(why: LeftOnCpu) -> Self {
        match why {
            LeftOnCpu::Excluded => Self::Excluded,
            LeftOnCpu::Memory => Self::Memory,
            LeftOnCpu::Addresses => Self::Addresses,
            LeftOnCpu::Mappings => Self::Mappings,
            LeftOnCpu::Failed => Self::NotPackable,
            LeftOnCpu::Written => Self::Written,
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
