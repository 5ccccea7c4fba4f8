// SPDX-License-Identifier: MIT OR Apache-2.0
//! The order in which weights get memory. A tensor gets memory for all of its matrices or for none.

use npu_matmul::memory::{DoesNotFit, MemoryPlan};
use npu_matmul::plan::WeightPlan;

/// Use of a weight tensor, in the order in which tensors get memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum WeightRole {
    /// Weights of a layer: each token of a prompt needs them.
    Layer,
    /// The output matrix: a prompt needs it for one row.
    Output,
    /// The table of embeddings. It is also the output matrix if the model has no other; otherwise
    /// it is only looked up.
    Embedding,
}

impl WeightRole {
    /// Returns the role of a tensor by its name in llama.cpp or whisper.cpp.
    #[must_use]
    pub fn of(name: &str) -> Self {
        match name {
            "output.weight" => Self::Output,
            "token_embd.weight" | "decoder.token_embedding.weight" => Self::Embedding,
            _ => Self::Layer,
        }
    }
}

/// Adds a tensor of `matrices` matrices, each packed by `plan`, to `memory`: all or none.
///
/// # Errors
/// Why they do not fit.
pub fn add_tensor(
    memory: &mut MemoryPlan,
    plan: &WeightPlan,
    matrices: usize,
) -> Result<(), DoesNotFit> {
    for added in 0..matrices {
        if let Err(error) = memory.add(plan) {
            (0..added).for_each(|_| memory.remove(plan));
            return Err(error);
        }
    }
    Ok(())
}
