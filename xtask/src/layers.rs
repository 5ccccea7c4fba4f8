// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks that `crates/` depends on `sim/` through one optional dependency only.

use std::process::Command;

use serde_json::Value;

use crate::paths;

/// The only file of `crates/` that uses `sim/`, below the root.
const SIM_USER: &str = "crates/npu-matmul/src/software_npu.rs";

#[test]
fn one_optional_dependency_leads_from_crates_to_sim() {
    let (crates, sim) = (paths::root().join("crates"), paths::root().join("sim"));
    let metadata = ["metadata", "--format-version=1", "--no-deps", "--offline"];
    let output = Command::new(env!("CARGO")).args(metadata).output().unwrap();
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let within = |value: &Value, folder| value.as_str().is_some_and(|path| is_below(path, folder));
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
    let found: Vec<_> = files
        .iter()
        .filter_map(|file| Some((file, file.strip_prefix(paths::root()).ok()?.to_str()?)))
        .filter(|(_, name)| name.contains("/src/") && !name.contains("tests"))
        .filter(|(file, _)| uses_sim(&paths::text(file).unwrap()))
        .map(|(_, name)| name.to_owned())
        .collect();
    assert_eq!(found, [SIM_USER]);
}

fn is_below(path: &str, folder: &std::path::Path) -> bool {
    std::path::Path::new(path).starts_with(folder)
}
