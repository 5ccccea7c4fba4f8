// SPDX-License-Identifier: MIT OR Apache-2.0
//! `npu-probe report` of the output of other commands.

use std::fs;
use std::path::Path;

use crate::common::{fails, has, text};

/// The page of real files of every kind, and the command line that prints it.
fn page(folder: &Path) -> (String, String) {
    let path = |name: &str| folder.join(name).display().to_string();
    let trace = format!("--trace {}", path("trace.json"));
    let calibrate = format!("calibrate --profile {}", path("profile.json"));
    for (name, line, code) in [
        ("doctor.json", "doctor --root /nonexistent", 3),
        ("selftest.json", &*trace, 0),
        ("bench.json", "bench --repeat 1 8x64x32 64x512x256", 0),
        ("calibrate.json", &*calibrate, 0),
    ] {
        let (out, _) = fails(&format!("{line} --json"), code);
        fs::write(path(name), out).unwrap();
    }
    let kinds = "doctor selftest bench calibrate profile trace".split(' ');
    let files: Vec<String> = kinds.map(|kind| path(&format!("{kind}.json"))).collect();
    let files = files.join(" ");
    let line = format!("report {files}");
    let page = folder.join("report.html");
    text(&format!("{line} -o {}", page.display()));
    (fs::read_to_string(page).unwrap(), line)
}

#[test]
fn reports_become_a_page() {
    let folder = tempfile::tempdir().unwrap();
    let (page, line) = page(folder.path());
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
    // The only address is the name of XHTML.
    assert_eq!(page.matches("://").count(), 1);
    has(
        &page,
        &[
            "NOT MEASURED ON AN NPU",
            "Fix <code>board</code> first",
            "int8 64x512x256",
            "fresh-stages",
            "MAC array",
            "200 MHz",
        ],
    );
    assert!(!page.contains(folder.path().to_str().unwrap()));
    // The same files give the same page.
    assert_eq!(text(&line), page);
}
