// SPDX-License-Identifier: MIT OR Apache-2.0
//! Products whose operands are not what the NPU multiplies: W4A8, quantised ones.
#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests: a failed unwrap is a failed test"
)]

mod common;

use common::{json_of as json, probe, text};
use serde_json::Value;

#[test]
fn nibbles_are_planned_as_twice_the_rows() {
    let split = json("plan 40x1000x96 --dtype w4a8");
    let int4 = json("plan 80x1000x96 --dtype int4");
    assert_eq!(
        (&split["dtype"], &split["npu_rows"]),
        (&"w4a8".into(), &80.into())
    );
    for same in [
        "plan",
        "tile",
        "modelled_npu_ms",
        "bound_ms",
        "partial_sums",
    ] {
        assert_eq!(split["chosen"][same], int4["chosen"][same], "{same}");
    }
    // 40 rows are what is asked for.
    let rate = |report: &Value| report["chosen"]["modelled_gops"].as_f64().unwrap();
    assert!((rate(&split) * 2.0 - rate(&int4)).abs() < 1e-6 * rate(&int4));
    let said = text(&["plan", "40x1000x96", "--dtype", "w4a8"]);
    assert!(
        said.contains("w4a8 40x") && said.contains("80 rows of nibbles"),
        "{said}"
    );
}

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
fn products_of_all_kinds_are_measured_and_checked() {
    for shape in ["8x64x96", "1x1x1", "5x1700x33"] {
        let line = format!("bench {shape} --dtype w4a8,w8a8 --repeat 1 --fds 2");
        let report = json(&line);
        let [w4a8, w8a8] = report["measurements"].as_array().unwrap().as_slice() else {
            panic!("two products: {report:#}");
        };
        assert_eq!(
            (&w4a8["dtype"], &w8a8["dtype"]),
            (&"w4a8".into(), &"w8a8".into())
        );
        assert!(w4a8["plan"].as_str().unwrap().starts_with("int4 M="));
        assert!(w8a8["plan"].as_str().unwrap().starts_with("int8 M="));
        assert!(w4a8["gops"].as_f64() > Some(0.0) && w8a8["gops"].as_f64() > Some(0.0));
    }
    // The plan is what `plan` tells, also for weights of a depth.
    let of = "8x1700x96 --dtype w4a8 --int4-depth 576";
    let bench = json(&format!("bench {of} --repeat 1"));
    let plan = json(&format!("plan {of}"));
    assert_eq!(bench["measurements"][0]["plan"], plan["chosen"]["plan"]);
}

#[test]
fn the_self_test_multiplies_them_too() {
    for dtype in ["w4a8", "w8a8"] {
        let said = text(&["--dtype", dtype, "--shape", "5x700x33"]);
        assert!(said.contains("PASS") && said.contains(dtype), "{said}");
    }
    assert_eq!(probe(&["--dtype", "w4a4"]).0, 2);
    assert_eq!(probe(&["plan", "1x1x1", "--dtype", "w4a4"]).0, 2);
}
