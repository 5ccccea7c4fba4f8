// SPDX-License-Identifier: MIT OR Apache-2.0
//! `tune`, and what the other commands make of its tables.
#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests: a failed unwrap is a failed test"
)]

mod common;

use std::fs;

use common::{json, probe};
use serde_json::Value;

#[test]
fn plans_are_tuned_and_used() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("plans.json");
    let file = path.to_str().unwrap();
    let shape = ["40x2048x160", "--fds", "3", "--clock", "600"];
    let tune = |more: &[&str]| json(&[&["tune", "--out", file], &shape[..], more].concat());
    let report = tune(&["--dtype", "int8,fp16,int4"]);
    assert!(report["measured"].as_str().unwrap().contains("modelled"));
    assert_eq!(report["tuned_for"]["device"], "model");
    let products = report["products"].as_array().unwrap();
    assert_eq!(products.len(), 3, "{report:#}");
    for product in products {
        let plans = product["plans"].as_array().unwrap();
        assert!(plans.len() > 1, "{product:#}");
        let time = |one: &Value| one["measured_ns"].as_u64().unwrap();
        let best = product["best"].as_u64().unwrap() as usize;
        assert!(plans.iter().all(|one| time(one) >= time(&plans[best])));
        for one in plans {
            // What the model's cores did is what was predicted of them.
            let predicted = one["predicted_ns"].as_u64().unwrap();
            assert!(
                time(one).abs_diff(predicted) * 100 < predicted,
                "{product:#}"
            );
        }
    }

    // By hand, the choice that is not the best.
    let mut table: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let entries = table["plans"].as_array_mut().unwrap();
    assert_eq!(entries.len(), 3);
    let entry = entries
        .iter_mut()
        .find(|entry| entry["dtype"] == "int8")
        .unwrap();
    let plans = products[0]["plans"].as_array().unwrap();
    let best = products[0]["best"].as_u64().unwrap() as usize;
    let other = &plans[if best == 0 { 1 } else { 0 }]["choice"];
    entry["choice"] = other.clone();
    fs::write(&path, table.to_string()).unwrap();
    let planned = |more: &[&str]| {
        let size = ["plan", "40", "2048", "160", "--fds", "3", "--clock", "600"];
        json(&[&size[..], more].concat())
    };
    let measured = planned(&["--plans", file]);
    assert_ne!(measured["chosen"], planned(&[])["chosen"]);
    assert_eq!(measured["chosen"]["tile"][1], other["row_tile"]);
    assert_eq!(measured["measured"]["on"], table["conditions"]);
    let bench = |more: &[&str]| {
        let bench = ["bench", "--dtype", "int8", "--repeat", "1", "--plans", file];
        json(&[&bench[..], more].concat())
    };
    let report = bench(&shape);
    assert_eq!(report["measurements"][0]["plan_from_table"], true);
    assert!(report["conditions"]["plans_not_used"].is_null());
    // Other rows were not measured; at another clock nothing was.
    let report = bench(&["41x2048x160", "--clock", "600"]);
    assert_eq!(report["measurements"][0]["plan_from_table"], false);
    let report = bench(&["40x2048x160", "--clock", "200"]);
    assert_eq!(report["measurements"][0]["plan_from_table"], false);
    let why = report["conditions"]["plans_not_used"].as_str().unwrap();
    assert!(why.contains("600 MHz") && why.contains("200 MHz"), "{why}");
    let elsewhere = json(&["plan", "40", "2048", "160", "--plans", file]);
    assert!(elsewhere["plans_not_used"].is_string() && elsewhere["measured"].is_null());

    // Tuned again, one entry is replaced, and the others stay.
    tune(&["--dtype", "int8"]);
    let again: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    assert_eq!(again["plans"].as_array().unwrap().len(), 3);
    assert_ne!(again, table);
}

#[test]
fn modelled_times_are_called_so_and_bad_tables_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("plans.json");
    let file = path.to_str().unwrap();
    let (code, text, err) = probe(&[
        "tune", "4x64x32", "--dtype", "int8", "--clock", "600", "--out", file,
    ]);
    assert_eq!(code, 0, "{err}");
    assert!(
        text.contains("modelled") && text.contains("An NPU does not"),
        "{text}"
    );
    let refused = |arguments: &[&str], expected| {
        let (code, _, err) = probe(arguments);
        assert_eq!(code, expected, "{arguments:?}: {err}");
        err
    };
    // Not the clock of the file; no table; nowhere to write.
    let why = refused(&["tune", "4x64x32", "--out", file], 2);
    assert!(why.contains("600 MHz"), "{why}");
    refused(&["bench", "4x64x32", "--plans", "/no/such/file"], 2);
    fs::write(&path, "{}").unwrap();
    refused(&["plan", "4", "64", "32", "--plans", file], 2);
    refused(&["tune", "4x64x32", "--out", file], 2);
    refused(
        &["tune", "4x64x32", "--out", "/no/such/folder/plans.json"],
        5,
    );
}
