// SPDX-License-Identifier: MIT OR Apache-2.0
//! A matmul of ggml: its operands, and the parts that each multiply one weight matrix.

use std::sync::Arc;

use super::activation_rows::ActivationRows;
use crate::decide::offload::Offload;
use crate::ggml::tensor_data::{NodeOutput, TensorBytes};
use crate::weights::packed_tensor::ResidentWeights;
use crate::weights::verify::OutputErrors;

/// A matmul and its data.
#[derive(Debug)]
pub(crate) struct MulMat<'a> {
    pub(crate) offload: Offload,
    /// Without bytes if only its packed form exists.
    pub(crate) weights: TensorBytes<'a>,
    /// Where their packed matrices stay; without it they are packed for this matmul only.
    pub(crate) kept: Option<Arc<ResidentWeights>>,
    pub(crate) activations: TensorBytes<'a>,
    /// Which experts each token chose.
    pub(crate) ids: Option<TensorBytes<'a>>,
    /// dst: `outputs()` numbers.
    pub(crate) out: NodeOutput<'a>,
    /// Errors of its outputs against the CPU's, if it is verified.
    pub(crate) errors: Option<OutputErrors>,
}

/// One activation matrix times one weight matrix.
#[derive(Debug)]
pub(super) struct Part<'a> {
    /// Index of the matmul that it is a part of.
    pub(super) matmul: usize,
    /// Which of its weight matrices.
    pub(super) matrix: [usize; 2],
    pub(super) source: ActivationRows<'a>,
}
