// SPDX-License-Identifier: MIT OR Apache-2.0
//! Products whose operands are not what the NPU multiplies: quantised ones.
#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests: a failed unwrap is a failed test"
)]

mod common;

use common::{json_of as json, probe, text};

#[test]
fn quantised_products_are_planned_as_int8() {
    let quantised = json("plan 40x1000x96 --dtype w8a8");
    assert_eq!(quantised["dtype"], "w8a8");
    assert_eq!(
        quantised["chosen"],
        json("plan 40x1000x96 --dtype int8")["chosen"]
    );
}

#[test]
fn they_are_measured_and_checked() {
    for shape in ["8x64x96", "1x1x1", "5x1700x33"] {
        let report = json(&format!("bench {shape} --dtype w8a8 --repeat 1 --fds 2"));
        let measured = &report["measurements"][0];
        assert_eq!(measured["dtype"], "w8a8");
        assert!(measured["plan"].as_str().unwrap().starts_with("int8 M="));
        assert!(measured["gops"].as_f64() > Some(0.0));
    }
}

/// The plan is what `plan` tells, also for weights of a depth.
#[test]
fn int4_is_measured_by_the_plan_of_its_depth() {
    let of = "8x1700x96 --dtype int4 --int4-depth 576";
    let bench = json(&format!("bench {of} --repeat 1"));
    let plan = json(&format!("plan {of}"));
    assert_eq!(bench["measurements"][0]["plan"], plan["chosen"]["plan"]);
}

#[test]
fn the_self_test_multiplies_them_too() {
    let said = text(&["--dtype", "w8a8", "--shape", "5x700x33"]);
    assert!(said.contains("PASS") && said.contains("w8a8"), "{said}");
    assert_eq!(probe(&["--dtype", "w4a8"]).0, 2);
    assert_eq!(probe(&["plan", "1x1x1", "--dtype", "w4a8"]).0, 2);
}
