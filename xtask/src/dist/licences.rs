// SPDX-License-Identifier: MIT OR Apache-2.0
//! The licences of the crates that are linked into what is shipped: most want to be
//! handed on with it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::paths;
use crate::process::{self, CommandOutput};

/// Time that cargo may take to tell what it knows.
const LIMIT: Duration = Duration::from_secs(120);
/// Beginnings of the names of files with a licence, or with what it wants told.
const NAMES: [&str; 4] = ["LICENSE", "LICENCE", "COPYING", "NOTICE"];

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Crate>,
}

#[derive(Deserialize)]
struct Crate {
    name: String,
    version: String,
    license: Option<String>,
    /// `None` for members of this workspace.
    source: Option<String>,
    manifest_path: PathBuf,
}

/// A list of the crates of others that `members` are linked with, and all texts of
/// their licences, each once.
pub(super) fn third_party(members: &[&str], target: &str) -> Result<String> {
    let linked = linked(members, target)?;
    let mut metadata: Metadata =
        serde_json::from_slice(&cargo(&["metadata", "--format-version=1", "--locked"])?.stdout)
            .context("reading cargo's metadata")?;
    metadata.packages.retain(|package| {
        package.source.is_some()
            && linked.contains(&format!("{} v{}", package.name, package.version))
    });
    let mut list = "Crates that are linked into these files, with their licences:\n\n".to_owned();
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for package in &metadata.packages {
        let name = format!("{} {}", package.name, package.version);
        let licence = package.license.as_deref().unwrap_or("see below");
        writeln!(list, "  {name}: {licence}")?;
        let folder = package.manifest_path.parent().unwrap_or(Path::new("/"));
        for text in licence_texts(folder)? {
            texts.entry(text).or_default().push(name.clone());
        }
    }
    for (text, names) in texts {
        write!(list, "\n{:=<78}\n{}\n\n{text}", "", names.join(", "))?;
    }
    Ok(list)
}

/// Names and versions of the crates that are linked into `members`.
fn linked(members: &[&str], target: &str) -> Result<BTreeSet<String>> {
    let mut arguments = vec![
        "tree",
        "--locked",
        "--edges=normal",
        "--prefix=none",
        "--target",
    ];
    arguments.push(target);
    arguments.extend(members.iter().flat_map(|member| ["--package", member]));
    let text = cargo(&arguments)?.text();
    let words = |line: &str| line.split(' ').take(2).collect::<Vec<_>>().join(" ");
    // Macros run in the compiler.
    let lines = text.lines().filter(|line| !line.contains("(proc-macro)"));
    Ok(lines.map(words).collect())
}

/// The contents of the files in `folder` whose names say licence, in order.
fn licence_texts(folder: &Path) -> Result<Vec<String>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().to_uppercase();
        if NAMES.iter().any(|begin| name.starts_with(begin)) && entry.path().is_file() {
            files.push(entry.path());
        }
    }
    files.sort();
    files.iter().map(|file| paths::text(file)).collect()
}

fn cargo(arguments: &[&str]) -> Result<CommandOutput> {
    let mut command = Command::new("cargo");
    command.args(arguments).current_dir(paths::root());
    process::run(command, LIMIT)?.checked("cargo")
}
