// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of what no client sees of the driver half: events, kernels and their bugs,
//! caches and callers, register writes. Tests of what a client sees are in
//! `tests/hw`; the real driver passes them too.

#![allow(missing_docs, unreachable_pub, clippy::unwrap_used, clippy::panic)]

mod client;
mod script;
mod shared;

mod bugs;
mod caches;
mod closing;
mod events;
mod fences;
mod other_process;
mod profiles;
mod random;
mod shared_files;
