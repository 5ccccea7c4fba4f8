// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests the page with malformed and hostile files.

use proptest::prelude::*;
use rknpu_regcmd::timing::Machine;
use serde_json::{Value, json};

use super::input::{ReportInput, content};
use super::page;
use super::text::shown;

/// The page of these files; checks that it is well-formed XML.
fn page_of(files: &[Value]) -> String {
    let read = |file: &Value| ReportInput {
        name: shown(HOSTILE),
        written: std::time::UNIX_EPOCH,
        content: content(file.to_string().as_bytes()).unwrap(),
    };
    let inputs: Vec<ReportInput> = files.iter().map(read).collect();
    let text = page(&inputs);
    let options = roxmltree::ParsingOptions {
        allow_dtd: true,
        ..Default::default()
    };
    let document = roxmltree::Document::parse_with_options(&text, options).unwrap();
    for element in document.descendants().filter(|node| node.is_element()) {
        let name = element.tag_name().name();
        assert!(!["script", "b", "img", "a"].contains(&name), "{name}");
        for attribute in element.attributes() {
            assert!(!attribute.name().starts_with("on"), "{attribute:?}");
        }
    }
    text
}

const HOSTILE: &str = "</style></title><script>alert(1)</script>\" onload='x' <b>&amp;\0\u{1b}[2J\u{202e}\u{ffff}]]>-->";

fn device() -> Value {
    json!({
        "name": HOSTILE, "is_model": false, "driver": HOSTILE, "driver_version": HOSTILE,
        "cores": 3, "description": HOSTILE, "why": [HOSTILE], "host": { "kernel": HOSTILE, "board": HOSTILE, "architecture": HOSTILE },
    })
}

fn bench(number: f64) -> Value {
    json!({
        "conditions": {
            "version": HOSTILE, "build": HOSTILE, "device": device(), "time_of": HOSTILE, "profile": HOSTILE,
            "clock_mhz": 200, "fds": 3, "threads": HOSTILE, "profile_refused": HOSTILE,
            "cpu": HOSTILE, "cpus": 2, "load_average": number,
            "machine": Machine::RK3588,
        },
        "measurements": [{
            "dtype": "int8", "results": "sums", "plan": HOSTILE, "products": 1,
            "m": usize::MAX, "k": 1, "n": 1, "submits": number, "tasks": number,
            "bytes_to_device": number, "bytes_from_device": number, "cache_bytes": number,
            "cache_bytes_needed": 1, "bytes_of_weights": 1, "load_ms": number,
            "wall_ms": { "best": number, "median": number, "worst": number },
            "cpu_ms": number, "gops": number, "modelled_npu_ms": number, "modelled_gops": number,
            "bound_ms": number, "bound_by": HOSTILE, "share_of_bound": number,
            "modelled_share_of_bound": number, "operations_per_byte": number,
        }],
    })
}

fn slice(track: u64, from: f64, us: f64, name: &str) -> Value {
    json!({ "name": name, "cat": name, "ph": "X", "pid": 1, "tid": track, "ts": from, "dur": us })
}

#[test]
fn contents_of_files_are_escaped() {
    let files = [
        bench(1.0),
        json!({ "version": HOSTILE, "usable_node": HOSTILE, "rows": [
            { "topic": HOSTILE, "state": "problem", "found": HOSTILE, "remedy": HOSTILE },
        ] }),
        json!({ "settled": true, "version": HOSTILE, "device": device(), "facts": [
            { "name": HOSTILE, "question": HOSTILE, "outcome": "not_run", "reason": HOSTILE },
        ] }),
        json!({ "result": "FAIL", "device": device(), "time_of": HOSTILE,
            "problem": {
                "dtype": HOSTILE, "m": 1, "k": 1, "n": 1, "seed": 1, "fds": 1, "plan": HOSTILE,
            },
            "program": { "jobs": 1, "tasks": 1, "words": 1 },
            "runs": [{
                "wall_us": 1.0,
                "comparison": { "elements": 1, "different": 0, "first": [] },
            }],
        }),
        json!([
            { "ph": "M", "name": "process_name", "pid": 1, "args": { "name": HOSTILE } },
            { "ph": "M", "name": "thread_name", "pid": 1, "tid": 1, "args": { "name": HOSTILE } },
            { "ph": "X", "name": HOSTILE, "cat": "matmul", "pid": 1, "tid": 1, "ts": 0, "dur": 5,
              "args": { "precision": HOSTILE, "rows": 1, "k": 2, "n": 3 } },
        ]),
    ];
    let page = page_of(&files);
    assert!(page.matches("&lt;script&gt;").count() > 20);
    assert!(!page.contains(|c: char| (c.is_control() && c != '\n') || c == '\u{202e}'));
    assert!(page.contains("MEASURED on an NPU") || page.contains("MIXED"));
}

#[test]
fn figures_of_the_software_model_are_called_so() {
    let mut model = bench(1.0);
    assert!(page_of(&[model.clone()]).contains(">MEASURED on an NPU"));
    model["conditions"]["device"]["is_model"] = true.into();
    let page = page_of(&[model.clone()]);
    assert!(page.contains(">NOT MEASURED ON AN NPU") && page.contains("no NPU</span>"));
    // Wall times of the software model are not points of the roofline.
    assert_eq!(page.matches("<circle").count(), 1);
    assert!(page_of(&[model, bench(1.0)]).contains(">MIXED"));
}

#[test]
fn a_long_trace_makes_a_page_of_bounded_length() {
    let kinds = [
        "graph", "matmul", "pack", "submit", "wait", "unpack", "compute", "job", "x",
    ];
    let mut events = Vec::new();
    for index in 0..60_000_u64 {
        let kind = kinds[index as usize % kinds.len()];
        events.push(slice(index % 70, index as f64 * 10.0, 4.0, kind));
    }
    let page = page_of(&[Value::Array(events)]);
    assert!(page.len() < 1 << 20, "{} bytes", page.len());
    assert!(page.contains("slices of this trace are left out"));
    assert!(page.contains("44 more threads are left out"));
}

#[test]
fn many_rows_are_cut_and_counted() {
    let mut long = bench(1.0);
    let one = long["measurements"][0].clone();
    long["measurements"] = vec![one; 700].into();
    assert!(page_of(&[long]).contains("200 more rows are left out."));
}

proptest! {
    #![proptest_config(test_support::cases(64))]

    #[test]
    fn numbers_of_any_size_make_a_page(number in any::<f64>()) {
        prop_assume!(number.is_finite());
        let page = page_of(&[bench(number)]);
        prop_assert!(!page.contains("NaN") && !page.contains("inf\""), "{}", page);
    }

    #[test]
    fn traces_of_any_events_make_a_page(
        events in prop::collection::vec((0..30_u64, any::<f64>(), any::<f64>(), "\\PC{0,40}"), 0..40)
    ) {
        let finite = |value: f64| if value.is_finite() { value } else { 0.0 };
        let events = events.iter().map(|(track, from, us, name)| slice(*track, finite(*from), finite(*us), name));
        let page = page_of(&[Value::Array(events.collect())]);
        prop_assert!(!page.contains("NaN"), "{}", page);
    }
}
