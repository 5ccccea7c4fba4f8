// SPDX-License-Identifier: MIT OR Apache-2.0
//! `libggml-rocket.so`: a ggml backend for the RK3588 NPU, for llama.cpp as
//! distributions ship it.
//!
//! ```text
//! GGML_BACKEND_PATH=/path/to/libggml-rocket.so llama-completion -m model.gguf -p ...
//! ```
//!
//! ggml loads the library, calls [`ggml_backend_init`], and finds one device, ROCKET0, if there is
//! an NPU. Matmuls with stored weights and many activation rows (the prompt) run on the NPU, and so
//! does attention of many rows. Everything else stays on the CPU backend.
//!
//! | file | content |
//! |---|---|
//! | `symbols`, `host`, `log` | the ggml that loaded us: its functions, its log, our name in it |
//! | `abi`, `layout` | ggml's structs, and the tables that differ by version |
//! | `load_error` | ggml's version, and reasons not to serve it |
//! | `start`, `runtime` | the beginning and the end; our state in this process |
//! | `copies` | which copy of this library a program uses |
//! | `cpu`, `cpu_ops` | ggml's CPU backend, and the operations that it computes for us |
//! | `reg`, `device`, `backend` | the three objects that ggml holds |
//! | `graph` | computes the nodes of a graph that ggml hands over |
//! | `forked` | computes in a child of fork |
//! | `serve`, `split` | compute whole graphs, for ggml's RPC server |
//! | `stream` | settings of one backend: threads, when to stop |
//! | `host_tensor`, `tensor`, `tensor_bytes`, `footprint`, `descriptor` | turn ggml's pointers, once, into safe values |
//! | `types` | ggml's number formats and their decoders |
//! | `supports`, `reason` | pure: which matmuls are offloaded, by the rules of [`npu_offload`], and why not |
//! | `mul_mat`, `pack`, `quants` | operands of the engine's matmuls |
//! | `attention` | operands of the engine's attention |
//! | `mul_mat_error` | why there are no outputs, and what follows |
//! | `fallback`, `purse`, `rest` | what the CPU computes because the NPU failed, and for how long |
//! | `buffer`, `buffer_hooks`, `weight_buffers` | watch the buffers that the CPU makes, and decide about the weights in them |
//! | `load`, `pieces`, `resident`, `progress` | packed weights: loading and lifetime |
//! | `evidence`, `ranges` | identify weights where the host does not |
//! | `budget`, `memory`, `patterns` | which weights may be packed |
//! | `engine`, `describe` | the device, its engine and its description |
//! | `config`, `stats` | environment variables, and the statistics table |
//! | `observer`, `trace` | watch the engine, and write the trace |
//!
//! The flow of one prompt: `backend::graph_compute` -> `graph::compute` ->
//! `mul_mat::compute` or `attention::compute` -> `npu_matmul::Engine`.

mod abi;
mod attention;
mod backend;
mod budget;
mod buffer;
mod buffer_hooks;
mod config;
mod copies;
mod cpu;
mod cpu_ops;
mod describe;
mod descriptor;
mod device;
mod engine;
mod evidence;
mod fallback;
mod footprint;
mod forked;
mod graph;
mod host;
mod host_tensor;
mod layout;
mod load;
mod load_error;
mod log;
mod memory;
mod mul_mat;
mod mul_mat_error;
mod observer;
mod pack;
mod patterns;
mod pieces;
mod progress;
mod purse;
mod quants;
mod ranges;
mod reason;
mod reg;
mod resident;
mod rest;
mod runtime;
mod serve;
mod shared;
mod split;
mod start;
mod stats;
mod stream;
mod supports;
mod symbols;
mod tensor;
mod tensor_bytes;
mod trace;
mod types;
mod verify;
mod weight_buffers;

use std::ffi::{c_int, c_void};
use std::ptr;

/// Returns 1 if this library can serve the program, and should; with 0 ggml ignores it.
#[unsafe(no_mangle)]
pub extern "C" fn ggml_backend_score() -> c_int {
    let serves = || !copies::another_is_named() && start::load().is_some();
    c_int::from(runtime::contain(serves) == Some(true))
}

/// Returns our `struct ggml_backend_reg`, or null if this library cannot serve the program. The
/// program's log then has the reason.
#[unsafe(no_mangle)]
pub extern "C" fn ggml_backend_init() -> *mut c_void {
    match runtime::contain(start::load) {
        Some(Some(runtime)) => runtime.reg.get().cast(),
        _ => ptr::null_mut(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_without_ggml_gets_no_backend() {
        assert_eq!(ggml_backend_score(), 0);
        assert!(ggml_backend_init().is_null());
    }
}
