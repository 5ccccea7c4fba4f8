// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tries what was made.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::tarball::PROGRAMS;
use super::transcript::{self, CleanDebian};
use crate::arch::Arch;
use crate::process::{self, run_checked};
use crate::{llama, paths};

/// Time that a self-test or the driver suite may take, under QEMU.
const LIMIT: Duration = Duration::from_secs(600);

/// The oldest Debian that packages are for: programs and the driver suite.
const OLDEST: CleanDebian = CleanDebian {
    suite: "bookworm",
    packages: &[],
    script: include_str!("transcripts/bookworm.sh"),
    golden: "bookworm.txt",
};
/// A Debian with llama.cpp: it finds the backend.
const NEWEST: CleanDebian = CleanDebian {
    suite: "sid",
    packages: &["llama.cpp-tools"],
    script: include_str!("transcripts/sid.sh"),
    golden: "sid.txt",
};

/// Checks that `make` makes the same `files` once more.
pub(super) fn same_again(
    files: &[PathBuf],
    make: impl FnOnce(&Path) -> Result<Vec<PathBuf>>,
) -> Result<()> {
    let folder = paths::target().join("dist/again");
    fs::create_dir_all(&folder).context("making a directory")?;
    for (first, second) in files.iter().zip(make(&folder)?) {
        ensure!(
            fs::read(first)? == fs::read(&second)?,
            "{} was made twice, and differs",
            first.display()
        );
    }
    fs::remove_dir_all(&folder).context("removing what was made again")?;
    println!("PASS reproducible: {} files were made twice", files.len());
    Ok(())
}

/// Installs, uses and removes the packages in clean Debians; for another
/// architecture than this machine's, only has their programs run.
pub(super) fn packages(packages: &[PathBuf], arch: Arch) -> Result<()> {
    if arch.is_native() {
        let model = llama::tiny_model()?;
        for debian in [OLDEST, NEWEST] {
            transcript::check(&debian, packages, &model)?;
        }
        return Ok(());
    }
    let root = paths::target().join("dist").join(arch.debian());
    for package in packages {
        crate::debian::unpack(package, &root)?;
    }
    programs(
        &root.join("usr/bin"),
        &["-L", &format!("/usr/{}", arch.triplet())],
    )
}

/// Runs the programs of the archive.
pub(super) fn archive(archive: &Path) -> Result<()> {
    let root = paths::target().join("dist/static");
    fs::create_dir_all(&root).context("making a directory")?;
    let mut tar = Command::new("tar");
    tar.args(["--extract", "--strip-components=1", "--file"])
        .arg(archive)
        .arg("--directory")
        .arg(&root);
    run_checked(&mut tar)?;
    programs(&root, &[])
}

/// Runs the self-test and some of the driver suite of `folder` on the model.
fn programs(folder: &Path, options: &[&str]) -> Result<()> {
    let runs: [(&str, &[&str], &str); 2] = [
        (PROGRAMS[0], &["--device", "model"], "PASS "),
        (
            PROGRAMS[1],
            &["--device", "model", "version", "submit"],
            " 0 failed",
        ),
    ];
    for (program, arguments, told) in runs {
        let (emulator, processor) = Arch::Arm64.emulator().split_first().unwrap_or((&"", &[]));
        let mut command = Command::new(emulator);
        command
            .args(processor)
            .args(options)
            .arg(folder.join(program));
        command.args(arguments);
        let text = process::run(command, LIMIT)?.checked(program)?.text();
        ensure!(text.contains(told), "{program} says: {text}");
        println!("PASS {} runs on an aarch64", folder.join(program).display());
    }
    Ok(())
}

/// Has lintian look at the packages.
pub(super) fn lintian(packages: &[PathBuf]) -> Result<()> {
    let mut lintian = Command::new("lintian");
    lintian.args([
        "--allow-root",
        "--fail-on=error,warning",
        "--tag-display-limit=0",
    ]);
    run_checked(lintian.args(packages))?;
    println!("PASS lintian: {} packages", packages.len());
    Ok(())
}
