// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask dist`: packages for Debian and its relatives, and an archive of
//! programs for any aarch64 Linux, with their checksums.
//!
//! The same sources and tools give the same bytes: times are those of the commit, and
//! no path of this machine is in them.

mod check;
mod contents;
mod deb;
mod licences;
mod needed;
mod tarball;
mod transcript;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::arch::Arch;
use crate::build::{self, GUEST_TARGET};
use crate::{paths, process};

/// Version of all packages.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Time that a small program may take.
const LIMIT: Duration = Duration::from_secs(120);
/// File of the checksums.
const CHECKSUMS: &str = "SHA256SUMS";

/// What is built for Debian's packages.
const FOR_PACKAGES: [&str; 8] = [
    "--package=npu-probe",
    "--package=rocket-hw-tests",
    "--package=ggml-shim",
    "--package=rocket-preload",
    "--package=npu-matmul-c",
    "--lib",
    "--bin=npu-probe",
    "--bin=rocket-conformance",
];

/// What is built for the archive.
const FOR_ARCHIVE: [&str; 4] = [
    "--package=npu-probe",
    "--package=rocket-hw-tests",
    "--bin=npu-probe",
    "--bin=rocket-conformance",
];

/// Options of `dist`.
#[derive(Debug, clap::Args)]
pub(crate) struct DistArgs {
    /// Only for this architecture [default: for both]
    #[arg(long, value_enum)]
    arch: Option<Arch>,
    /// Try what was made: in a clean Debian (amd64), under QEMU (arm64)
    #[arg(long)]
    check: bool,
    /// Have lintian look at the packages
    #[arg(long)]
    lintian: bool,
}

/// What packages are made of.
#[derive(Debug)]
struct Origin {
    /// Directory of the programs and libraries.
    built: PathBuf,
    /// Directory of man pages and shell completions.
    manuals: PathBuf,
    /// Time of the commit, in seconds, and as Debian writes it.
    epoch: String,
    date: String,
}

/// Makes everything, and tries it if that is asked.
pub(crate) fn run(args: &DistArgs) -> Result<()> {
    let to = paths::target().join("dist");
    fs::create_dir_all(&to).with_context(|| format!("making {}", to.display()))?;
    let manuals = manuals()?;
    let mut all = Vec::new();
    for arch in [Arch::Amd64, Arch::Arm64] {
        if args.arch.is_some_and(|only| only != arch) {
            continue;
        }
        let origin = Origin::new(build::shipped(&FOR_PACKAGES, arch.rust_target())?, &manuals)?;
        let packages = packages(&origin, arch, &to)?;
        if args.check {
            check::same_again(&packages, |to| self::packages(&origin, arch, to))?;
            check::packages(&packages, arch)?;
        }
        if args.lintian {
            check::lintian(&packages)?;
        }
        all.extend(packages);
        if arch == Arch::Arm64 {
            let origin = Origin::new(build::shipped(&FOR_ARCHIVE, GUEST_TARGET)?, &manuals)?;
            let archive = vec![tarball::build(&origin, &to)?];
            if args.check {
                check::same_again(&archive, |to| Ok(vec![tarball::build(&origin, to)?]))?;
                check::archive(&archive[0])?;
            }
            all.extend(archive);
        }
    }
    checksums(&to, &all)
}

impl Origin {
    fn new(built: PathBuf, manuals: &Path) -> Result<Self> {
        let time = |format: &str| -> Result<String> {
            let mut git = Command::new("git");
            git.args(["log", "-1", "--date=rfc2822", format])
                .current_dir(paths::root());
            let told = process::run(git, LIMIT)?.checked("git log")?.text();
            Ok(told.trim().to_owned())
        };
        Ok(Self {
            built,
            manuals: manuals.to_owned(),
            epoch: time("--format=%ct")?,
            date: time("--format=%cd")?,
        })
    }
}

/// Makes the Debian packages for `arch` into the directory `to`.
fn packages(origin: &Origin, arch: Arch, to: &Path) -> Result<Vec<PathBuf>> {
    let packages = contents::PACKAGES.iter();
    packages
        .map(|package| deb::build(package, origin, arch, to))
        .collect()
}

/// Has the programs write man pages and completions; returns the directory.
fn manuals() -> Result<PathBuf> {
    let folder = paths::target().join("dist/manuals");
    fs::create_dir_all(&folder).context("making a directory")?;
    for (package, program, argument) in [
        ("npu-probe", "npu-probe", "manual"),
        ("rocket-hw-tests", "rocket-conformance", "--manual"),
    ] {
        let mut cargo = Command::new("cargo");
        cargo
            .args(["run", "--quiet", "--features=manual", "--package", package])
            .args(["--bin", program, "--", argument])
            .arg(std::path::absolute(&folder)?)
            .current_dir(paths::root());
        process::run_checked(&mut cargo)?;
    }
    Ok(folder)
}

/// Writes the checksums of `files`, which are in `folder`, and tells them.
fn checksums(folder: &Path, files: &[PathBuf]) -> Result<()> {
    let mut sums = Command::new("sha256sum");
    sums.current_dir(folder);
    sums.args(files.iter().filter_map(|file| file.file_name()));
    let sums = process::run(sums, LIMIT)?.checked("sha256sum")?.text();
    fs::write(folder.join(CHECKSUMS), &sums).context("writing the checksums")?;
    print!("in {}:\n{sums}", folder.display());
    Ok(())
}
