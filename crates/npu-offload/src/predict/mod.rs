// SPDX-License-Identifier: MIT OR Apache-2.0
//! Times of whole models, for tables and reports. No decision depends on them.

pub(crate) mod graph;
pub(crate) mod models;
