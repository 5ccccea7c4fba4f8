// SPDX-License-Identifier: MIT OR Apache-2.0
//! The functions that ggml calls; start and end.
//!
//! | file | content |
//! |---|---|
//! | `start`, `engine` | the beginning and the end; the device and its engine |
//! | `copies` | which copy of this library a program uses |
//! | `reg`, `device`, `backend` | the three objects that ggml holds |
//! | `buffer`, `buffer_hooks` | the CPU's buffers, and what happens to them |
//! | `load` | loads the weights that are due |

pub(crate) mod backend;
pub(crate) mod buffer;
pub(crate) mod buffer_hooks;
pub(crate) mod copies;
pub(crate) mod device;
pub(crate) mod engine;
pub(crate) mod load;
pub(crate) mod reg;
pub(crate) mod start;
