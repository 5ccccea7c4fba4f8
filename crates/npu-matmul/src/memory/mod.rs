// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory that weights and products take, known before anything is allocated.

mod budget;
mod weights;

pub use budget::{DoesNotFit, MemoryPlan};
pub use weights::{DeviceMemory, WeightMemory};
