// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks that manifests of publishable crates have the metadata that a registry shows.

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
