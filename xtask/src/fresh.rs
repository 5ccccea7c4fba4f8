// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask fresh`: runs the first commands of README in a Debian that has only the packages
//! that README asks for.
//!
//! It has the sources of a clone, and this machine's rustup, crates and target directory at their
//! paths here, so that built crates need not be built again.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result};

use crate::arch::Arch;
use crate::process::{as_root, run_checked};
use crate::{clean, debian, paths, process};

/// Debian's packages that README names.
pub(crate) const PACKAGES: &[&str] = &["gcc", "libc6-dev"];

/// README's first commands, with options for full output.
pub(crate) const COMMANDS: [&str; 2] = [
    "cargo run --release -p npu-probe",
    "cargo test --no-fail-fast -- --show-output",
];

/// Copies the files of a clone of this work tree: those that git knows and that exist, as they are
/// now. Keeps their times, since cargo finds changes by them.
const COPY: &str = r#"
git ls-files --deleted >"$1.deleted"
git ls-files -z | tar --create --format=posix --anchored --exclude-from="$1.deleted" --null --files-from=- |
    tar --extract --directory="$1"
"#;

/// Makes the Debian root, runs the commands, and removes it.
pub(crate) fn run() -> Result<()> {
    let folder =
        std::path::absolute(paths::target().join("fresh")).context("finding the target")?;
    let remove = || run_checked(as_root("rm").arg("-rf").arg(&folder));
    remove()?;
    let outcome = make(&folder).and_then(|()| {
        COMMANDS.iter().try_for_each(|command| {
            println!("in a Debian with {}: {command}", PACKAGES.join(", "));
            let begin = Instant::now();
            run_checked(&mut inside(&folder, command)?)?;
            println!("{:8.1} s  {command}", begin.elapsed().as_secs_f64());
            Ok(())
        })
    });
    remove()?;
    outcome
}

fn make(folder: &Path) -> Result<()> {
    let sources = folder.join("sources");
    fs::create_dir_all(&sources).context("making a directory")?;
    run_checked(
        Command::new("sh")
            .args(["-euc", COPY, "sh"])
            .arg(&sources)
            .current_dir(paths::root()),
    )?;
    // Fetches the crates, since the root has no network.
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let mut fetch = Command::new("cargo");
    fetch.args(["fetch", "--quiet", "--locked", "--target", &target]);
    run_checked(fetch.current_dir(paths::root()))?;
    // Programs built here run on this machine's release.
    let release = output(". /etc/os-release; echo $VERSION_CODENAME")?;
    clean::make((&release, Arch::native()), PACKAGES, &folder.join("root"))
}

/// A command in the Debian root, at the root of the sources.
fn inside(folder: &Path, command: &str) -> Result<Command> {
    let cargo = paths::home("CARGO_HOME", ".cargo")?;
    let rustup = paths::home("RUSTUP_HOME", ".rustup")?;
    let target = std::path::absolute(paths::target()).context("finding the target")?;
    let mounts = [
        [&folder.join("sources"), paths::root()],
        [&target, &target],
        [&cargo, &cargo],
        [&rustup, &rustup],
    ];
    let user = format!("--userspec={}", output("id -u; id -g")?.replace('\n', ":"));
    let root = folder.join("root");
    let mut inside = clean::enter((&root, Arch::native()), &mounts, &[], &[user]);
    let set = |name: &str, value: &Path| format!("{name}={}", value.display());
    inside
        .args(["env", "--ignore-environment"])
        .arg(set("--chdir", paths::root()))
        .arg(set("CARGO_HOME", &cargo))
        .arg(set("CARGO_TARGET_DIR", &target))
        .arg(set("RUSTUP_HOME", &rustup))
        .args(["CARGO_NET_OFFLINE=true", "HOME=/tmp"])
        .arg(set("PATH", &cargo.join("bin")) + ":/usr/bin:/bin")
        .args(command.split(' '));
    Ok(inside)
}

/// The output of a shell script, without the last line end.
fn output(script: &str) -> Result<String> {
    let mut shell = Command::new("sh");
    shell.args(["-euc", script]);
    process::stdout(&shell, debian::LIMIT).with_context(|| script.to_owned())
}
