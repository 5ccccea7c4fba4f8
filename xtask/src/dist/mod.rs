// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask dist`: packages for Debian and its relatives, and an archive of
//! programs for any aarch64 Linux, with their checksums.
//!
//! The same sources and tools give the same bytes: times are those of the commit, and no path of
//! this machine is included.

mod check;
mod licences;
mod transcript;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::arch::Arch;
use crate::build::{self, GUEST_TARGET};
use crate::process::run_checked;
use crate::{links, paths, process};

/// Version of all packages.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The Debian packages, and the workspace members in each.
const PACKAGES: [(&str, &[&str]); 5] = [
    ("npu-probe", &["npu-probe", "rocket-preload"]),
    ("libggml-rocket", &["ggml-shim"]),
    ("rocket-conformance", &["rocket-hw-tests"]),
    ("librocket-npu0", &["npu-matmul-c"]),
    ("librocket-npu-dev", &[]),
];

/// The workspace members in the archive.
const IN_ARCHIVE: [&str; 2] = ["npu-probe", "rocket-hw-tests"];
/// The programs that are shipped.
const PROGRAMS: [&str; 2] = ["--bin=npu-probe", "--bin=rocket-conformance"];

/// Options of `dist`.
#[derive(Debug, clap::Args)]
pub(crate) struct DistArgs {
    /// Only for this architecture [default: for both]
    #[arg(long, value_enum)]
    arch: Option<Arch>,
    /// Install, run and remove the packages in a clean Debian, for arm64 under QEMU
    #[arg(long)]
    check: bool,
    /// Package the build for this machine that the tests use, which takes less time: to check the
    /// packaging
    #[arg(long, conflicts_with = "arch")]
    unoptimised: bool,
    /// Check the packages with lintian
    #[arg(long)]
    lintian: bool,
}

/// Makes everything, and checks it if asked.
pub(crate) fn run(args: &DistArgs) -> Result<()> {
    let to = std::path::absolute(paths::target().join("dist"))?;
    fs::create_dir_all(to.join("manuals")).with_context(|| format!("making {}", to.display()))?;
    manuals(&to.join("manuals"))?;
    pages(&to.join("pages"))?;
    let mut all = Vec::new();
    let only = args.arch.or(args.unoptimised.then(Arch::native));
    for arch in [Arch::Amd64, Arch::Arm64] {
        if only.is_some_and(|only| only != arch) {
            continue;
        }
        let members = &PACKAGES.map(|(_, members)| members).concat();
        let kinds = [&PROGRAMS[..], &["--lib"]].concat();
        let built = if args.unoptimised {
            build::unshipped(members, &kinds)
        } else {
            build::shipped(members, &kinds, arch.rust_target())
        }?;
        let make = |to: &Path| {
            PACKAGES
                .iter()
                .map(|one| package(*one, &built, arch, to))
                .collect()
        };
        let packages: Vec<PathBuf> = make(&to)?;
        if args.check {
            check::same_again(&packages, make)?;
            check::packages(&packages, arch)?;
        }
        if args.lintian {
            let options = [
                "--allow-root",
                "--fail-on=error,warning",
                "--tag-display-limit=0",
            ];
            run_checked(Command::new("lintian").args(options).args(&packages))?;
            println!("PASS lintian: {} packages", packages.len());
        }
        all.extend(packages);
        if arch == Arch::Arm64 && !args.unoptimised {
            let built = build::shipped(&IN_ARCHIVE, &PROGRAMS, GUEST_TARGET)?;
            let make = |to: &Path| Ok(vec![archive(&built, to)?]);
            let archive: Vec<PathBuf> = make(&to)?;
            if args.check {
                check::same_again(&archive, make)?;
                check::archive(&archive[0])?;
            }
            all.extend(archive);
        }
    }
    // The script prints checksums of the files in the folder.
    let mut sums = Command::new("sh");
    sums.args(["-euc", r#"sha256sum "$@" | tee SHA256SUMS"#, "sh"])
        .current_dir(&to);
    run_checked(sums.args(all.iter().filter_map(|file| file.file_name())))
}

/// Makes a Debian package from `built` in the directory `to`; returns its file.
fn package(
    (name, members): (&str, &[&str]),
    built: &Path,
    arch: Arch,
    to: &Path,
) -> Result<PathBuf> {
    let file = to.join(format!("{name}_{VERSION}_{}.deb", arch.debian()));
    let mut script = script("deb.sh", built, to, &file)?;
    script.envs([
        ("PACKAGE", name),
        ("ARCH", arch.debian()),
        ("TRIPLET", arch.triplet()),
    ]);
    write_licences(to, members, arch.rust_target())?;
    run_checked(&mut script)?;
    Ok(file)
}

/// Makes the archive of static programs; returns its file.
fn archive(built: &Path, to: &Path) -> Result<PathBuf> {
    let name = format!("rocket-npu-{VERSION}-aarch64-static");
    let file = to.join(format!("{name}.tar.xz"));
    let mut script = script("tarball.sh", built, to, &file)?;
    write_licences(to, &IN_ARCHIVE, GUEST_TARGET)?;
    run_checked(script.env("NAME", name))?;
    Ok(file)
}

fn write_licences(to: &Path, members: &[&str], target: &str) -> Result<()> {
    if members.is_empty() {
        return Ok(());
    }
    let texts = licences::third_party(members, target)?;
    fs::write(to.join("licences"), texts).context("writing licences")
}

/// A script beside this file, with the variables that all scripts use.
fn script(name: &str, built: &Path, to: &Path, file: &Path) -> Result<Command> {
    let time = |format: &str| -> Result<String> {
        let mut git = Command::new("git");
        git.args(["log", "-1", "--date=rfc2822", format])
            .current_dir(paths::root());
        process::stdout(&git, process::LIMIT)
    };
    let mut script = Command::new("sh");
    script
        .arg(paths::root().join("xtask/src/dist").join(name))
        .current_dir(paths::root())
        .env("VERSION", VERSION)
        .env("BUILT", std::path::absolute(built)?)
        .env("MANUALS", paths::target().join("dist/manuals"))
        .env("PAGES", paths::target().join("dist/pages"))
        .env("STAGE", to.join("staging"))
        .env("LICENCES", to.join("licences"))
        .env("OUT", file)
        .env("SOURCE_DATE_EPOCH", time("--format=%ct")?)
        .env("DATE", time("--format=%cd")?);
    Ok(script)
}

/// Writes the pages of docs/ for a package, and their pictures.
fn pages(folder: &Path) -> Result<()> {
    // Removes files of an earlier call.
    let _ = fs::remove_dir_all(folder);
    fs::create_dir_all(folder)?;
    for page in paths::files(&paths::root().join("docs"), &["md", "svg"])? {
        let name = page.file_name().context("a page without a name")?;
        let text = links::for_package(&paths::text(&page)?);
        fs::write(folder.join(name), text).context("writing a page")?;
    }
    Ok(())
}

/// Runs the programs to write man pages and completions.
fn manuals(folder: &Path) -> Result<()> {
    for (package, program, argument) in [
        ("npu-probe", "npu-probe", "manual"),
        ("rocket-hw-tests", "rocket-conformance", "--manual"),
    ] {
        let mut cargo = Command::new("cargo");
        cargo
            .args(["run", "--quiet", "--features=manual", "--package", package])
            .args(["--bin", program, "--", argument])
            .arg(folder)
            .current_dir(paths::root());
        run_checked(&mut cargo)?;
    }
    Ok(())
}
