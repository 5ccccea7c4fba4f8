// SPDX-License-Identifier: MIT OR Apache-2.0
//! Makes the archive of programs that need nothing of the system they run on.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::{Origin, VERSION, licences};
use crate::build::GUEST_TARGET;
use crate::paths;
use crate::process::run_checked;

/// The programs in it.
pub(super) const PROGRAMS: [&str; 2] = ["npu-probe", "rocket-conformance"];

/// Packages of this workspace that are in it.
const MEMBERS: [&str; 2] = ["npu-probe", "rocket-hw-tests"];

/// Makes the archive from what `origin` has into the directory `to`; returns its file.
pub(super) fn build(origin: &Origin, to: &Path) -> Result<PathBuf> {
    let name = format!("rocket-npu-{VERSION}-aarch64-static");
    let staging = to.join("staging");
    let folder = staging.join(&name);
    if folder.exists() {
        fs::remove_dir_all(&folder).context("removing an unfinished archive")?;
    }
    fs::create_dir_all(&folder).context("making a directory")?;
    for program in PROGRAMS {
        fs::copy(origin.built.join(program), folder.join(program))
            .with_context(|| format!("copying {program}"))?;
    }
    for licence in ["LICENSE-APACHE", "LICENSE-MIT"] {
        fs::copy(paths::root().join(licence), folder.join(licence)).context("copying a licence")?;
    }
    let others = licences::third_party(&MEMBERS, GUEST_TARGET)?;
    let file = folder.join("third-party-licences");
    fs::write(&file, others).context("writing licences")?;
    fs::set_permissions(&file, Permissions::from_mode(0o644)).context("setting a mode")?;

    let archive = to.join(format!("{name}.tar.xz"));
    let mut tar = Command::new("tar");
    tar.args([
        "--create",
        "--sort=name",
        "--format=gnu",
        "--mode=go=rX,u+w",
    ])
    .args(["--owner=0", "--group=0", "--numeric-owner"])
    .arg(format!("--mtime=@{}", origin.epoch))
    .args(["--use-compress-program=xz --threads=1", "--file"])
    .arg(&archive)
    .arg("--directory")
    .arg(&staging)
    .arg(&name);
    run_checked(&mut tar)?;
    Ok(archive)
}
