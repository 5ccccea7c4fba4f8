// SPDX-License-Identifier: MIT OR Apache-2.0
//! The commands on capture files.

use std::fs;
use std::path::Path;

use crate::common::{command, ends, fails, fails_with, has, json, says, text};

fn record(folder: &Path, name: &str, options: &str) -> String {
    let file = folder.join(name).display().to_string();
    says(
        &format!("{options} --record {file}"),
        &["PASS", "recorded "],
    );
    file
}

#[test]
fn a_recorded_self_test_is_replayed_decoded_and_linted() {
    let folder = tempfile::tempdir().unwrap();
    let options = "--fds 2 --shape 64x64x200 --repeat 2";
    let file = record(folder.path(), "x.rkcap", options);

    says(&format!("replay {file}"), &["PASS (software model) 4 jobs"]);
    let report = json(&format!("replay {file}"));
    assert_eq!(report["result"], "PASS");
    assert_eq!(report["jobs"][3]["bytes_different"], 0);
    text(&format!("replay {file} --device model:level=strict"));
    for limit in ["--max-memory", "--max-work"] {
        fails_with(&format!("replay {file} {limit} 0"), 2, &[limit]);
    }

    says(
        &format!("decode {file}"),
        &[
            "job 3 of file",
            "completed",
            "writes handle",
            "DPU writer: 0x",
            "file 1",
        ],
    );
    says(&format!("decode --job 1 {file}"), &["DPU.DST_BASE_ADDR"]);
    fails_with(&format!("decode --job 4 {file}"), 2, &["no job 4"]);
    let report = json(&format!("decode {file}"));
    assert_eq!(report["jobs"].as_array().unwrap().len(), 4);

    says(
        &format!("decode --lint {file}"),
        &["8 programs of 4 jobs", "no findings"],
    );
}

#[test]
fn a_changed_program_is_replayed_with_the_memory_of_a_job() {
    let folder = tempfile::tempdir().unwrap();
    let file = record(folder.path(), "x.rkcap", "");
    let program = |name: &str, text: &str| {
        let path = folder.path().join(name).display().to_string();
        fs::write(&path, text).unwrap();
        path
    };
    let first = &text(&format!("decode {file} --job 0 --task 0 --statements"));
    let missing = format!("decode {file} --job 0 --task 9");
    fails_with(&missing, 2, &["no words of program 9 of job 0"]);
    let replay = format!("replay {file} --job 0 --program");
    let same = program("same.s", first);
    says(&format!("{replay} {same}"), &["PASS", "1 jobs ended"]);
    // The tool's environment names a device that cannot be used; a changed program asks for it
    // on the command line only.
    let mut command = command(&format!("{replay} {same}"));
    ends(command.env("ROCKET_DEVICE", "/nonexistent/accel0"), 0);
    let nowhere = format!("{replay} {same} --device /nonexistent/accel0");
    fails_with(&nowhere, 3, &["/nonexistent/accel0"]);

    // Without the start of the blocks, no interrupt comes, and the driver kills the job.
    let (idle, _) = first.rsplit_once("enable").unwrap();
    let idle = program("idle.s", idle);
    let (said, _) = fails(&format!("{replay} {idle}"), 1);
    has(&said, &["job 0", "recorded: completed; now: killed"]);

    fails_with(
        &format!("{replay} {same} --task 9"),
        2,
        &["no program 9 in job 0"],
    );
    let other = format!("replay {file} --job 9 --program {same}");
    fails_with(&other, 2, &["no job 9"]);
    fails_with(&format!("replay {file} --job 0"), 2, &["--program"]);
    fails_with(
        &format!("{replay} /nonexistent/x.s"),
        2,
        &["/nonexistent/x.s"],
    );
}

#[test]
fn recordings_that_differ_say_where() {
    let folder = tempfile::tempdir().unwrap();
    let first = record(folder.path(), "a", "");
    let diff = |other: &str, code| fails(&format!("decode {first} {other}"), code);
    let same = record(folder.path(), "b", "");
    assert_eq!(diff(&same, 0).0, "no differences\n");
    let (said, _) = diff(&record(folder.path(), "c", "--seed 2"), 1);
    has(&said, &["before job 0: object"]);
    assert!(!said.contains("word"), "{said}");
    let (said, _) = diff(&record(folder.path(), "d", "--dtype fp16"), 1);
    has(&said, &["CORE.MISC_CFG"]);
    has(&diff("/no/such/file", 2).1, &["/no/such/file"]);
}

#[test]
fn a_file_that_is_not_whole_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = record(folder.path(), "x", "");
    let other = folder.path().join("other").display().to_string();
    let bytes = fs::read(&file).unwrap();
    let table = bytes.windows(4).rposition(|kind| kind == b"TABL").unwrap();
    fs::write(&other, &bytes[..table]).unwrap();
    fails_with(&format!("replay {other}"), 2, &["--unfinished"]);
    says(
        &format!("replay --unfinished {other}"),
        &["recording was interrupted"],
    );
    fs::write(&other, [&bytes[..100], b"?", &bytes[101..]].concat()).unwrap();
    for command in ["replay", "decode", "decode --lint"] {
        fails_with(&format!("{command} {other}"), 2, &["damaged at byte"]);
    }
}

#[test]
fn lint_takes_programs_too() {
    let folder = tempfile::tempdir().unwrap();
    let words = folder.path().join("x.words").display().to_string();
    fs::write(&words, "0x0201000000b11040 0x0081000000050008\n").unwrap();
    let (said, _) = fails(&format!("decode --lint {words}"), 1);
    has(&said, &["error["]);
    fails_with(&format!("decode --job 0 {words}"), 2, &["not a capture"]);
}

#[test]
fn tables_of_registers_and_rules_are_printed() {
    let registers = text("decode --registers cna.dcomp");
    has(&registers, &["**DCOMP_CTRL**", "| Meaning |"]);
    assert!(!registers.contains("S_POINTER"));
    has(&text("decode --registers"), &["**S_POINTER**"]);
    has(&text("decode --rules T07"), &["| `T07-"]);
    fails_with("decode --rules X99", 2, &["no name contains \"X99\""]);
}
