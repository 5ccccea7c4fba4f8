// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which weights get memory first, and that a tensor gets it in whole.

use npu_matmul::memory::{DoesNotFit, MemoryPlan};
use npu_matmul::plan::WeightPlan;

/// What weights are for, in the order of their turns for memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum WeightRole {
    /// Each token of a prompt needs it.
    Layer,
    /// The output's: a prompt needs it for one row.
    Output,
    /// A table of embeddings, which is the output's weight too where the model has no
    /// other, and else is looked up, no more.
    Embedding,
}

impl WeightRole {
    /// That of a tensor of this name, as llama.cpp and whisper.cpp give them.
    #[must_use]
    pub fn of(name: &str) -> Self {
        match name {
            "output.weight" => Self::Output,
            "token_embd.weight" | "decoder.token_embedding.weight" => Self::Embedding,
            _ => Self::Layer,
        }
    }
}

/// Adds all matrices of a tensor to `memory`, or none.
///
/// # Errors
/// Why they do not fit.
pub fn add_tensor(memory: &mut MemoryPlan, plans: &[WeightPlan]) -> Result<(), DoesNotFit> {
    for (index, plan) in plans.iter().enumerate() {
        if let Err(error) = memory.add(plan) {
            for plan in &plans[..index] {
                memory.remove(plan);
            }
            return Err(error);
        }
    }
    Ok(())
}
