// SPDX-License-Identifier: MIT OR Apache-2.0
//! The commands on capture files, as their users run them.
#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests: a failed unwrap is a failed test"
)]

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::probe;
use serde_json::Value;

fn record(folder: &Path, name: &str, options: &[&str]) -> PathBuf {
    let file = folder.join(name);
    let record = ["--record", file.to_str().unwrap()];
    let (code, out, err) = probe(&[options, &record].concat());
    assert_eq!(code, 0, "{out}{err}");
    assert!(out.contains("PASS") && out.contains("recorded "), "{out}");
    file
}

#[test]
fn a_recorded_self_test_is_replayed_decoded_and_linted() {
    let folder = tempfile::tempdir().unwrap();
    let options = ["--fds", "2", "--shape", "64x64x200", "--repeat", "2"];
    let file = record(folder.path(), "x.rkcap", &options);
    let file = file.to_str().unwrap();

    let (code, out, err) = probe(&["replay", file]);
    assert_eq!(code, 0, "{out}{err}");
    assert!(out.contains("PASS (software model) 4 jobs"), "{out}");
    let (code, out, _) = probe(&["replay", "--json", file]);
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &report["result"]), (0, &Value::from("PASS")));
    assert_eq!(report["jobs"][3]["bytes_different"], 0);
    let (code, out, _) = probe(&["replay", file, "--device", "model:level=strict"]);
    assert_eq!(code, 0, "{out}");

    for limit in ["--max-memory", "--max-work"] {
        let (code, _, err) = probe(&["replay", file, limit, "0"]);
        assert!(code == 2 && err.contains(limit), "{err}");
    }

    let (code, out, _) = probe(&["decode", file]);
    assert_eq!(code, 0);
    for part in [
        "job 3 of file",
        "completed",
        "writes handle",
        "DPU writer: 0x",
        "file 1",
    ] {
        assert!(out.contains(part), "no `{part}` in:\n{out}");
    }
    let (code, out, _) = probe(&["decode", "--job", "1", file]);
    assert!(code == 0 && out.contains("DPU.DST_BASE_ADDR"), "{out}");
    let (code, _, err) = probe(&["decode", "--job", "4", file]);
    assert!(code == 2 && err.contains("no job 4"), "{err}");
    let (code, out, _) = probe(&["decode", "--json", file]);
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, report["jobs"].as_array().unwrap().len()), (0, 4));

    let (code, out, _) = probe(&["decode", "--lint", file]);
    assert!(code == 0 && out.contains("8 programs of 4 jobs"), "{out}");
    assert!(out.contains("no findings"), "{out}");
}

#[test]
fn recordings_that_differ_say_where() {
    let folder = tempfile::tempdir().unwrap();
    let first = record(folder.path(), "a", &[]);
    let same = record(folder.path(), "b", &[]);
    let seed = record(folder.path(), "c", &["--seed", "2"]);
    let dtype = record(folder.path(), "d", &["--dtype", "fp16"]);
    let diff = |other: &Path| probe(&["diff", first.to_str().unwrap(), other.to_str().unwrap()]);
    let (code, out, _) = diff(&same);
    assert_eq!((code, out.as_str()), (0, "no differences\n"));
    let (code, out, _) = diff(&seed);
    assert!(code == 1 && out.contains("before job 0: object"), "{out}");
    assert!(!out.contains("word"), "{out}");
    let (code, out, _) = diff(&dtype);
    assert!(code == 1 && out.contains("CORE.MISC_CFG"), "{out}");
    let (code, _, err) = diff(Path::new("/no/such/file"));
    assert!(code == 2 && err.contains("/no/such/file"), "{err}");
}

#[test]
fn a_file_that_is_not_whole_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = record(folder.path(), "x", &[]);
    let other = folder.path().join("other");
    let bytes = fs::read(&file).unwrap();
    let table = bytes.windows(4).rposition(|kind| kind == b"TABL").unwrap();
    fs::write(&other, &bytes[..table]).unwrap();
    let (code, out, err) = probe(&["replay", other.to_str().unwrap()]);
    assert!(code == 2 && err.contains("--unfinished"), "{out}{err}");
    let (code, out, err) = probe(&["replay", "--unfinished", other.to_str().unwrap()]);
    assert!(
        code == 0 && out.contains("recording was interrupted"),
        "{out}{err}"
    );
    fs::write(&other, [&bytes[..100], b"?", &bytes[101..]].concat()).unwrap();
    for command in [&["replay"][..], &["decode"], &["decode", "--lint"]] {
        let (code, _, err) = probe(&[command, &[other.to_str().unwrap()]].concat());
        assert!(
            code == 2 && err.contains("damaged at byte"),
            "{command:?}: {err}"
        );
    }
}

#[test]
fn lint_takes_programs_too() {
    let folder = tempfile::tempdir().unwrap();
    let words = folder.path().join("x.words");
    fs::write(&words, "0x0201000000b11040 0x0081000000050008\n").unwrap();
    let (code, out, _) = probe(&["decode", "--lint", words.to_str().unwrap()]);
    assert!(code == 1 && out.contains("error["), "{out}");
    let (code, _, err) = probe(&["decode", "--job", "0", words.to_str().unwrap()]);
    assert!(code == 2 && err.contains("not a capture"), "{err}");
}
