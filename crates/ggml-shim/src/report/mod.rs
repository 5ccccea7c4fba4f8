// SPDX-License-Identifier: MIT OR Apache-2.0
//! What people read.
//!
//! | file | content |
//! |---|---|
//! | `stats`, `stats_file` | the statistics table, and the file that keeps it |
//! | `describe` | the device's description, and the line at load |
//! | `observer`, `trace` | watch the engine, and write the trace |

pub(crate) mod describe;
pub(crate) mod observer;
pub(crate) mod stats;
pub(crate) mod stats_file;
pub(crate) mod trace;
