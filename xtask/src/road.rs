// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks the two paths in docs/architecture.md against the code: a matmul's path to SUBMIT, and
//! SUBMIT's path to the arithmetic of the software NPU.

use std::collections::HashSet;

use crate::generated::section;
use crate::paths;

/// Checks a table of the page: each function is defined in its file and called from an earlier row,
/// and no file is entered twice. Returns the numbers of rows and files.
fn follow(name: &str) -> (usize, usize) {
    let page = paths::text(&paths::root().join("docs/architecture.md")).unwrap();
    let rows = section(&page, name).unwrap().lines();
    let mut earlier: Vec<String> = Vec::new();
    let (mut files, mut last) = (HashSet::new(), String::new());
    for row in rows.filter(|row| row.starts_with("| [")) {
        // | [file](../path) | `function` | what |
        let (path, rest) = row.split_once("](../").unwrap().1.split_once(')').unwrap();
        let function = rest.split('`').nth(1).unwrap();
        let text = paths::text(&paths::root().join(path)).unwrap();
        let is_defined =
            text.contains(&format!("fn {function}(")) || text.contains(&format!("fn {function}<"));
        assert!(is_defined, "{path} has no {function}");
        assert!(
            last == path || files.insert(path.to_owned()),
            "{path} is entered twice"
        );
        path.clone_into(&mut last);
        let call = format!("{function}(");
        let is_called = |text: &String| {
            text.lines()
                .any(|line| line.contains(&call) && !line.contains("fn "))
        };
        assert!(
            earlier.is_empty() || earlier.iter().any(is_called),
            "nobody calls {function} of {path}"
        );
        earlier.push(text);
    }
    (earlier.len(), files.len())
}

#[test]
fn a_matmul_passes_few_files_to_submit() {
    let (stations, files) = follow("road");
    assert_eq!(stations, files);
    assert!((15..=20).contains(&files), "{files} files");
}

#[test]
fn submit_passes_few_stations_to_the_arithmetic() {
    let (stations, _) = follow("submit-road");
    assert!((10..=15).contains(&stations), "{stations} stations");
}
