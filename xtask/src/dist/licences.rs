// SPDX-License-Identifier: MIT OR Apache-2.0
//! The licences of the linked crates. Most must be distributed with the program.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::{paths, process};

/// Name prefixes of files with a licence or a required notice.
const NAMES: [&str; 4] = ["LICENSE", "LICENCE", "COPYING", "NOTICE"];

/// A list of the third-party crates that `members` link, and the text of each licence once.
pub(super) fn third_party(members: &[&str], target: &str) -> Result<String> {
    let members = members.iter().flat_map(|member| ["--package", member]);
    let tree = ["tree", "--locked", "--edges=normal", "--prefix=none"];
    let tree = tree.into_iter().chain(["--target", target]).chain(members);
    let linked = cargo(tree)?;
    let words = |line: &str| line.split(' ').take(2).collect::<Vec<_>>().join(" ");
    // Macros run in the compiler.
    let linked = linked.lines().filter(|line| !line.contains("(proc-macro)"));
    let linked: BTreeSet<String> = linked.map(words).collect();

    let metadata = cargo(["metadata", "--format-version=1", "--locked"])?;
    let metadata: Value = serde_json::from_str(&metadata).context("reading cargo's metadata")?;
    let mut list = "Crates that are linked into these files, with their licences:\n\n".to_owned();
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let word = |key: &str| package[key].as_str().unwrap_or_default();
        let (name, version) = (word("name"), word("version"));
        // Members of this workspace have no source.
        if package["source"].is_null() || !linked.contains(&format!("{name} v{version}")) {
            continue;
        }
        let licence = package["license"].as_str().unwrap_or("see below");
        list += &format!("  {name} {version}: {licence}\n");
        let folder = Path::new(word("manifest_path"))
            .parent()
            .unwrap_or(Path::new("/"));
        for entry in
            fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))?
        {
            let entry = entry?;
            let file = entry.file_name().to_string_lossy().to_uppercase();
            if NAMES.iter().any(|begin| file.starts_with(begin)) && entry.path().is_file() {
                let crates = texts.entry(paths::text(&entry.path())?).or_default();
                crates.push(format!("{name} {version}"));
            }
        }
    }
    for (text, names) in texts {
        list += &format!("\n{:=<78}\n{}\n\n{text}", "", names.join(", "));
    }
    Ok(list)
}

fn cargo<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Result<String> {
    let mut command = Command::new("cargo");
    command.args(arguments).current_dir(paths::root());
    process::stdout(&command, process::LIMIT)
}
