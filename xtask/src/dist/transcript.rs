// SPDX-License-Identifier: MIT OR Apache-2.0
//! Has a shell do in a clean Debian what users do, and compares all that it writes
//! with what it wrote when somebody last looked (`BLESS=1` takes it as right).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::process::{as_root, run_checked};
use crate::{clean, debian, paths, process};

/// Time that a script may take.
const LIMIT: Duration = Duration::from_secs(300);

/// Numbers with a point, and those as long as sizes and times are: other machines have
/// others.
const MASK: &str = r"s/[0-9]+(\.[0-9]+)+|[0-9]{5,}/N/g";

/// Runs the script of a Debian `suite` that has `with`, where it finds `packages` and `added`
/// files under their names there, and compares.
pub(super) fn check(
    suite: &str,
    with: &[&str],
    packages: &[PathBuf],
    added: &[(PathBuf, &str)],
) -> Result<()> {
    let scripts = paths::root().join("xtask/src/dist/transcripts");
    let golden = scripts.join(format!("{suite}.txt"));
    let folder = std::path::absolute(paths::target().join("dist/check"))?;
    let [root, debs, files] = ["root", "packages", "files"].map(|name| folder.join(name));
    run_checked(as_root("rm").arg("-rf").arg(&folder))?;
    for folder in [&root, &debs, &files] {
        fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
    }
    for package in packages {
        fs::copy(package, debs.join(package.file_name().unwrap_or_default()))?;
    }
    for (file, name) in added {
        fs::copy(file, files.join(name)).with_context(|| format!("copying {name}"))?;
    }
    fs::copy(scripts.join(format!("{suite}.sh")), files.join("script.sh"))?;
    // Made anew each day.
    let name = [&[suite], with].concat().join("+");
    let archive = paths::target().join(format!("debian/{name}.tar"));
    if !debian::is_fresh(&archive) {
        fs::create_dir_all(archive.with_file_name("")).context("making a directory")?;
        clean::make(suite, with, &archive)?;
    }
    let mut extract = as_root("tar");
    extract.args([
        "--extract",
        "--numeric-owner",
        "--exclude=./dev/*",
        "--file",
    ]);
    run_checked(extract.arg(archive).arg("--directory").arg(&root))?;

    let mounts = [
        [&debs, Path::new("/packages")],
        [&files, Path::new("/files")],
    ];
    let mut inside = clean::enter(&root, &mounts, &["--net"], &[]);
    inside
        .args([
            "env",
            "-i",
            "HOME=/root",
            "PATH=/usr/sbin:/usr/bin:/sbin:/bin",
            "LC_ALL=C.UTF-8",
        ])
        .args(["sh", "-c", "exec 2>&1; set -v; . /files/script.sh"]);
    let output = process::run(&inside, LIMIT)?;
    run_checked(as_root("rm").arg("-rf").arg(&folder))?;
    let told = paths::target().join(format!("dist/{suite}.txt"));
    fs::write(&told, &output.stdout).context("writing the transcript")?;
    run_checked(Command::new("sed").args(["-E", "-i", MASK]).arg(&told))?;
    if std::env::var_os("BLESS").is_some() {
        fs::copy(&told, &golden).context("writing the transcript")?;
    }
    run_checked(
        Command::new("diff")
            .arg("--unified")
            .arg(&golden)
            .arg(&told),
    )?;
    ensure!(
        output.status.success(),
        "the script in {suite} ended with {}",
        output.status
    );
    println!("PASS a clean Debian {suite}: packages come, work and go");
    Ok(())
}
