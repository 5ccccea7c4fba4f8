// SPDX-License-Identifier: MIT OR Apache-2.0
//! The road of a product in docs/architecture.md is the one that the code takes.

use std::collections::HashSet;

use crate::generated::section;
use crate::paths;

/// Most files that a reader of it opens.
const FILES_MAX: usize = 20;

#[test]
fn each_station_is_called_from_one_before() {
    let page = paths::text(&paths::root().join("docs/architecture.md")).unwrap();
    let rows = section(&page, "road").unwrap().lines();
    let mut earlier: Vec<String> = Vec::new();
    let mut files = HashSet::new();
    for row in rows.filter(|row| row.starts_with("| [")) {
        // | [file](../path) | `function` | what |
        let (path, rest) = row.split_once("](../").unwrap().1.split_once(')').unwrap();
        let function = rest.split('`').nth(1).unwrap();
        let text = paths::text(&paths::root().join(path)).unwrap();
        let is_defined =
            text.contains(&format!("fn {function}(")) || text.contains(&format!("fn {function}<"));
        assert!(is_defined, "{path} has no {function}");
        assert!(files.insert(path.to_owned()), "{path} is entered twice");
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
    assert!(
        (15..=FILES_MAX).contains(&files.len()),
        "{} files",
        files.len()
    );
}
