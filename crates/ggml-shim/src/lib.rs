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
//! | folder | content | uses |
//! |---|---|---|
//! | `ggml` | what ggml is: its structs, functions, number formats, CPU backend; nothing of our engine | |
//! | `decide` | shapes in, offload or reason out, by the rules of [`npu_offload`]; the user's settings | `ggml` |
//! | `weights` | from weights in ggml's buffers to packed weights | both |
//! | `report` | what people read: statistics, description, trace | those above |
//! | `compute` | the nodes of a graph become calls of the engine, or the CPU's work | those above |
//! | `entry` | the functions that ggml calls, start and end | all |
//!
//! The flow of one prompt: `entry::backend` -> `compute::graph` -> `compute::matmul` or
//! `compute::attention` -> `npu_matmul::Engine`.

mod compute;
mod decide;
mod entry;
mod ggml;
mod report;
mod weights;
use std::ffi::{c_int, c_void};
use std::ptr;

use crate::compute::runtime;
use crate::entry::{copies, start};

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
