// SPDX-License-Identifier: MIT OR Apache-2.0
//! Threads for the CPU's share: number and CPUs.

mod cpus;
mod setting;
mod start;
mod workers;

pub use setting::{Pinning, THREADS_VARIABLE, Threads, ThreadsError};
pub use start::run_parallel;
pub(crate) use workers::Workers;
