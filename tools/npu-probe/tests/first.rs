// SPDX-License-Identifier: MIT OR Apache-2.0
//! `npu-probe first` on models that play boards on which something does not work, and
//! `explain` of the archives alone.
#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests: a failed unwrap is a failed test"
)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

/// A model that plays a board, and where its owner keeps files.
struct Board {
    device: String,
    home: TempDir,
}

impl Board {
    fn new(device: &str) -> Self {
        Self {
            device: device.to_owned(),
            home: tempfile::tempdir().unwrap(),
        }
    }

    fn run(&self, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_npu-probe"))
            .args(arguments)
            .current_dir(self.home.path())
            .env("ROCKET_DEVICE", &self.device)
            .env("XDG_CONFIG_HOME", self.home.path())
            .env_remove("ROCKET_PROFILE")
            .output()
            .unwrap()
    }

    fn json(&self, arguments: &[&str], code: i32) -> Value {
        let output = self.run(arguments);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(
            output.status.code(),
            Some(code),
            "{}: {errors}",
            self.device
        );
        serde_json::from_slice(&output.stdout).unwrap()
    }

    fn archive(&self) -> PathBuf {
        let files = fs::read_dir(self.home.path().join("npu-evidence")).unwrap();
        let mut files = files.map(|entry| entry.unwrap().path());
        files
            .find(|file| file.extension().is_some_and(|end| end == "gz"))
            .unwrap()
    }

    fn profile(&self) -> Option<Value> {
        let text = fs::read(self.home.path().join("rocket-npu/profile.json")).ok()?;
        Some(serde_json::from_slice(&text).unwrap())
    }
}

fn causes(report: &Value) -> Vec<&str> {
    let causes = report["causes"].as_array().unwrap();
    causes
        .iter()
        .map(|one| one["name"].as_str().unwrap())
        .collect()
}

/// One board: its model, the exit code, the verdict, the only cause if there is one, and
/// the side of a contested fact that is found with it.
type Case = (
    &'static str,
    i32,
    &'static str,
    Option<&'static str>,
    Option<&'static str>,
);

const CASES: [Case; 10] = [
    ("model", 0, "works", None, None),
    (
        "model:core-idle-mainline=hangs",
        0,
        "works",
        Some("form-a"),
        Some("core-idle-mainline=hangs"),
    ),
    (
        // The first register that hangs the parent's program leaves no core to try others.
        "model:core-idle-mainline=hangs,wedge=until-power-cycle",
        0,
        "works",
        Some("form-a"),
        Some("core-idle-mainline=hangs"),
    ),
    (
        "model:int8-reuse=garbage",
        0,
        "works",
        Some("int8-reuse"),
        Some("int8-reuse=garbage"),
    ),
    (
        "model:weight-room=all",
        0,
        "works-without",
        Some("fp16-streams"),
        Some("weight-room=all"),
    ),
    (
        "model:program-at-zero=hangs",
        0,
        "works",
        Some("program-at-zero"),
        Some("program-at-zero=hangs"),
    ),
    (
        "model:over-read=bank",
        0,
        "works",
        Some("no-slack"),
        Some("over-read=bank"),
    ),
    (
        "model:int8-slack-bank=needed",
        0,
        "works-without",
        Some("int8-exact-banks"),
        Some("int8-slack-bank=needed"),
    ),
    ("model:cores=2", 0, "works-without", Some("cores"), None),
    // No job has the time that it takes.
    (
        "model:job-limit=1,clock=1",
        1,
        "does-not-work",
        Some("depthwise"),
        None,
    ),
];

#[test]
fn each_board_is_told_its_cause_and_no_other() {
    if test_support::emulated() {
        println!("SKIP each_board_is_told_its_cause_and_no_other: the emulator starts no others");
        return;
    }
    // Each spends most of its time waiting for a process.
    let (some, others) = CASES.split_at(CASES.len() / 2);
    std::thread::scope(|scope| {
        scope.spawn(|| some.iter().copied().for_each(told));
        others.iter().copied().for_each(told);
    });
}

/// Looks at one board.
fn told((device, code, verdict, cause, side): Case) {
    let board = Board::new(device);
    let report = board.json(&["first", "--json"], code);
    assert_eq!(report["verdict"], verdict, "{device}: {report:#}");
    assert_eq!(
        causes(&report),
        cause.into_iter().collect::<Vec<_>>(),
        "{device}"
    );
    if let Some(side) = side {
        assert_eq!(
            report["causes"][0]["as_model_with"],
            serde_json::json!([side])
        );
    }
    // The archive alone says the same.
    let archive = board.archive();
    assert!(fs::metadata(&archive).unwrap().len() < 4 << 20, "{device}");
    let explained = board.json(&["explain", "--json", archive.to_str().unwrap()], code);
    assert_eq!(explained, report, "{device}");
    // Where something is to be kept away from, the profile does, and is used.
    let changes = verdict == "works-without" && cause != Some("cores");
    assert_eq!(board.profile().is_some(), changes, "{device}");
    if code == 0 {
        for dtype in ["int8", "fp16"] {
            let shape = "64x512x1024";
            let line = ["--json", "--dtype", dtype, "--shape", shape, "--fds", "3"];
            assert_eq!(board.json(&line, 0)["result"], "PASS", "{device}, {dtype}");
        }
    }
}

#[test]
fn the_registers_that_make_the_difference_are_named() {
    if test_support::emulated() {
        return;
    }
    let board = Board::new("model:core-idle-mainline=hangs");
    let report = board.json(&["first", "--json"], 0);
    let registers = report["causes"][0]["registers"].as_array().unwrap();
    let named = registers.iter().map(|one| one.as_str().unwrap());
    assert!(
        named
            .clone()
            .any(|one| one.contains("OPERATION_ENABLE 0x1d -> 0xd")),
        "{registers:?}"
    );
    assert!(named.clone().count() <= 2, "{registers:?}");
}

/// Results of a rung that took the machine down are judged without it, and it is not run
/// again.
#[test]
fn a_reboot_goes_on_behind_the_culprit() {
    if test_support::emulated() {
        return;
    }
    let board = Board::new("model");
    board.json(&["first", "--json"], 0);
    let folder = board.home.path().join("npu-evidence");
    let state: Value =
        serde_json::from_slice(&fs::read(folder.join("state.json")).unwrap()).unwrap();
    let mut down = state.clone();
    down["steps"]["rung-fp16-streams"] =
        serde_json::json!({ "outcome": "begun", "boot": "another" });
    for later in ["rung-int8-streams", "rung-int8-full", "rung-tasks"] {
        down["steps"].as_object_mut().unwrap().remove(later);
    }
    fs::write(folder.join("state.json"), down.to_string()).unwrap();
    fs::remove_file(folder.join("rung-fp16-streams.json")).unwrap();
    let report = board.json(&["first", "--json"], 0);
    assert_eq!(causes(&report), ["fp16-streams"]);
    assert_eq!(report["rungs"]["fp16-streams"]["state"], "died");
    assert_eq!(report["rungs"]["int8-streams"]["state"], "not_run");
    assert_eq!(report["rungs"]["tasks"]["state"], "passed");
    assert!(!folder.join("rung-fp16-streams.json").exists());
    let profile = board.profile().unwrap();
    assert!(
        !profile["profile"].to_string().contains("4096"),
        "{profile:#}"
    );
}

#[test]
fn what_is_no_archive_is_told() {
    let board = Board::new("model");
    for (name, content) in [("x.tar.gz", &b"no archive"[..]), ("empty.tar.gz", b"")] {
        fs::write(board.home.path().join(name), content).unwrap();
        let output = board.run(&["explain", name]);
        assert_eq!(output.status.code(), Some(2));
        assert!(String::from_utf8_lossy(&output.stderr).contains(name));
    }
    let missing = board.run(&["explain", Path::new("missing").to_str().unwrap()]);
    assert_eq!(missing.status.code(), Some(2));
}
