// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the binary on the software model.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests: a failed unwrap is a failed test"
)]

mod calibrate;
mod captures;
mod cli;
mod common;
mod doctor;
mod errors;
mod evidence;
mod first;
mod machine;
mod model;
mod planning;
mod report;
mod soak;
