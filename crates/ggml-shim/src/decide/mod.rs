// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pure decisions: shapes in, offload or reason out.
//!
//! | file | content |
//! |---|---|
//! | `offload` | which matmuls and attention are offloaded, by the rules of [`npu_offload`] |
//! | `config`, `patterns` | the environment variables, and names of tensors in them |

pub(crate) mod config;
pub(crate) mod offload;
pub(crate) mod patterns;
