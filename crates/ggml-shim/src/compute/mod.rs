// SPDX-License-Identifier: MIT OR Apache-2.0
//! The nodes of a graph become calls of the engine.
//!
//! | file | content |
//! |---|---|
//! | `runtime` | our state in this process |
//! | `classify` | classifies nodes, and accesses their data |
//! | `graph` | computes the nodes of a graph that ggml hands over |
//! | `serve` | computes whole graphs, for ggml's RPC server |
//! | `matmul`, `attention` | operands of the engine's matmuls and of its attention |
//! | `fallback`, `purse`, `rest` | what the CPU computes because the NPU failed, and for how long |
//! | `statistics` | tells the user what was counted |
//! | `forked` | computes in a child of fork |

pub(crate) mod attention;
pub(crate) mod classify;
pub(crate) mod fallback;
pub(crate) mod forked;
pub(crate) mod graph;
pub(crate) mod matmul;
pub(crate) mod purse;
pub(crate) mod rest;
pub(crate) mod runtime;
pub(crate) mod serve;
pub(crate) mod statistics;
