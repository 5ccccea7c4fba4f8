// SPDX-License-Identifier: MIT OR Apache-2.0
//! Driver and chip together, through the seam that clients use.

#![allow(missing_docs, unreachable_pub, clippy::unwrap_used, clippy::panic)]

mod backend;
mod extents;
mod product;
mod timeline;
