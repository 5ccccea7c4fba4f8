// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decisions about one matmul, one attention call or one tensor: what the backend asks.

pub(crate) mod attention;
pub(crate) mod cost;
pub(crate) mod cpu;
pub(crate) mod format;
mod large;
pub(crate) mod memory;
pub(crate) mod placement;
pub(crate) mod precision;
pub(crate) mod rows;
pub(crate) mod rules;
