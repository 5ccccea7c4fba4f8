// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory use of weights and matmuls, predicted before anything is allocated.

mod budget;
mod shares;
mod weights;

pub use budget::{DoesNotFit, MemoryPlan};
pub use shares::MemoryShares;
