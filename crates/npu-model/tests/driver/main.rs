// SPDX-License-Identifier: MIT OR Apache-2.0
//! The driver half against what was observed of the real driver, row by row.

#![allow(missing_docs, unreachable_pub, clippy::unwrap_used, clippy::panic)]

mod client;
mod script;

mod bugs;
mod caches;
mod closing;
mod copying;
mod dma_buf;
mod fences;
mod gem;
mod hangs;
mod names;
mod order;
mod other_process;
mod prime;
mod profiles;
mod random;
mod shared;
mod submit;
mod sw_sync;
mod sync_file;
mod waiting;
