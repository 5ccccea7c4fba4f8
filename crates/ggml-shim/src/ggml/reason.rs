// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why an operation is not offloaded, and weights are not packed.

/// Why an operation stays on the CPU, in the order and in the words of the statistics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub(crate) enum DeclineReason {
    #[error("neither a matmul nor attention")]
    NotAMatmul,
    #[error("no stored weights (attention)")]
    Computed,
    #[error("weights are an input of the graph (rotations of a KV cache)")]
    Input,
    /// The program only asks where to put the weights.
    #[error("query about weight placement (left to the CPU)")]
    Asked,
    #[error("weights not in a buffer of weights")]
    Elsewhere,
    /// The CPU has rearranged the weights, and they were not packed before.
    #[error("weights rearranged for the CPU only")]
    NotPacked,
    #[error("weights in a buffer made before this backend was loaded")]
    Unseen,
    #[error("weights are a part or another shape of a stored tensor")]
    Part,
    /// The weights cannot be divided into tiles.
    #[error("weights of a size without a plan")]
    NoPlan,
    #[error("weights {0}")]
    Left(#[from] LeftOnCpu),
    #[error("weights that ggml cannot decode")]
    WeightType,
    #[error("activations not F32")]
    ActivationType,
    #[error("rows not contiguous in memory")]
    NotContiguous,
    #[error("dimensions do not fit the operation")]
    Dimensions,
    /// Fewer rows than are offloaded, by GGML_ROCKET_MIN_M or the modelled times.
    #[error("fewer rows than the threshold (GGML_ROCKET_MIN_M)")]
    SmallBatch,
    #[error("weights with which the CPU is faster (modelled)")]
    Slower,
    #[error("too few outputs for INT8")]
    FewOutputs,
    #[error("dot products of more than 133,144 elements")]
    TooDeep,
    /// The program requires activations of more precision (`ggml_prec_set_src`), or sets a
    /// parameter of a newer ggml.
    #[error("a required precision, or an unknown parameter of a matmul")]
    Parameters,
    #[error("a precision that the NPU computed wrong, see the log")]
    Distrusted,
    #[error("the NPU rests after failures, see the log")]
    Resting,
    #[error("attention excluded by GGML_ROCKET_ATTENTION")]
    AttentionOff,
    #[error("attention of few rows")]
    AttentionRows,
    #[error("attention with which the CPU is faster (modelled)")]
    AttentionSlower,
    #[error("attention without flash attention (-fa off)")]
    AttentionMatmuls,
    #[error("attention with operands of an unsupported type")]
    AttentionType,
    #[error("attention with heads of more than 576 elements")]
    AttentionHead,
    #[error("attention with operands not in plain memory")]
    AttentionPlace,
    /// Attention that cannot be divided into tiles.
    #[error("attention of a size without a plan")]
    AttentionPlan,
    #[error("attention with unknown operands or parameters")]
    AttentionKind,
}

/// Why weights that could be on the NPU are not, in the words of the statistics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub(crate) enum LeftOnCpu {
    #[error("excluded by GGML_ROCKET_TENSORS")]
    Excluded,
    #[error("beyond GGML_ROCKET_MEM")]
    Memory,
    #[error("beyond the NPU's address space")]
    Addresses,
    /// The process would have too many mappings.
    #[error("beyond vm.max_map_count")]
    Mappings,
    /// They could not be packed.
    #[error("that could not be packed, see the log")]
    Failed,
    #[error("that a graph writes")]
    Written,
}

impl LeftOnCpu {
    /// The reason in the words of the log, after a number of tensors.
    pub(crate) fn in_log(self) -> String {
        match self {
            Self::Excluded | Self::Memory | Self::Addresses | Self::Mappings => self.to_string(),
            Self::Failed => "that could not be packed".to_owned(),
            Self::Written => "written by a graph".to_owned(),
        }
    }
}
