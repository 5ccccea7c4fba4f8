// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask dist`: packages for Debian and its relatives, wheels for Python, and archives for
//! other systems, with their checksums.
//!
//! The same sources and tools give the same bytes: times are those of the commit, and no path of
//! this machine is included.

mod check;
mod licences;
mod start;
mod transcript;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::arch::{Arch, first_missing};
use crate::build::{self, GUEST_TARGET};
use crate::process::run_checked;
use crate::{links, pages, paths, process};

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

/// The workspace members in a wheel.
const IN_WHEEL: [&str; 3] = ["ggml-shim", "npu-matmul-c", "npu-probe"];
/// Those in the archive for systems without dpkg.
const IN_ARCHIVE: [&str; 4] = ["ggml-shim", "npu-matmul-c", "npu-probe", "rocket-preload"];
/// Those in the archive of static programs.
const IN_STATIC: [&str; 2] = ["npu-probe", "rocket-hw-tests"];
/// The programs that are shipped.
const PROGRAMS: [&str; 2] = ["--bin=npu-probe", "--bin=rocket-conformance"];
/// The features with which they write their man pages and completions.
const MANUALS: &str = "--features=npu-probe/manual,rocket-hw-tests/manual";

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
    /// Follow docs/start.md with the packages in a clean Debian 12, for arm64 under QEMU: build
    /// llama.cpp from source, which takes many minutes, and run a prompt on the software model
    #[arg(long)]
    follow: bool,
    /// Check the packages with lintian
    #[arg(long)]
    lintian: bool,
}

/// Makes everything, and checks it if asked.
pub(crate) fn run(args: &DistArgs) -> Result<()> {
    let only = args.arch.or(args.unoptimised.then(Arch::native));
    let mut archs = vec![Arch::Amd64, Arch::Arm64];
    archs.retain(|arch| only.is_none_or(|only| only == *arch));
    if !args.unoptimised {
        check_tools(&archs)?;
    }
    // Not target/dist, which is cargo's.
    let to = std::path::absolute(paths::target().join("packages"))?;
    // Nothing of an earlier version.
    let _ = fs::remove_dir_all(&to);
    let written = work("manuals")?;
    for folder in [&to, &written] {
        fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
    }
    write_pages(&work("pages")?)?;
    let mut all = Vec::new();
    for arch in archs {
        let members = &PACKAGES.map(|(_, members)| members).concat();
        let kinds = [&PROGRAMS[..], &["--lib", MANUALS]].concat();
        let built = if args.unoptimised {
            build::unshipped(members, &kinds)
        } else {
            build::shipped(members, &kinds, arch.rust_target())
        }?;
        manuals(&built, arch, &written)?;
        let make = |to: &Path| {
            let packages = PACKAGES.iter().map(|one| package(*one, &built, arch, to));
            packages.collect()
        };
        let packages: Vec<PathBuf> = make(&to)?;
        let make_others =
            |to: &Path| Ok(vec![wheel(&built, arch, to)?, archive(&built, arch, to)?]);
        let others: Vec<PathBuf> = make_others(&to)?;
        if args.check {
            check::same_again(&packages, make)?;
            check::same_again(&others, make_others)?;
            check::packages(&packages, arch)?;
        }
        if args.follow {
            start::follow(&packages, arch)?;
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
        all.extend(packages.into_iter().chain(others));
        if arch == Arch::Arm64 && !args.unoptimised {
            let built = build::shipped(&IN_STATIC, &PROGRAMS, GUEST_TARGET)?;
            let make = |to: &Path| Ok(vec![static_archive(&built, to)?]);
            let archive: Vec<PathBuf> = make(&to)?;
            if args.check {
                check::same_again(&archive, make)?;
                check::static_archive(&archive[0])?;
            }
            all.extend(archive);
        }
    }
    // The script prints checksums of the files in the folder.
    let mut sums = Command::new("sh");
    sums.args([
        "-euc",
        r#"sha256sum "$@" >SHA256SUMS; cat SHA256SUMS"#,
        "sh",
    ])
    .current_dir(&to);
    run_checked(sums.args(all.iter().filter_map(|file| file.file_name())))?;
    println!("wrote {} files to {}", all.len(), to.display());
    Ok(())
}

/// An error that names everything that is missing to build for `archs`, before a build begins.
fn check_tools(archs: &[Arch]) -> Result<()> {
    let mut targets: Vec<&str> = archs.iter().map(|arch| arch.rust_target()).collect();
    if archs.contains(&Arch::Arm64) {
        targets.push(GUEST_TARGET);
    }
    let mut missing = Vec::new();
    for target in targets {
        let mut rustc = Command::new("rustc");
        rustc.args(["--print", "target-libdir", "--target", target]);
        if !Path::new(&process::stdout(
            rustc.current_dir(paths::root()),
            process::LIMIT,
        )?)
        .exists()
        {
            missing.push(target);
        }
    }
    let mut todo = Vec::new();
    if !missing.is_empty() {
        todo.push(format!("rustup target add {}", missing.join(" ")));
    }
    let foreign = archs.iter().filter(|arch| !arch.is_native());
    let packages: Vec<String> = foreign
        .flat_map(|arch| {
            let compiler = format!("gcc-{}", arch.triplet().replace('_', "-"));
            [
                (arch.cross_linker(), compiler),
                // Runs the programs to write their manuals.
                (arch.emulator()[0].to_owned(), "qemu-user-static".to_owned()),
            ]
        })
        .filter(|(program, _)| first_missing([program]).is_some())
        .map(|(_, package)| package)
        .collect();
    if !packages.is_empty() {
        todo.push(format!("sudo apt install {}", packages.join(" ")));
    }
    ensure!(todo.is_empty(), "run first: {}", todo.join("; "));
    Ok(())
}

/// Makes a Debian package from `built` in the directory `to`; returns its file.
fn package(
    (name, members): (&str, &[&str]),
    built: &Path,
    arch: Arch,
    to: &Path,
) -> Result<PathBuf> {
    let file = to.join(format!("{name}_{VERSION}_{}.deb", arch.debian()));
    let mut script = script("deb.sh", built, &file)?;
    script.envs([
        ("PACKAGE", name),
        ("ARCH", arch.debian()),
        ("TRIPLET", arch.triplet()),
    ]);
    write_licences(members, arch.rust_target())?;
    run_checked(&mut script)?;
    Ok(file)
}

/// Makes a wheel for Python; returns its file.
fn wheel(built: &Path, arch: Arch, to: &Path) -> Result<PathBuf> {
    let cpu = arch.cpu();
    let file = to.join(format!(
        "rocket_npu-{VERSION}-py3-none-manylinux_2_36_{cpu}.whl"
    ));
    let mut script = script("wheel.py", built, &file)?;
    write_licences(&IN_WHEEL, arch.rust_target())?;
    run_checked(script.env("WHEEL_ARCH", cpu))?;
    Ok(file)
}

/// Makes the archive for systems without dpkg; returns its file.
fn archive(built: &Path, arch: Arch, to: &Path) -> Result<PathBuf> {
    let name = format!("rocket-npu-{VERSION}-{}", arch.cpu());
    let file = to.join(format!("{name}.tar.xz"));
    let mut script = script("archive.sh", built, &file)?;
    write_licences(&IN_ARCHIVE, arch.rust_target())?;
    run_checked(script.env("NAME", name))?;
    Ok(file)
}

/// Makes the archive of static programs; returns its file.
fn static_archive(built: &Path, to: &Path) -> Result<PathBuf> {
    let name = format!("rocket-npu-{VERSION}-aarch64-static");
    let file = to.join(format!("{name}.tar.xz"));
    let mut script = script("static.sh", built, &file)?;
    write_licences(&IN_STATIC, GUEST_TARGET)?;
    run_checked(script.env("NAME", name))?;
    Ok(file)
}

fn write_licences(members: &[&str], target: &str) -> Result<()> {
    if members.is_empty() {
        return Ok(());
    }
    let texts = licences::third_party(members, target)?;
    fs::write(work("licences")?, texts).context("writing licences")
}

/// The path of a file that packages are made from.
fn work(name: &str) -> Result<PathBuf> {
    Ok(std::path::absolute(
        paths::target().join("packaging").join(name),
    )?)
}

/// A script beside this file, with the variables that all scripts use.
fn script(name: &str, built: &Path, file: &Path) -> Result<Command> {
    let time = |format: &str| -> Result<String> {
        let mut git = Command::new("git");
        git.args(["log", "-1", "--date=rfc2822", format])
            .current_dir(paths::root());
        process::stdout(&git, process::LIMIT)
    };
    let program = if name.ends_with(".py") {
        "python3"
    } else {
        "sh"
    };
    let mut script = Command::new(program);
    script
        .arg(paths::root().join("xtask/src/dist").join(name))
        .current_dir(paths::root())
        .env("VERSION", VERSION)
        .env("BUILT", std::path::absolute(built)?)
        .env("MANUALS", work("manuals")?)
        .env("PAGES", work("pages")?)
        .env("STAGE", work("staging")?)
        .env("LICENCES", work("licences")?)
        .env("OUT", file)
        .env("SOURCE_DATE_EPOCH", time("--format=%ct")?)
        .env("DATE", time("--format=%cd")?);
    Ok(script)
}

/// Writes the pages of docs/ for a package, and their pictures.
fn write_pages(folder: &Path) -> Result<()> {
    // Removes files of an earlier call.
    let _ = fs::remove_dir_all(folder);
    fs::create_dir_all(folder)?;
    for (page, text) in pages::all(&["md", "svg"])? {
        let name = page.file_name().context("a page without a name")?;
        fs::write(folder.join(name), links::for_package(&text)).context("writing a page")?;
    }
    Ok(())
}

/// Runs the programs that were built for `arch` to write man pages and completions.
fn manuals(built: &Path, arch: Arch, folder: &Path) -> Result<()> {
    for (program, argument) in [("npu-probe", "manual"), ("rocket-conformance", "--manual")] {
        let mut run = arch.run(&built.join(program));
        run_checked(run.arg(argument).arg(folder))
            .with_context(|| format!("writing the manual of {program}"))?;
    }
    Ok(())
}
