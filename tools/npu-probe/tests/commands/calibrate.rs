// SPDX-License-Identifier: MIT OR Apache-2.0
//! `npu-probe calibrate` on software models, and the use of the profile by other
//! commands.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::common::{command, ends, has, json_of, read_json};
use rknpu_regcmd::timing::Machine;
use serde_json::Value;

/// Variables that place the profile: a file, and the user's folder.
const NAMED: &str = "ROCKET_PROFILE";
const USERS: &str = "XDG_CONFIG_HOME";

fn on(device: &str, (variable, path): (&str, &Path), line: &str) -> Command {
    let mut command = command(line);
    command.env("ROCKET_DEVICE", device).env(variable, path);
    command
}

#[track_caller]
fn json(device: &str, place: (&str, &Path), line: &str) -> Value {
    json_of(on(device, place, line), 0)
}

/// The report of a plan for INT8.
#[track_caller]
fn planned(device: &str, place: (&str, &Path), line: &str) -> Value {
    let report = json(device, place, &format!("bench --plan --dtype int8 {line}"));
    report["plans"][0].clone()
}

#[test]
fn a_model_is_found_as_it_is_and_planned_for() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("profile.json");
    let none = (USERS, folder.path());
    for (mhz, cores) in [(200, 3), (350, 3), (600, 1)] {
        let device = format!("model:clock={mhz},cores={cores},tf32-operand=nearest");
        let line = format!("calibrate --profile {}", file.display());
        let report = json(&device, none, &line);
        let profile = &report["profile"];
        assert_eq!(profile["machine"]["clock_hz"], mhz * 1_000_000);
        assert_eq!(profile["machine"]["dram"]["core_bytes_per_clock"], 8);
        assert_eq!(profile["board"]["is_model"], true);
        // The model's costs are those of rocket in mainline Linux.
        let driver = serde_json::to_value(Machine::RK3588.driver).unwrap();
        for (cost, true_ps) in driver.as_object().unwrap() {
            let costs = [&profile["machine"]["driver"][cost], true_ps];
            let [found, true_ps] = costs.map(|ps| ps.as_u64().unwrap());
            assert!(found.abs_diff(true_ps) * 100 <= true_ps, "{cost}: {found}");
        }
        let facts = profile["facts"].as_array().unwrap();
        let tf32 = facts.iter().find(|fact| fact["id"] == "tf32-operand");
        assert_eq!(tf32.unwrap()["verdict"], "nearest");
        let is_question = |fact: &Value| fact["sentence"].as_str().unwrap().ends_with('?');
        assert!(facts.iter().all(is_question));

        // Nothing was measured on a board.
        assert_eq!(profile["measured"], true);
        let name = profile["name"].as_str().unwrap();
        assert!(name.ends_with(", modelled") && name.contains("software model"));

        // A second run gives the same profile.
        let first = fs::read(&file).unwrap();
        assert_eq!(read_json(&file)["profile"], *profile);
        json(&device, none, &line);
        assert_eq!(fs::read(&file).unwrap(), first);

        let bench = "bench 64x512x256 --dtype int8,int4 --repeat 1";
        let bench = json(&device, (NAMED, &*file), bench);
        assert_eq!(bench["conditions"]["clock_mhz"], mhz);
        assert_eq!(bench["conditions"]["profile"], profile["name"]);
        let plan = planned(&device, (NAMED, &*file), "64x512x256 --fds 3");
        assert_eq!(plan["clock_mhz"], mhz);
        let other = planned(&device, (NAMED, &*file), "64x512x256 --clock 900");
        assert_eq!(other["clock_mhz"], 900);
    }
}

#[test]
fn another_boards_profile_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let users = (USERS, folder.path());
    let device = "model:clock=600";
    let (out, err) = ends(&mut on(device, users, "calibrate"), 0);
    has(&err, &["600 MHz"]);
    let file = folder.path().join("rocket-npu/profile.json");
    has(&out, &[file.to_str().unwrap()]);
    assert_eq!(planned(device, users, "4x64x32")["clock_mhz"], 600);

    let mut other = read_json(&file);
    other["profile"]["name"] = "the neighbour's".into();
    other["profile"]["board"]["board"] = "Another Board".into();
    fs::write(&file, other.to_string()).unwrap();
    let refused = |place, parts: &[&str]| {
        let plan = planned(device, place, "4x64x32");
        has(plan["profile_refused"].as_str().unwrap(), parts);
        plan
    };
    let plan = refused(users, &["the neighbour's", "Another Board"]);
    assert_eq!(plan["clock_mhz"], 200);
    assert_eq!(plan["profile"], "RK3588, mainline, 200 MHz, unmeasured");
    let bench = json(device, users, "bench 4x64x32 --dtype int8 --repeat 1");
    assert_eq!(
        bench["conditions"]["profile_refused"],
        plan["profile_refused"]
    );

    fs::write(&file, "{}").unwrap();
    refused(users, &["not a board profile"]);
    refused(
        (NAMED, &*folder.path().join("missing.json")),
        &["missing.json"],
    );
    // A new calibration replaces the broken file.
    json(device, users, "calibrate");
    assert!(planned(device, users, "4x64x32")["profile_refused"].is_null());
}

/// If memory limits every task, the clock is unknown.
#[test]
fn a_clock_that_memory_hides_is_told_as_the_least() {
    let folder = tempfile::tempdir().unwrap();
    let users = (USERS, folder.path());
    for (mhz, hidden) in [(600, false), (1000, true)] {
        let device = format!("model:clock={mhz}");
        let (_, err) = ends(&mut on(&device, users, "calibrate"), 0);
        assert_eq!(err.contains("lower bound"), hidden, "{err}");
    }
}

/// A kill leaves a complete file with all that was measured before, which says that parts lack.
#[test]
fn a_kill_loses_no_part_that_has_ended() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("profile.json");
    let line = format!("calibrate --profile {}", file.display());
    let users = (USERS, folder.path());
    let mut child = on("model:clock=350", users, &line)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // The machine is measured first, then one fact after another.
    let profile = loop {
        let ended = child.try_wait().unwrap();
        if file.exists() {
            let profile = read_json(&file);
            assert_eq!(profile["profile"]["measured"], false);
            let name = profile["profile"]["name"].as_str().unwrap();
            has(name, &["calibration not complete"]);
            assert_eq!(profile["profile"]["machine"]["clock_hz"], 350_000_000);
            if profile["profile"]["facts"].as_array().unwrap().len() >= 3 {
                break profile;
            }
        }
        assert!(ended.is_none(), "it ended before it was killed");
        thread::sleep(Duration::from_millis(1));
    };
    child.kill().unwrap();
    assert!(!child.wait().unwrap().success());
    let facts = |profile: &Value| -> Vec<Value> {
        let facts = profile["profile"]["facts"].as_array().unwrap().iter();
        facts.map(|fact| fact["id"].clone()).collect()
    };
    assert!(facts(&read_json(&file)).starts_with(&facts(&profile)));
    let plan = planned("model:clock=350", (NAMED, &*file), "4x64x32");
    assert_eq!(plan["clock_mhz"], 350);
}

#[test]
fn a_profile_that_cannot_be_written_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let in_a_file = folder.path().join("file");
    fs::write(&in_a_file, "").unwrap();
    let users = (USERS, &*in_a_file);
    ends(&mut on("model", users, "calibrate"), 5);
    ends(&mut on("model", users, "calibrate 4x64"), 2);
}
