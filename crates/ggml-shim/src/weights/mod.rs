// SPDX-License-Identifier: MIT OR Apache-2.0
//! From the weights in ggml's buffers to packed weights.
//!
//! | file | content |
//! |---|---|
//! | `budget` | which weights may be packed |
//! | `watched_buffers` | watches the buffers that the CPU makes, and decides about the weights in them |
//! | `pack`, `quants`, `pieces` | read, quantise and pack a matrix, piece by piece |
//! | `memory` | allocations that may fail |
//! | `packed_tensor`, `progress` | packed weights: lifetime, and how far the load is |
//! | `verify`, `node_error` | is a result right; why there are no outputs, and what follows |

pub(crate) mod budget;
pub(crate) mod memory;
pub(crate) mod node_error;
pub(crate) mod pack;
pub(crate) mod packed_tensor;
pub(crate) mod pieces;
pub(crate) mod progress;
pub(crate) mod quants;
pub(crate) mod verify;
pub(crate) mod watched_buffers;
