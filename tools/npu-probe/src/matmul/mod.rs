// SPDX-License-Identifier: MIT OR Apache-2.0
//! One matmul on the engine and its check, and the shapes of models.

pub(crate) mod data;
pub(crate) mod engine_run;
pub(crate) mod expected;
pub(crate) mod gguf;
pub(crate) mod program;
pub(crate) mod report;
pub(crate) mod soak;
