// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fetches the binaries of node-llama-cpp through npm, from the registry that
//! the user's npm is set up with.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::arch::{self, Arch};
use crate::paths;
use crate::process;
use crate::report::external;

const FETCH_LIMIT: Duration = Duration::from_secs(180);
const UNPACK_LIMIT: Duration = Duration::from_secs(60);

/// A program that this takes and this machine does not have.
pub(super) fn missing_program() -> Option<&'static str> {
    arch::first_missing(["npm", "tar"])
}

/// The package's name for `arch`.
fn package(arch: Arch) -> &'static str {
    match arch {
        Arch::Amd64 => "linux-x64",
        Arch::Arm64 => "linux-arm64",
    }
}

/// The package of `version`, as npm takes it.
pub(super) fn specification(arch: Arch, version: &str) -> String {
    format!("@node-llama-cpp/{}@{version}", package(arch))
}

/// Fetches and unpacks `version`, unless it is there: a published version does
/// not change. Returns the directory of its libraries.
pub(super) fn fetch(arch: Arch, version: &str) -> Result<PathBuf> {
    let package = package(arch);
    let parent = paths::target().join("llama/npm");
    let directory = parent.join(format!("{package}-{version}"));
    if !directory.exists() {
        let fresh = parent.join(format!("{package}-{version}.new"));
        if fresh.exists() {
            fs::remove_dir_all(&fresh).context("removing an unfinished directory")?;
        }
        fs::create_dir_all(&fresh).context("making the directory")?;
        let specification = specification(arch, version);
        println!("fetching {specification} through npm");
        download(&fresh, &specification)
            .map_err(|error| external(&error))
            .with_context(|| format!("fetching {specification}"))?;
        fs::rename(&fresh, &directory).context("moving the new directory in place")?;
    }
    Ok(directory.join("package/bins").join(package))
}

/// Downloads and unpacks a package into an empty directory.
fn download(directory: &Path, specification: &str) -> Result<()> {
    let mut pack = Command::new("npm");
    // No package of ours: what the user set holds, and nothing below here.
    pack.current_dir(directory)
        .args(["pack", "--silent", specification]);
    process::run(pack, FETCH_LIMIT)?.checked("npm pack")?;
    let mut archives = fs::read_dir(directory)?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<Vec<_>>>()?;
    archives.retain(|path| path.extension().is_some_and(|extension| extension == "tgz"));
    ensure!(
        archives.len() == 1,
        "npm pack left {} archives",
        archives.len()
    );
    let mut unpack = Command::new("tar");
    unpack
        .arg("--extract")
        .arg("--file")
        .arg(&archives[0])
        .current_dir(directory);
    process::run(unpack, UNPACK_LIMIT)?.checked("tar")?;
    fs::remove_file(&archives[0])?;
    Ok(())
}

/// `libggml.VERSION.so` in `directory`, which loads the others.
pub(super) fn ggml_library(directory: &Path) -> Result<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).context("reading the package's directory")? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with("libggml.") {
            found.push(path);
        }
    }
    ensure!(
        found.len() == 1,
        "expected one libggml in {}, got {found:?}",
        directory.display()
    );
    Ok(found.remove(0))
}
