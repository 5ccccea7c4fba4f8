// SPDX-License-Identifier: MIT OR Apache-2.0
//! Driver and chip together, through the calls that clients use.

#![allow(missing_docs, unreachable_pub, clippy::unwrap_used, clippy::panic)]

mod calls;
mod matmul;
mod timeline;
