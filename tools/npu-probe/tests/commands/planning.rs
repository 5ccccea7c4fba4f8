// SPDX-License-Identifier: MIT OR Apache-2.0
//! `bench --plan`, and options of planning.

use crate::common::{fails, fails_with, has, json, says, text};
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
    fails(&format!("{plan} --k-tile 1408"), 2);
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
    let ms = |report: &Value, name: &str| report["chosen"][name].as_f64().unwrap();
    // If the CPU limits the call, K is cut less and the call takes longer.
    let k_tiles = |report: &Value| report["chosen"]["k_tiles"].as_u64();
    assert!(k_tiles(&one) <= k_tiles(&many));
    let call = |report: &Value| ms(report, "modelled_call_ms");
    assert!(call(&one) > call(&four) && call(&four) >= call(&many));
    for report in [&one, &four, &many] {
        let [npu, pack, unpack] =
            ["modelled_npu_ms", "modelled_pack_ms", "modelled_unpack_ms"].map(|n| ms(report, n));
        assert!(call(report) >= npu.max(pack + unpack) * 0.99);
        assert!(call(report) < npu + pack + unpack);
        let range = ms(report, "shortest_call_ms")..=ms(report, "likely_call_ms");
        assert!(range.contains(&call(report)));
    }
    says(
        "bench --plan 8x64x64 --cpu-cores 7",
        &["7 CPU cores pack and unpack"],
    );
}

#[test]
fn a_plan_tells_what_weights_take_and_whether_they_fit() {
    let memory = |line: &str| one_plan(line)["memory"].clone();
    // 14336 channels in groups of 32: 150, 149 and 149 groups on the
    // descriptors.
    let plan = "bench --plan 1x4096x14336 --dtype int8";
    let shared = memory(plan);
    let each = [150, 149, 149].map(|groups| groups * 32 * 4096);
    assert_eq!(shared["bytes_per_fd"], Value::from(each.to_vec()));
    assert_eq!(shared["bytes"], 14336 * 4096);
    assert_eq!(shared["fits"], true);
    assert!(shared["bytes_max"].is_null());
    let limit = shared["bytes_per_fd_max"].as_u64().unwrap();
    assert_eq!(shared["fit"], limit / each[0]);

    // The weights take 56 MiB: two fit 112 MiB, none fits 55 MiB.
    let given = |mib: &str| memory(&format!("{plan} --memory {mib}"));
    assert_eq!(given("112")["fit"], 2);
    assert_eq!(given("111")["fit"], 1);
    let refused = given("55");
    assert_eq!(refused["fits"], false);
    assert_eq!(refused["fit"], 0);
    assert_eq!(refused["bytes_per_fd"], shared["bytes_per_fd"]);
    has(refused["why_not"].as_str().unwrap(), &["would take"]);

    // Several descriptors can address what one cannot.
    let large = "bench --plan 1x32768x122880 --dtype int8 --unmeasured --k-tile 4096 --fds";
    let one = memory(&format!("{large} 1"));
    assert_eq!(one["fits"], false);
    assert!(one["bytes_per_fd"].is_null());
    assert_eq!(one["bytes"], 32768_u64 * 122_880);
    let why = one["why_not"].as_str().unwrap();
    has(why, &["use more file descriptors"]);
    assert_eq!(memory(&format!("{large} 2"))["fits"], true);

    let (fits, not) = (text(plan), text(&format!("{plan} --memory 55")));
    let weights = "weights  56.00 MiB: 18.75, 18.62, 18.62 on";
    has(&fits, &[weights, "  fit      "]);
    assert!(!fits.contains("do not"), "{fits}");
    has(&not, &["55 MiB in all", "do not fit"]);
    fails("bench --plan 1x1x1 --memory -1", 2);
    text(&format!("bench --plan 1x1x1 --memory {}", u64::MAX));
}

/// A plan of these would take gigabytes.
#[test]
fn a_matmul_that_no_plan_ends_for_is_refused() {
    for shape in ["2147483647x65536x65536", "1048576x16384x16384"] {
        fails_with(&format!("bench --plan {shape}"), 2, &["Use fewer rows"]);
    }
}
