// SPDX-License-Identifier: MIT OR Apache-2.0
//! Has a shell do in a clean Debian what users do, and compares all that it writes
//! with what it wrote when somebody last looked (`BLESS=1` takes it as right).

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::process::{as_root, run_checked};
use crate::{debian, fresh, paths, process};

/// Where the transcripts are.
const FOLDER: &str = "xtask/src/dist/transcripts";
/// Time that a script may take.
const LIMIT: Duration = Duration::from_secs(300);

/// Runs a script in the root $1 with the packages of $2 and the files of $3.
const ENTER: &str = r#"
mkdir -p "$1/packages" "$1/files"
mount --bind "$2" "$1/packages"
mount --bind "$3" "$1/files"
mount -t proc proc "$1/proc"
exec chroot "$1" env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 \
    sh -c 'exec 2>&1; set -v; . /files/script.sh'
"#;

/// A Debian with few packages, and what is done there.
pub(super) struct CleanDebian {
    pub(super) suite: &'static str,
    /// Packages besides those that each Debian has.
    pub(super) packages: &'static [&'static str],
    pub(super) script: &'static str,
    /// File with what the script writes.
    pub(super) golden: &'static str,
}

/// Runs the script of `debian` and compares; it finds `packages` and the `model`.
pub(super) fn check(debian: &CleanDebian, packages: &[PathBuf], model: &Path) -> Result<()> {
    let folder = std::path::absolute(paths::target().join("dist/check"))?;
    let root = folder.join("root");
    let [debs, files] = ["packages", "files"].map(|name| folder.join(name));
    run_checked(as_root("rm").arg("-rf").arg(&folder))?;
    for folder in [&root, &debs, &files] {
        fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
    }
    for package in packages {
        fs::copy(package, debs.join(package.file_name().unwrap_or_default()))
            .context("copying a package")?;
    }
    fs::copy(model, files.join("tiny.gguf")).context("copying the model")?;
    fs::write(files.join("script.sh"), debian.script).context("writing the script")?;
    let archive = cached(debian)?;
    run_checked(
        as_root("tar")
            .args([
                "--extract",
                "--numeric-owner",
                "--exclude=./dev/*",
                "--file",
            ])
            .arg(archive)
            .arg("--directory")
            .arg(&root),
    )?;
    let mut inside = as_root("unshare");
    inside
        .args(["--mount", "--pid", "--net", "--fork", "--kill-child"])
        .args(["sh", "-euc", ENTER, "sh"])
        .args([&root, &debs, &files]);
    let output = process::run(inside, LIMIT)?;
    let text = masked(&output.text());
    run_checked(as_root("rm").arg("-rf").arg(&folder))?;
    compare(debian, &text)?;
    if !output.status.success() {
        bail!(
            "the script in {} ended with {}:\n{text}",
            debian.suite,
            output.status
        );
    }
    println!(
        "PASS a clean Debian {}: packages come, work and go",
        debian.suite
    );
    Ok(())
}

/// The archive of such a Debian, made anew each day.
fn cached(debian: &CleanDebian) -> Result<PathBuf> {
    let folder = paths::target().join("debian");
    fs::create_dir_all(&folder).context("making a directory")?;
    let archive = folder.join(format!("{}.tar", debian.suite));
    let wanted = folder.join(format!("{}.packages", debian.suite));
    let had = fs::read_to_string(&wanted).unwrap_or_default();
    let list = debian.packages.join(",");
    if had == list && debian::is_fresh(&archive) {
        return Ok(archive);
    }
    println!("making a Debian {} with {list}", debian.suite);
    let settings = folder.join("apt.conf");
    fs::write(&settings, fresh::apt_settings()?).context("writing settings for apt")?;
    let mut command = as_root("mmdebstrap");
    command
        .args(["--quiet", "--variant=essential", "--format=tar"])
        .arg(format!("--aptopt={}", settings.display()));
    if !list.is_empty() {
        command.arg(format!("--include={list}"));
    }
    command.arg(debian.suite).arg(&archive);
    run_checked(command.arg(debian::source(debian.suite)?))?;
    fs::write(&wanted, list).context("writing what it has")?;
    Ok(archive)
}

/// `text` with an N for each number with a point, and for each that is as long as
/// sizes and times are: other machines have others.
fn masked(text: &str) -> String {
    let mut masked = String::new();
    let mut rest = text;
    while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
        let (before, number) = rest.split_at(start);
        let is_inside = |c: char| c.is_ascii_digit() || c == '.';
        let end = number.find(|c| !is_inside(c)).unwrap_or(number.len());
        let (number, after) = number.split_at(end);
        let digits = number.trim_end_matches('.');
        masked += before;
        masked += match digits.contains('.') || digits.len() > 4 {
            true => "N",
            false => digits,
        };
        masked += &number[digits.len()..];
        rest = after;
    }
    masked + rest
}

fn compare(debian: &CleanDebian, text: &str) -> Result<()> {
    let file = paths::root().join(FOLDER).join(debian.golden);
    if std::env::var_os("BLESS").is_some() {
        return fs::write(&file, text).context("writing the transcript");
    }
    let golden = paths::text(&file)?;
    if text == golden {
        return Ok(());
    }
    let mut lines = golden.lines().zip(text.lines()).enumerate();
    match lines.find(|(_, (golden, text))| golden != text) {
        Some((index, (golden, text))) => bail!(
            "{} line {}: `{golden}` is now `{text}`",
            file.display(),
            index + 1
        ),
        None => bail!("{} has another number of lines now", file.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_differ_are_masked() {
        let text = "wall time 0.496 ms, 64 rows, 21472 files. Version 6.18.44-fc, 25.";
        let masked = masked(text);
        assert_eq!(
            masked,
            "wall time N ms, 64 rows, N files. Version N-fc, 25."
        );
    }
}
