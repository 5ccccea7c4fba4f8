// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask names`: type names that stand for several things.
//!
//! A type that other files see needs a name that says what it is, alone.

use std::collections::BTreeMap;
use std::path::Component;

use anyhow::{Result, ensure};

use crate::paths;

/// Directories whose sources define the types that are compared.
const ROOTS: [&str; 4] = ["crates", "tests", "tools", "xtask/src"];

/// Fails, and says where, unless each name is that of one type.
pub(crate) fn run() -> Result<()> {
    let mut files: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for place in ROOTS {
        for path in paths::files(&paths::root().join(place), &["rs"])? {
            let file = path.strip_prefix(paths::root())?;
            // Tests of a package, as in crates/npu-vm/tests, have names of their own.
            let of_tests = file.components().nth(2) == Some(Component::Normal("tests".as_ref()));
            if of_tests || file.ends_with("tests.rs") {
                continue;
            }
            for name in paths::text(&path)?.lines().filter_map(visible_type) {
                files
                    .entry(name.to_owned())
                    .or_default()
                    .push(file.display().to_string());
            }
        }
    }
    // Libraries name theirs so, and qualify it.
    files.remove("Error");
    let several = files.iter().filter(|(_, files)| files.len() > 1);
    let told: Vec<_> = several
        .map(|(name, files)| format!("{name}: {}", files.join(", ")))
        .collect();
    ensure!(
        told.is_empty(),
        "call each type what it is, alone:\n{}",
        told.join("\n")
    );
    Ok(())
}

/// The name of the type that other files see and that `line` begins to define, where
/// rustfmt has put it.
fn visible_type(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("pub")?;
    let rest = if rest.starts_with('(') {
        rest.split_once(") ")?.1
    } else {
        rest
    };
    let (keyword, rest) = rest.trim_start().split_once(' ')?;
    let name = rest.split(|c: char| !c.is_alphanumeric()).next()?;
    ["struct", "enum", "trait", "type", "union"]
        .contains(&keyword)
        .then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_that_other_files_see_are_found() {
        for (line, name) in [
            ("pub struct Plan<'a> {", Some("Plan")),
            ("pub(in crate::exec) type Rows = u32;", Some("Rows")),
            ("struct Private;", None),
            ("    pub struct Inner;", None),
            ("pub const fn plan(self) -> usize {", None),
        ] {
            assert_eq!(visible_type(line), name, "{line}");
        }
    }
}
