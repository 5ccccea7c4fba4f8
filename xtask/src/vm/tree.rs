// SPDX-License-Identifier: MIT OR Apache-2.0
//! Device trees and overlays, by the programs of Debian's device-tree-compiler.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::process::run_checked;

/// Compiles an overlay, whose source is put beside the result.
pub(super) fn compile(source: &str, to: &Path) -> Result<()> {
    let from = to.with_extension("dtso");
    fs::write(&from, source).context("writing an overlay")?;
    let mut dtc = Command::new("dtc");
    // Without warnings about the handle that the guest's overlay has in place of a label.
    dtc.args(["-q", "-@", "-I", "dts", "-O", "dtb", "-o"])
        .arg(to)
        .arg(from);
    run_checked(&mut dtc).context("compiling an overlay (Debian: device-tree-compiler)")
}

/// Applies an overlay to a tree.
pub(super) fn apply(tree: &Path, overlay: &Path, to: &Path) -> Result<()> {
    let mut command = Command::new("fdtoverlay");
    command.arg("-i").arg(tree).arg("-o").arg(to).arg(overlay);
    run_checked(&mut command).with_context(|| {
        format!(
            "applying an overlay to {} (Debian: device-tree-compiler)",
            tree.display()
        )
    })
}

/// A property of a tree, as text; `None` if it is not there.
pub(super) fn property(tree: &Path, kind: &str, node: &str, name: &str) -> Result<Option<String>> {
    let mut command = Command::new("fdtget");
    let output = command
        .args(["-t", kind])
        .arg(tree)
        .args([node, name])
        .output();
    let output = output.context("running fdtget (Debian: device-tree-compiler)")?;
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(output.status.success().then(|| text.trim().to_owned()))
}
