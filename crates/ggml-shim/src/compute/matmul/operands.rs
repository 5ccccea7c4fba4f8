// SPDX-License-Identifier: MIT OR Apache-2.0
//! A matmul of ggml: its operands, and the parts that each multiply one weight matrix.

use std::sync::Arc;

use super::activation_rows::ActivationRows;
use crate::decide::offload::MatmulOffload;
use crate::ggml::tensor_data::{NodeOutput, TensorData};
use crate::weights::packed_tensor::PackedTensor;
use crate::weights::verify::OutputErrors;

/// A matmul and its data.
#[derive(Debug)]
pub(crate) struct MatmulNode<'a> {
    pub(crate) offload: MatmulOffload,
    /// Without bytes if only its packed form exists.
    pub(crate) weights: TensorData<'a>,
    /// Where their packed matrices stay; without it they are packed for this matmul only.
    pub(crate) kept: Option<Arc<PackedTensor>>,
    pub(crate) activations: TensorData<'a>,
    /// Which experts each token chose.
    pub(crate) ids: Option<TensorData<'a>>,
    /// dst: `outputs()` numbers.
    pub(crate) out: NodeOutput<'a>,
    /// Errors of its outputs against the CPU's, if it is verified.
    pub(crate) errors: Option<OutputErrors>,
}

/// One activation matrix times one weight matrix.
#[derive(Debug)]
pub(super) struct NodeCall<'a> {
    /// Index of the matmul that it is a part of.
    pub(super) matmul: usize,
    /// Which of its weight matrices.
    pub(super) matrix: [usize; 2],
    pub(super) source: ActivationRows<'a>,
}
