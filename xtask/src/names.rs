// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask names`: type names that stand for several things.
//!
//! A type that other files see needs a name that says what it is, alone. The list
//! beside this file has the names that do not yet; it may only become shorter.

use std::collections::BTreeMap;
use std::path::Component;

use anyhow::{Result, bail};

use crate::paths;

/// Each name that several types have, and how many.
const LIST: &str = include_str!("names.txt");

/// Directories whose sources define the types that are compared.
const ROOTS: [&str; 4] = ["crates", "tests", "tools", "xtask/src"];

/// Words that tell a reader nothing about a type.
const SAY_NOTHING: [&str; 14] = [
    "Beside", "Data", "Helper", "Info", "Late", "Left", "Manager", "Noticed", "Rest", "Spoiled",
    "Stays", "Stuff", "Then", "Watch",
];

/// Files that define a type, by its name.
type Definitions = BTreeMap<String, Vec<String>>;

/// Prints every name of several types, with their files, and compares with the list.
pub(crate) fn run() -> Result<()> {
    let definitions = definitions()?;
    for (name, files) in definitions.iter().filter(|(_, files)| files.len() > 1) {
        println!("{name} {}", files.len());
        for file in files {
            println!("    {file}");
        }
    }
    let complaints = complaints(&definitions, LIST);
    if !complaints.is_empty() {
        bail!("{}", complaints.join("\n"));
    }
    Ok(())
}

fn definitions() -> Result<Definitions> {
    let mut found = Definitions::new();
    for place in ROOTS {
        for path in paths::files(&paths::root().join(place), &["rs"])? {
            let file = path.strip_prefix(paths::root())?;
            // Tests of a package, as in crates/npu-vm/tests, have names of their own.
            let of_tests = file.components().nth(2) == Some(Component::Normal("tests".as_ref()));
            if of_tests || file.ends_with("tests.rs") {
                continue;
            }
            for name in paths::text(&path)?.lines().filter_map(visible_type) {
                let files = found.entry(name.to_owned()).or_default();
                files.push(file.display().to_string());
            }
        }
    }
    Ok(found)
}

/// The name of the type that other files see and that `line` begins to define, where
/// rustfmt has put it.
fn visible_type(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("pub")?;
    let rest = rest.split_once(") ").map_or(
        rest,
        |(scope, rest)| {
            if scope.starts_with('(') { rest } else { line }
        },
    );
    let (keyword, rest) = rest.trim_start().split_once(' ')?;
    let is_type = ["struct", "enum", "trait", "type", "union"].contains(&keyword);
    let name = rest.split(|c: char| !c.is_alphanumeric()).next()?;
    (is_type && !name.is_empty()).then_some(name)
}

/// What does not agree with the list, a line each.
fn complaints(definitions: &Definitions, list: &str) -> Vec<String> {
    let listed: BTreeMap<&str, usize> = list
        .lines()
        .filter_map(|line| {
            let (name, count) = line.split_once(' ')?;
            Some((name, count.parse().ok()?))
        })
        .collect();
    let mut complaints = Vec::new();
    for (name, files) in definitions {
        let allowed = listed.get(name.as_str()).copied().unwrap_or(1);
        if files.len() > allowed {
            complaints.push(format!(
                "{name} names {} types, {allowed} before: call the new one what it is ({})",
                files.len(),
                files.join(", ")
            ));
        }
        if SAY_NOTHING.contains(&name.as_str()) {
            complaints.push(format!("{name} ({}) says nothing", files.join(", ")));
        }
    }
    for (name, count) in listed {
        let found = definitions.get(name).map_or(0, Vec::len);
        if found < count {
            complaints.push(format!(
                "{name} names {found} types: xtask/src/names.txt still has {count}"
            ));
        }
    }
    complaints
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_that_other_files_see_are_found() {
        for (line, name) in [
            ("pub struct Plan<'a> {", Some("Plan")),
            ("pub(crate) enum Dtype {", Some("Dtype")),
            ("pub(in crate::exec) type Rows = u32;", Some("Rows")),
            ("pub trait Work: Send {", Some("Work")),
            ("struct Private;", None),
            ("    pub struct Inner;", None),
            ("pub fn plan() {", None),
            ("pub const fn plan(self) -> usize {", None),
            ("pub use plan::Plan;", None),
        ] {
            assert_eq!(visible_type(line), name, "{line}");
        }
    }

    #[test]
    fn the_list_neither_grows_nor_keeps_what_is_mended() {
        let definitions = Definitions::from([
            ("Job".to_owned(), vec!["a.rs".to_owned(), "b.rs".to_owned()]),
            ("Plan".to_owned(), vec!["a.rs".to_owned()]),
        ]);
        assert!(complaints(&definitions, "Job 2\n").is_empty());
        assert_eq!(complaints(&definitions, "").len(), 1);
        assert_eq!(complaints(&definitions, "Job 3\nGone 2\n").len(), 2);
        let vague = Definitions::from([("Beside".to_owned(), vec!["a.rs".to_owned()])]);
        assert_eq!(complaints(&vague, "").len(), 1);
    }
}
