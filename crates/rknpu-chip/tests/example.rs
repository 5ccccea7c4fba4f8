// SPDX-License-Identifier: MIT OR Apache-2.0
//! The example runs.
#![allow(missing_docs, clippy::unwrap_used)]

#[path = "../examples/one_program.rs"]
mod one_program;

#[test]
fn one_program_computes_a_product() {
    one_program::main().unwrap();
}
