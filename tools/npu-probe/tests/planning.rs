// SPDX-License-Identifier: MIT OR Apache-2.0
//! What plans are made for: the options that `plan` and `bench` share.
#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests: a failed unwrap is a failed test"
)]

mod common;

use common::{json_of as json, probe, text};
use serde_json::Value;

#[test]
fn plans_are_for_weights_of_a_depth() {
    let sizes = ["plan", "512x4096x4096", "--dtype", "int4"];
    let any = json(&sizes.join(" "));
    assert_eq!(
        (&any["int4_depth"], &any["chosen"]["k_tiles"]),
        (&384.into(), &11.into())
    );
    assert!(text(&sizes).contains("K tiles of 384 at most, safe for any int4 weights"));
    // Three even tiles of at most 2016 channels.
    let deep = json(&[&sizes[..], &["--int4-depth", "2016"]].concat().join(" "));
    assert_eq!(deep["int4_depth"], 1408);
    assert_eq!(deep["chosen"]["k_tiles"], 3);
    let said = text(&[&sizes[..], &["--int4-depth", "2016"]].concat());
    assert!(said.contains("K tiles of 1408 at most\n"), "{said}");
    // As deep as asked for, which other weights refuse.
    for (depth, code) in [("480", 2), ("1408", 0)] {
        let forced = [&sizes[..], &["--k-tile", "1408", "--int4-depth", depth]].concat();
        assert_eq!(probe(&forced).0, code);
    }
    assert!(json("plan 8x64x64")["int4_depth"].is_null());
    assert_eq!(probe(&[&sizes[..], &["--int4-depth", "0"]].concat()).0, 2);
}

#[test]
fn a_plan_for_a_depth_is_what_runs() {
    for depth in ["", " --int4-depth 1100", " --int4-depth 512"] {
        let bench = json(&format!(
            "bench 8x2048x96 --dtype int4 --repeat 1 --clock 600{depth}"
        ));
        let bench = &bench["measurements"][0];
        // What the random weights allow, if nothing is asked.
        let of_plan = if depth.is_empty() {
            " --int4-depth 768"
        } else {
            depth
        };
        let plan = json(&format!("plan 8x2048x96 --dtype int4 --clock 600{of_plan}"));
        assert_eq!(bench["plan"], plan["chosen"]["plan"], "{depth}");
    }
}

#[test]
fn halves_are_measured_and_checked() {
    let report = json("bench 8x64x96 --dtype fp16,int8 --repeat 1 --half-results");
    let [halves, int8] = report["measurements"].as_array().unwrap().as_slice() else {
        panic!("two products: {report:#}");
    };
    assert_eq!(
        (&halves["results"], &int8["results"]),
        (&"halves".into(), &"sums".into())
    );
    // C, 8 x 96 of two bytes.
    assert_eq!(halves["bytes_from_device"], 8.0 * 96.0 * 2.0);
    let said = text(&["bench", "8x64x96", "--dtype", "fp16", "--half-results"]);
    assert!(said.contains("fp16 to binary16 8x64x96"), "{said}");
    // Where K is cut the CPU rounds.
    json("bench 4x40000x16 --dtype fp16 --repeat 1 --half-results");
}

#[test]
fn the_cpus_time_decides_over_cuts() {
    let at = |more: &str| json(&format!("plan 512x4096x4096 --clock 600{more}"));
    let [one, four, many] = [" --cpu-cores 1", "", " --cpu-cores 64"].map(at);
    assert_eq!(four, at(" --cpu-cores 4"));
    let ms = |report: &Value, name: &str| report["chosen"][name].as_f64().unwrap();
    // What the CPU needs longer for is cut less, and takes the call longer.
    let k_tiles = |report: &Value| report["chosen"]["k_tiles"].as_u64();
    assert!(k_tiles(&one) <= k_tiles(&many));
    let call = |report: &Value| ms(report, "modelled_call_ms");
    assert!(call(&one) > call(&four) && call(&four) >= call(&many));
    for report in [&one, &four, &many] {
        let [npu, pack, unpack] =
            ["modelled_npu_ms", "modelled_pack_ms", "modelled_unpack_ms"].map(|n| ms(report, n));
        assert!(call(report) >= npu.max(pack + unpack) * 0.99);
        assert!(call(report) < npu + pack + unpack);
    }
    let said = text(&["plan", "8x64x64", "--cpu-cores", "7"]);
    assert!(said.contains("7 CPU cores pack and unpack"), "{said}");
}

#[test]
fn all_commands_assume_the_same_clock() {
    assert_eq!(json("plan 8x64x64")["clock_mhz"], 200);
    let report = json("bench 8x64x64 --dtype int8 --repeat 1");
    assert_eq!(report["conditions"]["clock_mhz"], 200);
}

#[test]
fn a_plan_tells_what_weights_take_and_whether_they_fit() {
    let memory = |line: &str| json(line)["memory"].clone();
    // 14336 channels in groups of 32: 150, 149 and 149 on each descriptor.
    let plan = "plan 1x4096x14336 --dtype int8";
    let shared = memory(plan);
    let each = [150, 149, 149].map(|groups| groups * 32 * 4096);
    assert_eq!(shared["bytes_per_fd"], Value::from(each.to_vec()));
    assert_eq!(shared["bytes"], 14336 * 4096);
    assert_eq!(
        (&shared["fits"], &shared["bytes_max"]),
        (&true.into(), &Value::Null)
    );
    let limit = shared["bytes_per_fd_max"].as_u64().unwrap();
    assert_eq!(shared["fit"], limit / each[0]);

    // 56 MiB; two of them in 112, none in 55.
    let given = |mib: &str| memory(&format!("{plan} --memory {mib}"));
    assert_eq!(
        (&given("112")["fit"], &given("111")["fit"]),
        (&2.into(), &1.into())
    );
    let refused = given("55");
    assert_eq!(
        (&refused["fits"], &refused["fit"]),
        (&false.into(), &0.into())
    );
    assert_eq!(refused["bytes_per_fd"], shared["bytes_per_fd"]);
    assert!(refused["why_not"].as_str().unwrap().contains("would take"));

    // What one descriptor cannot address beside its buffers, several can.
    let large = "plan 1x32768x122880 --dtype int8 --k-tile 4096 --fds";
    let one = memory(&format!("{large} 1"));
    assert_eq!(
        (&one["fits"], &one["bytes_per_fd"]),
        (&false.into(), &Value::Null)
    );
    assert_eq!(one["bytes"], 32768_u64 * 122_880);
    assert!(
        one["why_not"]
            .as_str()
            .unwrap()
            .contains("use more file descriptors")
    );
    assert_eq!(memory(&format!("{large} 2"))["fits"], true);

    let said = |more: &[&str]| {
        let plan = ["plan", "1x4096x14336", "--dtype", "int8"];
        text(&[&plan[..], more].concat())
    };
    let (fits, not) = (said(&[]), said(&["--memory", "55"]));
    assert!(
        fits.contains("weights  56.00 MiB: 18.75, 18.62, 18.62 on"),
        "{fits}"
    );
    assert!(
        fits.contains("  fit      ") && !fits.contains("do not"),
        "{fits}"
    );
    assert!(
        not.contains("55 MiB in all") && not.contains("do not fit"),
        "{not}"
    );
    assert_eq!(probe(&["plan", "1x1x1", "--memory", "-1"]).0, 2);
    text(&["plan", "1x1x1", "--memory", &u64::MAX.to_string()]);
}

/// A plan of these would take gigabytes, and its words no end.
#[test]
fn a_product_that_no_plan_ends_for_is_refused() {
    for shape in ["2147483647x65536x65536", "1048576x16384x16384"] {
        let (code, _, said) = probe(&["plan", shape]);
        assert_eq!(code, 2, "{said}");
        assert!(said.contains("Use fewer rows"), "{said}");
    }
}
