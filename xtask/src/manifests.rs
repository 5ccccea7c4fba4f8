// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks that manifests of publishable crates have the metadata that a registry shows, and that
//! `crates/` depends on `sim/` through one optional dependency and one source file only.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::paths;

/// Metadata of each manifest, inherited from the workspace if it is the same for all. There is no
/// `repository`, since the project has no address yet.
const METADATA: [&str; 8] = [
    "description = \"",
    "version.workspace = true",
    "edition.workspace = true",
    "rust-version.workspace = true",
    "license.workspace = true",
    "readme = \"README.md\"",
    "keywords = [",
    "categories = [",
];

#[test]
fn published_crates_have_their_metadata() {
    let steps = include_str!("ci/steps.txt");
    let packaged = steps.lines().find(|line| line.contains("cargo package "));
    let mut packaged: Vec<_> = packaged.unwrap().split(" -p ").skip(1).collect();
    let mut published = Vec::new();
    for file in paths::files(paths::root(), &["toml"]).unwrap() {
        let text = paths::text(&file).unwrap();
        let Some((_, package)) = text.split_once("[package]\n") else {
            continue;
        };
        let package = package.split("\n[").next().unwrap();
        let has = |line: &str| package.lines().any(|one| one.starts_with(line));
        if has("publish") {
            continue;
        }
        for line in METADATA {
            assert!(has(line), "{} has no `{line}`", file.display());
        }
        assert!(file.with_file_name("README.md").exists());
        let name = package
            .lines()
            .find_map(|line| line.strip_prefix("name = \""));
        published.push(name.unwrap().trim_end_matches('"').to_owned());
    }
    packaged.sort_unstable();
    published.sort_unstable();
    assert_eq!(published, packaged, "`msrv` packages what is published");
}

/// The only file of `crates/` that uses `sim/`, below the root.
const SIM_USER: &str = "crates/npu-matmul/src/device/software_npu.rs";

#[test]
fn one_optional_dependency_leads_from_crates_to_sim() {
    let (crates, sim) = (paths::root().join("crates"), paths::root().join("sim"));
    let metadata = ["metadata", "--format-version=1", "--no-deps", "--offline"];
    let output = Command::new(env!("CARGO")).args(metadata).output().unwrap();
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let within = |value: &Value, folder: &PathBuf| {
        let path = value.as_str().map(Path::new);
        path.is_some_and(|path| path.starts_with(folder))
    };
    let mut found = Vec::new();
    for package in metadata["packages"].as_array().unwrap() {
        if !within(&package["manifest_path"], &crates) {
            continue;
        }
        for dependency in package["dependencies"].as_array().unwrap() {
            if within(&dependency["path"], &sim) && dependency["kind"] != "dev" {
                let name = |of: &Value| of["name"].as_str().unwrap().to_owned();
                let is_optional = dependency["optional"].as_bool().unwrap();
                found.push((name(package), name(dependency), is_optional));
            }
        }
    }
    assert_eq!(found, [("npu-matmul".into(), "npu-model".into(), true)]);
}

#[test]
fn one_file_of_crates_uses_sim() {
    let files = paths::files(&paths::root().join("crates"), &["rs"]).unwrap();
    let uses_sim = |text: &str| {
        let code = text
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"));
        // Tests come last in a file.
        let mut code = code.take_while(|line| !line.contains("#[cfg(test)]"));
        code.any(|line| line.contains("npu_model::") || line.contains("rknpu_chip::"))
    };
    let name = |file: &PathBuf| {
        file.strip_prefix(paths::root())
            .unwrap()
            .display()
            .to_string()
    };
    let mut found: Vec<_> = files.iter().map(name).collect();
    found.retain(|name| name.contains("/src/") && !name.contains("tests"));
    found.retain(|name| uses_sim(&paths::text(&paths::root().join(name)).unwrap()));
    assert_eq!(found, [SIM_USER]);
}
