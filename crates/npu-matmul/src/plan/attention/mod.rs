// SPDX-License-Identifier: MIT OR Apache-2.0
//! Attention without a device: its operands' shapes, what the mask hides, tiles and jobs, and what
//! is kept of them.

pub(crate) mod call;
pub(crate) mod mask;
pub(crate) mod plan;
pub(crate) mod reference;
pub(crate) mod state;

pub use call::{AttentionCall, AttentionShape, HeadRows};
pub use reference::reference;
pub(crate) use state::AttentionState;
