// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of engines, on the software model and on the device that `ROCKET_DEVICE` selects.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "helpers of tests: a failed unwrap is a failed test"
)]

mod common;

mod addresses;
mod again;
mod attention;
mod attention_failures;
mod attention_precision;
mod batches;
mod board_defaults;
mod caches;
mod cpu_jobs;
mod engines;
mod experts;
mod extremes;
mod failures;
mod first_run;
mod layout_pictures;
mod matmuls;
mod memory;
mod modelled_time;
mod observed;
mod overlap;
mod quantised;
mod refusals;
mod shared_activations;
mod threads;
mod waves;
