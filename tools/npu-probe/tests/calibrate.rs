// SPDX-License-Identifier: MIT OR Apache-2.0
//! `npu-probe calibrate` on software models, and what the other commands make of the
//! profile.
#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests: a failed unwrap is a failed test"
)]

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use rknpu_regcmd::timing::Machine;
use serde_json::Value;

/// Where profiles are looked for.
#[derive(Clone, Copy)]
enum Place<'a> {
    Named(&'a Path),
    UsersFolder(&'a Path),
}

/// Exit code, standard output and error.
fn run(device: &str, place: Place<'_>, line: &str) -> (i32, String, String) {
    let mut program = test_support::program(env!("CARGO_BIN_EXE_npu-probe"));
    let program = match place {
        Place::Named(file) => program.env("ROCKET_PROFILE", file),
        Place::UsersFolder(folder) => {
            let program = program.env_remove("ROCKET_PROFILE");
            program.env("XDG_CONFIG_HOME", folder)
        }
    };
    let output = program
        .args(line.split(' '))
        .env("ROCKET_DEVICE", device)
        .env_remove("RUST_LOG")
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let code = output.status.code().unwrap();
    (code, text(output.stdout), text(output.stderr))
}

fn json(device: &str, place: Place<'_>, line: &str) -> Value {
    let (code, out, err) = run(device, place, &format!("{line} --json"));
    assert_eq!(code, 0, "{line}: {err}");
    serde_json::from_str(&out).unwrap()
}

#[test]
fn a_model_is_found_as_it_is_and_planned_for() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("profile.json");
    let none = Place::UsersFolder(folder.path());
    for (mhz, cores) in [(200, 3), (350, 3), (600, 1)] {
        let device = format!("model:clock={mhz},cores={cores},tf32-operand=nearest");
        let line = format!("calibrate --out {}", file.display());
        let report = json(&device, none, &line);
        let profile = &report["profile"];
        assert_eq!(profile["machine"]["clock_hz"], mhz * 1_000_000);
        assert_eq!(profile["machine"]["dram"]["core_bytes_per_clock"], 8);
        assert_eq!(profile["board"]["is_model"], true);
        // What the model has: rocket under mainline Linux.
        let driver = Machine::RK3588.driver;
        for (cost, true_ps) in [
            ("submit_ps", driver.submit_ps),
            ("attach_ps", driver.attach_ps),
            ("kick_ps", driver.kick_ps),
            ("wake_ps", driver.wake_ps),
        ] {
            let found = profile["machine"]["driver"][cost].as_u64().unwrap();
            assert!(found.abs_diff(true_ps) * 100 <= true_ps, "{cost}: {found}");
        }
        let facts = profile["facts"].as_array().unwrap();
        let tf32 = facts.iter().find(|fact| fact["id"] == "tf32-operand");
        assert_eq!(tf32.unwrap()["verdict"], "nearest");
        assert!(
            facts
                .iter()
                .all(|fact| fact["sentence"].as_str().unwrap().ends_with('?'))
        );

        // The same again.
        let first = fs::read_to_string(&file).unwrap();
        assert_eq!(
            serde_json::from_str::<Value>(&first).unwrap()["profile"],
            *profile
        );
        json(&device, none, &line);
        assert_eq!(fs::read_to_string(&file).unwrap(), first);

        let bench = "bench 64x512x256 --dtype int8,int4 --repeat 1";
        let bench = json(&device, Place::Named(&file), bench);
        assert_eq!(bench["conditions"]["clock_mhz"], mhz);
        assert_eq!(bench["conditions"]["profile"], profile["name"]);
        let plan = json(&device, Place::Named(&file), "plan 64x512x256 --fds 3");
        assert_eq!(plan["clock_mhz"], mhz);
        let other = json(&device, Place::Named(&file), "plan 64x512x256 --clock 900");
        assert_eq!(other["clock_mhz"], 900);
    }
}

#[test]
fn another_boards_profile_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let users = Place::UsersFolder(folder.path());
    let device = "model:clock=600";
    let (code, out, err) = run(device, users, "calibrate");
    assert_eq!(code, 0, "{err}");
    assert!(err.contains("600 MHz"), "{err}");
    let file = folder.path().join("rocket-npu/profile.json");
    assert!(out.contains(&file.display().to_string()), "{out}");
    assert_eq!(json(device, users, "plan 4x64x32")["clock_mhz"], 600);

    let mut other: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    other["profile"]["name"] = "the neighbour's".into();
    other["profile"]["board"]["board"] = "Another Board".into();
    fs::write(&file, other.to_string()).unwrap();
    let plan = json(device, users, "plan 4x64x32");
    assert_eq!(plan["clock_mhz"], 200);
    assert_eq!(plan["profile"], "RK3588, mainline, 200 MHz, unmeasured");
    let why = plan["profile_refused"].as_str().unwrap();
    assert!(
        why.contains("the neighbour's") && why.contains("Another Board"),
        "{why}"
    );
    let bench = json(device, users, "bench 4x64x32 --dtype int8 --repeat 1");
    assert_eq!(
        bench["conditions"]["profile_refused"],
        plan["profile_refused"]
    );

    let info = json(device, users, "info");
    assert_eq!(info["profile_refused"], plan["profile_refused"]);
    assert_eq!(info["profile"], plan["profile"]);

    fs::write(&file, "{}").unwrap();
    let plan = json(device, users, "plan 4x64x32");
    let why = plan["profile_refused"].as_str().unwrap();
    assert!(why.contains("not a board profile"), "{why}");
    let missing = folder.path().join("missing.json");
    let plan = json(device, Place::Named(&missing), "plan 4x64x32");
    let why = plan["profile_refused"].as_str().unwrap();
    assert!(why.contains("missing.json"), "{why}");
    // Calibrating again mends it.
    json(device, users, "calibrate");
    assert!(json(device, users, "plan 4x64x32")["profile_refused"].is_null());
}

/// If memory limits every task, the clock is unknown.
#[test]
fn a_clock_that_memory_hides_is_told_as_the_least() {
    let folder = tempfile::tempdir().unwrap();
    let users = Place::UsersFolder(folder.path());
    for (mhz, hidden) in [(600, false), (1000, true)] {
        let device = format!("model:clock={mhz}");
        let (code, _, err) = run(&device, users, "calibrate");
        assert_eq!(code, 0, "{err}");
        assert_eq!(err.contains("lower bound"), hidden, "{err}");
    }
}

/// What was measured before the process was killed is in the file, which is whole.
#[test]
fn a_kill_loses_no_part_that_has_ended() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("profile.json");
    let mut child = test_support::program(env!("CARGO_BIN_EXE_npu-probe"))
        .args(["calibrate", "--out", file.to_str().unwrap()])
        .env("ROCKET_DEVICE", "model:clock=350")
        .env("XDG_CONFIG_HOME", folder.path())
        .env_remove("ROCKET_PROFILE")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // The machine first, then one fact after the other.
    let profile = loop {
        let ended = child.try_wait().unwrap();
        if let Ok(text) = fs::read(&file) {
            let profile: Value = serde_json::from_slice(&text).unwrap();
            assert_eq!(profile["profile"]["measured"], true);
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
    let facts = |profile: &Value| {
        let facts = profile["profile"]["facts"].as_array().unwrap().clone();
        facts
            .into_iter()
            .map(|fact| fact["id"].clone())
            .collect::<Vec<_>>()
    };
    let left: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    assert!(facts(&left).starts_with(&facts(&profile)));
    let plan = json("model:clock=350", Place::Named(&file), "plan 4x64x32");
    assert_eq!(plan["clock_mhz"], 350);
}

#[test]
fn a_profile_that_cannot_be_written_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let in_a_file = folder.path().join("file");
    fs::write(&in_a_file, "").unwrap();
    let users = Place::UsersFolder(&in_a_file);
    let (code, _, err) = run("model", users, "calibrate");
    assert_eq!(code, 5, "{err}");
    let (code, _, err) = run("model", users, "calibrate 4x64");
    assert_eq!(code, 2, "{err}");
}

/// The page has each fact with its question.
#[test]
fn the_page_explains_every_fact() {
    let folder = tempfile::tempdir().unwrap();
    let report = json(
        "model",
        Place::UsersFolder(folder.path()),
        "calibrate --facts all",
    );
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/profile.md");
    let page = fs::read_to_string(page).unwrap();
    for fact in report["facts"].as_array().unwrap() {
        let [name, question] = ["name", "question"].map(|field| fact[field].as_str().unwrap());
        let row = format!("| `{name}` | {question} |");
        assert!(page.contains(&row), "docs/profile.md lacks\n{row}");
    }
}
