// SPDX-License-Identifier: MIT OR Apache-2.0
//! `npu-probe report` of what the other commands print.
#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests: a failed unwrap is a failed test"
)]

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::{probe, text};

/// Real files of every kind.
fn files(folder: &Path) -> Vec<PathBuf> {
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let (trace, profile) = (path("trace.json"), path("profile.json"));
    let commands: [(&str, &[&str]); 4] = [
        ("doctor.json", &["doctor", "--root", "/nonexistent"]),
        ("selftest.json", &["--trace", &trace]),
        (
            "bench.json",
            &["bench", "--repeat", "1", "8x64x32", "64x512x256"],
        ),
        ("calibrate.json", &["calibrate", "--out", &profile]),
    ];
    for (name, arguments) in commands {
        let (_, out, err) = probe(&[arguments, &["--json"]].concat());
        assert!(!out.is_empty(), "{arguments:?}: {err}");
        fs::write(path(name), out).unwrap();
    }
    let names = commands.iter().map(|(name, _)| *name);
    let all = names.chain(["profile.json", "trace.json"]);
    all.map(|name| folder.join(name)).collect()
}

/// The page of those, and its text.
fn page(folder: &Path) -> (PathBuf, String) {
    let page = folder.join("report.html");
    let files = files(folder);
    let files = files.iter().map(|file| file.to_str().unwrap());
    let output = ["report", "-o", page.to_str().unwrap()];
    text(&output.into_iter().chain(files).collect::<Vec<_>>());
    let text = fs::read_to_string(&page).unwrap();
    (page, text)
}

#[test]
fn what_the_commands_print_becomes_a_page() {
    let folder = tempfile::tempdir().unwrap();
    let (path, page) = page(folder.path());
    let options = roxmltree::ParsingOptions {
        allow_dtd: true,
        ..Default::default()
    };
    let document = roxmltree::Document::parse_with_options(&page, options).unwrap();
    let of = |name: &str| {
        document
            .descendants()
            .filter(|node| node.has_tag_name(("http://www.w3.org/1999/xhtml", name)))
            .count()
    };
    assert_eq!(
        (of("section"), of("script"), of("link"), of("img")),
        (6, 0, 0, 0)
    );
    assert!(
        of("svg") >= 2 && of("circle") == 6 && of("table") >= 7,
        "{page}"
    );
    // No address but the name of XHTML.
    assert_eq!(page.matches("://").count(), 1);
    for part in [
        "NOT MEASURED ON AN NPU",
        "int8 64x512x256",
        "fresh-stages",
        "MAC array",
        "200 MHz",
    ] {
        assert!(page.contains(part), "no {part}");
    }
    assert!(!page.contains(folder.path().to_str().unwrap()));
    // The same files give the same page.
    let names = [
        "doctor",
        "selftest",
        "bench",
        "calibrate",
        "profile",
        "trace",
    ];
    let names = names.map(|name| {
        folder
            .path()
            .join(format!("{name}.json"))
            .to_str()
            .unwrap()
            .to_owned()
    });
    let again: Vec<&str> = ["report"]
        .into_iter()
        .chain(names.iter().map(|name| &**name))
        .collect();
    assert_eq!(text(&again), fs::read_to_string(path).unwrap());
}

#[test]
fn what_is_no_report_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("other.json");
    fs::write(&file, "{\"a\": 1}").unwrap();
    let (code, _, err) = probe(&["report", file.to_str().unwrap()]);
    assert_eq!(code, 2);
    assert!(
        err.contains("other.json: the file is JSON, but not of a kind"),
        "{err}"
    );
    let (code, _, _) = probe(&["report", "/nonexistent"]);
    assert_eq!(code, 2);
}

/// By hand, or in the long run: `cargo test -p npu-probe --test report -- --ignored`.
#[test]
#[ignore = "needs chromium"]
fn a_browser_shows_the_page() {
    let folder = tempfile::tempdir().unwrap();
    let (page, _) = page(folder.path());
    for (name, size) in [("phone", "390,844"), ("desktop", "1280,1000")] {
        let picture = folder.path().join(format!("{name}.png"));
        let status = Command::new("chromium")
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-quic",
            ])
            .args(["--no-first-run", "--disable-background-networking"])
            .args(["--disable-component-update", "--disable-sync"])
            .arg(format!(
                "--user-data-dir={}",
                folder.path().join(name).display()
            ))
            .arg(format!("--screenshot={}", picture.display()))
            .arg(format!("--window-size={size}"))
            .arg(format!("file://{}", page.display()))
            .stderr(Stdio::null())
            .status()
            .unwrap();
        assert!(status.success());
        // A blank picture of either size is a tenth of that.
        assert!(fs::metadata(picture).unwrap().len() > 20_000);
    }
}
