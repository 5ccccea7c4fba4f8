// SPDX-License-Identifier: MIT OR Apache-2.0
//! `npu-probe evidence` on the model, with programs that replace others.

use std::collections::BTreeMap;
use std::fs::{self, File, Permissions};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use crate::common::{ends, json_of, read_json};
use crate::first::Board;
use serde_json::{Value, json};

/// The software model as the board of a user with a model and programs; `None` under an
/// emulator.
fn board(test: &str) -> Option<Board> {
    if test_support::emulated() {
        println!("SKIP {test}: the emulator's programs start no others");
        return None;
    }
    let board = Board::new("model");
    fs::write(board.path("My model.gguf"), "").unwrap();
    program(&board, "llama", "echo Once upon a time");
    program(&board, "conformance", "echo 1 passed, 0 failed, 0 skipped");
    Some(board)
}

fn program(board: &Board, name: &str, script: &str) {
    let file = board.path(name);
    fs::write(&file, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(file, Permissions::from_mode(0o755)).unwrap();
}

fn run(board: &Board, more: &str) -> Command {
    let line = format!("evidence --llama llama --conformance conformance {more}");
    let mut command = board.command(&line);
    command.args(["--model", "My model.gguf"]);
    command
}

/// The index of a run that must succeed.
fn index_of(board: &Board, more: &str) -> Value {
    json_of(run(board, more), 0)
}

/// The names of the steps that a command prints, in order.
fn steps(board: &Board, command: &str) -> Vec<String> {
    let (text, _) = ends(&mut board.command(command), 0);
    let (steps, _) = text.split_once("\nVERDICT").unwrap();
    let words = steps.lines().skip(1).map(|line| line.split(' ').next());
    words.map(|word| word.unwrap().to_owned()).collect()
}

/// Files of the archive as texts, by name.
fn archive(board: &Board) -> BTreeMap<String, String> {
    let files = unpacked(&board.archive()).into_iter();
    let text = |(name, bytes)| (name, String::from_utf8(bytes).unwrap());
    files.map(text).collect()
}

/// Files of an archive, by name.
pub(crate) fn unpacked(archive: &Path) -> BTreeMap<String, Vec<u8>> {
    let file = File::open(archive).unwrap();
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(file));
    let mut files = BTreeMap::new();
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        let name = entry.path().unwrap().display().to_string();
        assert!(name.starts_with("npu-evidence-") && name.contains("-software-model/"));
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).unwrap();
        files.insert(name.split_once('/').unwrap().1.to_owned(), bytes);
    }
    files
}

fn ended(code: i32, ok: bool) -> Value {
    json!({ "outcome": "ended", "code": code, "ok": ok })
}

#[test]
fn evidence_is_one_archive_with_nothing_private() {
    let Some(board) = board("evidence_is_one_archive_with_nothing_private") else {
        return;
    };
    // A failed step is reported, and the others run.
    program(
        &board,
        "llama",
        "echo \"$@ as wilhelmina in /home/wilhelmina/x, $PWD\" >&2\necho de:ad:be:ef:00:01; exit 7",
    );
    let index = index_of(&board, "");
    assert_eq!(index["is_model"], true);
    for (step, outcome) in index["steps"].as_object().unwrap() {
        let want = match &**step {
            "llama" => ended(7, false),
            step if step.starts_with("doctor") => {
                json!({ "outcome": "ended", "code": outcome["code"], "ok": true })
            }
            _ => ended(0, true),
        };
        assert_eq!(*outcome, want, "{step}");
    }
    for step in "doctor rung-driver rung-int8 selftest-fp16 calibrate bench".split(' ') {
        assert!(!index["steps"][step].is_null(), "{step}");
    }
    let files = archive(&board);
    let named = "index.json doctor.txt rung-form-a.json first.json selftest-int4.json \
                 profile.json bench.json llama-stderr.txt conformance.txt report.html";
    for name in named.split(' ') {
        assert!(files.contains_key(name), "{name}");
    }
    assert!(files["report.html"].contains("NOT MEASURED ON AN NPU"));
    assert!(files["llama-stderr.txt"].contains("-m (left out)"));
    let folder = board.path("");
    let folder = folder.to_str().unwrap().trim_end_matches('/');
    for (name, text) in &files {
        for private in ["wilhelmina", "/home", "My model", "de:ad", folder, "PWD"] {
            assert!(!text.contains(private), "{private} in {name}");
        }
    }
    // A step that ended is not repeated, except a failed one with --retry.
    program(&board, "llama", "exit 0");
    fs::write(board.result("doctor.txt"), "as it was").unwrap();
    assert_eq!(index_of(&board, "")["steps"]["llama"], ended(7, false));
    let again = index_of(&board, "--retry");
    assert_eq!(again["steps"]["llama"], ended(0, true));
    assert_eq!(archive(&board)["doctor.txt"], "as it was");
    // It begins with the steps of `first`, and ends with the driver suite.
    let [first, all] = ["first", "evidence"].map(|name| steps(&board, name));
    let (begin, rest) = all.split_at(first.len());
    assert_eq!(begin, first);
    assert_eq!(rest, ["calibrate", "bench", "llama", "conformance"]);
    // Results of another device are refused.
    ends(&mut run(&board, "--device model:cores=1"), 2);
}

#[test]
fn evidence_goes_on_after_the_machine_went_down() {
    let Some(board) = board("evidence_goes_on_after_the_machine_went_down") else {
        return;
    };
    program(&board, "llama", "kill -KILL $PPID");
    let output = run(&board, "").output().unwrap();
    assert_eq!(output.status.code(), None);
    let begun = read_json(board.result("state.json"));
    assert_eq!(begun["steps"]["llama"]["outcome"], "begun");
    assert_eq!(begun["steps"]["bench"], ended(0, true));
    assert!(begun["steps"]["conformance"].is_null());
    // Only this program ended, so the step is repeated.
    program(&board, "llama", "echo Once");
    let index = index_of(&board, "");
    assert_eq!(index["steps"]["llama"], ended(0, true));
    assert_eq!(index["steps"]["conformance"], ended(0, true));
    // The machine has booted since, so the step is not repeated.
    let mut down = begun.clone();
    down["steps"]["llama"]["boot"] = "another".into();
    fs::write(board.result("state.json"), down.to_string()).unwrap();
    let went_down = json!({ "outcome": "machine_went_down" });
    fs::write(board.result("llama-stderr.txt"), "/home/wilhelmina").unwrap();
    for _ in 0..2 {
        let index = index_of(&board, "");
        assert_eq!(index["steps"]["llama"], went_down);
        assert!(!archive(&board)["llama-stderr.txt"].contains("home"));
        assert_eq!(index["steps"]["conformance"], ended(0, true));
    }
    let again = index_of(&board, "--retry");
    assert_eq!(again["steps"]["llama"], ended(0, true));
    // A state file that is not JSON is reported.
    fs::write(board.result("state.json"), "{").unwrap();
    ends(&mut run(&board, ""), 2);
}

#[test]
fn evidence_kills_what_hangs_with_all_its_processes() {
    let test = "evidence_kills_what_hangs_with_all_its_processes";
    let Some(board) = board(test) else {
        return;
    };
    // All other steps end without the limit, which a busy machine needs for them.
    program(&board, "conformance", "exit 1");
    index_of(&board, "");
    program(&board, "conformance", "sleep 100000 & echo $!\nwait");
    let index = index_of(&board, "--retry --limit 5");
    let killed = json!({ "outcome": "killed", "after_seconds": 5 });
    assert_eq!(index["steps"]["conformance"], killed);
    let files = archive(&board);
    let process = files["conformance.txt"].trim();
    let stat = Path::new("/proc").join(process).join("stat");
    // It may still be ending, or be a zombie.
    while fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z ")) {
        thread::sleep(Duration::from_millis(10));
    }
}
