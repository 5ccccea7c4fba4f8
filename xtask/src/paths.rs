// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where things are in the work tree.

use std::path::{Path, PathBuf};

/// The root of the work tree, which is the parent of this package.
pub(crate) fn root() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here)
}

/// Cargo's target directory; what the chores fetch and build stays below it.
pub(crate) fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}
