// SPDX-License-Identifier: MIT OR Apache-2.0
//! What ggml is: nothing here knows the engine.
//!
//! | file | content |
//! |---|---|
//! | `symbols`, `host`, `log` | the ggml that loaded us: its functions, its log, our name in it |
//! | `abi`, `layout` | ggml's structs, and the tables that differ by version |
//! | `shared` | what threads share: addresses of ggml's objects, and locks |
//! | `types` | ggml's number formats and their decoders |
//! | `load_error` | ggml's version, and reasons not to serve it |
//! | `tensor_shape`, `tensor_ref`, `tensor_data`, `footprint` | turn ggml's pointers, once, into safe values |
//! | `cpu`, `cpu_ops` | ggml's CPU backend, and the operations that it computes for us |
//! | `split` | runs of a graph's nodes for our device and for the CPU |
//! | `stream` | settings of one backend: threads, when to stop |
//! | `written_bytes`, `ranges` | identify weights where the host does not |
//! | `reason` | why an operation or weights stay on the CPU |

pub(crate) mod abi;
pub(crate) mod cpu;
pub(crate) mod cpu_ops;
pub(crate) mod footprint;
pub(crate) mod host;
pub(crate) mod layout;
pub(crate) mod load_error;
pub(crate) mod log;
pub(crate) mod ranges;
pub(crate) mod reason;
pub(crate) mod shared;
pub(crate) mod split;
pub(crate) mod stream;
pub(crate) mod symbols;
pub(crate) mod tensor_data;
pub(crate) mod tensor_ref;
pub(crate) mod tensor_shape;
pub(crate) mod types;
pub(crate) mod written_bytes;
