// SPDX-License-Identifier: MIT OR Apache-2.0
//! `bench --plan`, and options of planning.

use crate::common::{fails_with, json, says};
use serde_json::Value;

/// The report of the only plan.
pub(crate) fn one_plan(line: &str) -> Value {
    let report = json(line);
    let [plan] = report["plans"].as_array().unwrap().as_slice() else {
        panic!("one plan: {report:#}");
    };
    plan.clone()
}

#[test]
fn plans_are_for_any_int4_weights() {
    let plan = "bench --plan 512x4096x4096 --dtype int4";
    assert_eq!(one_plan(plan)["chosen"]["k_tiles"], 11);
    says(plan, &["K tiles of 384 at most, safe for any int4 weights"]);
}

#[test]
fn quantised_matmuls_are_planned_and_measured_as_int8() {
    let plan = |dtype: &str| one_plan(&format!("bench --plan 40x1000x96 --dtype {dtype}"));
    let quantised = plan("w8a8");
    assert_eq!(quantised["dtype"], "w8a8");
    assert_eq!(quantised["chosen"], plan("int8")["chosen"]);
    for shape in ["8x64x96", "1x1x1", "5x1700x33"] {
        let report = json(&format!("bench {shape} --dtype w8a8 --repeat 1 --fds 2"));
        let measured = &report["measurements"][0];
        assert_eq!(measured["dtype"], "w8a8");
        assert!(measured["plan"].as_str().unwrap().starts_with("int8 M="));
        assert!(measured["gops"].as_f64() > Some(0.0));
    }
}

#[test]
fn the_cpus_time_decides_over_cuts() {
    let at = |more: &str| {
        one_plan(&format!(
            "bench --plan 512x4096x4096 --dtype int8 --clock 600{more}"
        ))
    };
    let [one, four, many] = [" --cpu-cores 1", "", " --cpu-cores 64"].map(at);
    assert_eq!(four, at(" --cpu-cores 4"));
    // If the CPU limits the call, K is cut less and the call takes longer.
    let k_tiles = |report: &Value| report["chosen"]["k_tiles"].as_u64();
    assert!(k_tiles(&one) <= k_tiles(&many));
    let call = |report: &Value| report["chosen"]["modelled_call_ms"].as_f64().unwrap();
    assert!(call(&one) > call(&four) && call(&four) >= call(&many));
    says(
        "bench --plan 8x64x64 --cpu-cores 7",
        &["7 CPU cores pack and unpack"],
    );
}

/// A plan of these would take gigabytes.
#[test]
fn a_matmul_that_no_plan_ends_for_is_refused() {
    for shape in ["2147483647x65536x65536", "1048576x16384x16384"] {
        fails_with(&format!("bench --plan {shape}"), 2, &["Use fewer rows"]);
    }
}
