// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random calls on the software model.
#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

use npu_model::{Model, ModelOptions};
use rocket_hw_tests::fuzz::{Options, run};

fn calls(seed: u64, known_bugs: bool) {
    let device = Model::new(ModelOptions::default()).open_device();
    let options = Options {
        steps: 600,
        known_bugs,
    };
    assert_eq!(run(&device, seed, options), Ok(600));
}

#[test]
fn the_model_takes_random_calls() {
    calls(1, false);
}

#[test]
fn the_model_has_no_known_bugs() {
    calls(100, true);
}

#[test]
fn a_kernel_is_fuzzed_only_if_asked_for() {
    let binary = env!("CARGO_BIN_EXE_rocket-fuzz");
    let run = |arguments: &[&str]| {
        let output = test_support::program(binary).args(arguments).output();
        let output = output.unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        (output.status.code(), text)
    };
    assert_eq!(run(&["--device", "/dev/null"]).0, Some(3));
    let (status, text) = run(&["--device", "model", "--seed", "7", "--steps", "1"]);
    assert_eq!(status, Some(0), "{text}");
    assert!(text.contains("seed 7\nRESULT 200 calls"), "{text}");
}
