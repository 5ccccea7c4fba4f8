// SPDX-License-Identifier: MIT OR Apache-2.0
//! Debians that have few packages, to run commands in.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::process::{as_root, run_checked};
use crate::{debian, paths, process};

/// Mounts, then goes into the root: the root, pairs of a directory here and its
/// place there, `--`, what chroot takes. All ends with the namespace.
const ENTER: &str = r#"
root=$1
shift
while [ "$1" != -- ]; do
    mkdir -p "$root$2"
    mount --bind "$1" "$root$2"
    shift 2
done
shift
mount -t proc proc "$root/proc"
exec chroot "$@"
"#;

/// Makes a Debian `suite` with the essential packages and `packages`: a directory, or an
/// archive if `to` is named so. Fetches as this machine's apt does: by its proxies.
pub(crate) fn make(suite: &str, packages: &[&str], to: &Path) -> Result<()> {
    println!("making a Debian {suite} with {}", packages.join(", "));
    let settings = paths::target().join("apt.conf");
    let mut config = Command::new("apt-config");
    config.arg("dump");
    let all = process::run(&config, debian::LIMIT)?
        .checked("apt-config")?
        .stdout;
    let lines = all.lines().filter(|line| line.starts_with("Acquire::"));
    fs::write(&settings, lines.collect::<Vec<_>>().join("\n"))
        .context("writing settings for apt")?;
    let mut command = as_root("mmdebstrap");
    command
        .args(["--quiet", "--variant=essential"])
        // One that each Debian has, since there must be one.
        .arg(format!("--include=dpkg,{}", packages.join(",")).trim_end_matches(','))
        .arg(format!("--aptopt={}", settings.display()))
        .arg(suite)
        .arg(to)
        .arg(debian::source(suite, "")?);
    run_checked(&mut command)
}

/// A command that goes into `root`, where each of `mounts` is also at its second path. The
/// caller adds what chroot takes after its options.
pub(crate) fn enter(
    root: &Path,
    mounts: &[[&Path; 2]],
    unshare: &[&str],
    chroot: &[String],
) -> Command {
    let mut inside = as_root("unshare");
    inside
        .args(["--mount", "--pid", "--fork", "--kill-child"])
        .args(unshare)
        .args(["sh", "-euc", ENTER, "sh"])
        .arg(root)
        .args(mounts.iter().flatten())
        .arg("--")
        .args(chroot)
        .arg(root);
    inside
}
