// SPDX-License-Identifier: MIT OR Apache-2.0
//! Paths in the work tree.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// The root of the work tree, which is the parent of this package.
pub(crate) fn root() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here)
}

/// Cargo's target directory. xtask commands download and build below it.
pub(crate) fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// The directory that an environment variable names, or else `name` in the user's home.
pub(crate) fn home(variable: &str, name: &str) -> Result<PathBuf> {
    std::env::var_os(variable)
        .map(PathBuf::from)
        .or_else(|| Some(std::env::home_dir()?.join(name)))
        .with_context(|| format!("neither {variable} nor HOME is set"))
}

/// All files below `place` with one of these extensions, in path order, or `place` alone if it is a
/// file. Skips directories of Cargo and git.
pub(crate) fn files(place: &Path, extensions: &[&str]) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut places = vec![place.to_owned()];
    while let Some(place) = places.pop() {
        if place.is_dir() {
            if place.ends_with("target") || place.ends_with(".git") {
                continue;
            }
            for entry in
                fs::read_dir(&place).with_context(|| format!("reading {}", place.display()))?
            {
                places.push(entry?.path());
            }
        } else if place
            .extension()
            .is_some_and(|extension| extensions.iter().any(|&one| extension == one))
        {
            found.push(place);
        }
    }
    found.sort();
    Ok(found)
}

/// The text of a file, or an error that names the file.
pub(crate) fn text(file: &Path) -> Result<String> {
    fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))
}
