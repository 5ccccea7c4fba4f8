// SPDX-License-Identifier: MIT OR Apache-2.0
//! The driver half where no client can see it: what it tells, its kernels and
//! their bugs, its caches and callers, what cores are told. What a client sees of a
//! driver stands in `tests/hw`, which the real one passes too.

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
