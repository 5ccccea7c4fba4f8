// SPDX-License-Identifier: MIT OR Apache-2.0
//! One open file of the NPU: its memory, its counters and its clocks.
//!
//! | file | content |
//! |---|---|
//! | `open`, `software_npu` | opens the kernel's device, or the model in its place |
//! | `weight_pool`, `buffers`, `memory` | memory of weights, buffers from call to call, and what fits |
//! | `counters`, `times` | how much work, and how long |

pub(crate) mod buffers;
pub(crate) mod counters;
pub mod memory;
pub(crate) mod open;
#[cfg_attr(not(feature = "software-npu"), path = "no_software_npu.rs")]
pub(crate) mod software_npu;
pub(crate) mod times;
pub(crate) mod weight_pool;
