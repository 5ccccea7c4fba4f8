// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs user commands in a clean Debian, compares their output with a golden file (`BLESS=1` writes
//! it), and prints the time of each command. The golden file has no times.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::arch::Arch;
use crate::process::{as_root, in_time, limited, run_checked};
use crate::{clean, debian, paths};

/// Time limit of a script, and of one under an emulator.
const LIMIT: Duration = Duration::from_secs(300);
const EMULATED_LIMIT: Duration = Duration::from_secs(3600);

/// A sed script that masks differences: numbers with a point and long numbers (sizes, times)
/// between machines, architecture names between packages.
const MASK: &str = r"s/[0-9]+(\.[0-9]+)+|[0-9]{5,}/N/g
s/(x86_64|aarch64)-linux-gnu/TRIPLET/g
s/_(amd64|arm64)\.deb/_ARCH.deb/g";

/// Copies a tree into another one, whose directories may be links (`/lib`).
const ADD: &str = r#"
tar --create --directory="$1" . |
    tar --extract --directory="$2" --keep-directory-symlink --skip-old-files --no-same-owner
"#;

/// A line of output, and its time since the start.
pub(super) type TimedLine = (Duration, String);

/// Runs the script `name` in a Debian `suite` with the packages `with`, and compares the output.
/// The script finds `packages` in /packages and the `added` files in /files, under the given names.
pub(super) fn check(
    name: &str,
    (suite, arch): (&str, Arch),
    with: &[&str],
    packages: &[PathBuf],
    added: &[(PathBuf, &str)],
) -> Result<()> {
    let scripts = paths::root().join("xtask/src/dist/transcripts");
    let golden = scripts.join(format!("{name}.txt"));
    let script = paths::text(&scripts.join(format!("{name}.sh")))?;
    let debian = CleanDebian::prepare((suite, arch), with, packages, added)?;
    fs::write(debian.files().join("script.sh"), &script)?;
    let mut inside = debian.enter();
    inside.args(["sh", "-c", "exec 2>&1; set -v; . /files/script.sh"]);
    let limit = if arch.is_native() {
        LIMIT
    } else {
        EMULATED_LIMIT
    };
    let (status, lines, whole) = run(&inside, limit)?;
    debian.remove()?;
    println!("the commands of {name}.sh in a clean Debian {suite} ({arch}):");
    print_times(&script, &lines, whole);
    let told = paths::target().join(format!("packaging/{name}-{arch}.txt"));
    let text: String = lines.into_iter().map(|(_, line)| line).collect();
    fs::write(&told, text).context("writing the transcript")?;
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
        status.success(),
        "the script in {suite} ended with {status}"
    );
    println!("PASS {name}.sh in a clean Debian {suite} ({arch}): it installs, works and goes");
    Ok(())
}

/// A Debian in a directory, with packages in /packages and files in /files.
pub(super) struct CleanDebian {
    folder: PathBuf,
    arch: Arch,
}

impl CleanDebian {
    /// Makes it. Its packages are fetched again after a day.
    pub(super) fn prepare(
        (suite, arch): (&str, Arch),
        with: &[&str],
        packages: &[PathBuf],
        added: &[(PathBuf, &str)],
    ) -> Result<Self> {
        let folder = paths::target().join(format!("packaging/check-{arch}"));
        let folder = std::path::absolute(folder)?;
        let debian = Self { folder, arch };
        debian.remove()?;
        let [root, debs, files] = debian.places();
        for folder in [&root, &debs, &files] {
            fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
        }
        for package in packages {
            fs::copy(package, debs.join(package.file_name().unwrap_or_default()))?;
        }
        for (file, name) in added {
            fs::copy(file, files.join(name)).with_context(|| format!("copying {name}"))?;
        }
        let name = [&[suite, arch.debian()], with].concat().join("+");
        let archive = paths::target().join(format!("debian/{name}.tar"));
        if !debian::is_fresh(&archive) {
            fs::create_dir_all(archive.with_file_name("")).context("making a directory")?;
            clean::make((suite, arch), with, &archive)?;
        }
        let mut extract = as_root("tar");
        extract.args([
            "--extract",
            "--numeric-owner",
            "--exclude=./dev/*",
            "--file",
        ]);
        run_checked(extract.arg(archive).arg("--directory").arg(&root))?;
        Ok(debian)
    }

    fn places(&self) -> [PathBuf; 3] {
        ["root", "packages", "files"].map(|name| self.folder.join(name))
    }

    /// The directory of /files.
    pub(super) fn files(&self) -> PathBuf {
        let [_, _, files] = self.places();
        files
    }

    /// Adds the files below `folder` that it does not have.
    pub(super) fn add(&self, folder: &Path) -> Result<()> {
        let [root, _, _] = self.places();
        let mut copy = as_root("sh");
        copy.args(["-euc", ADD, "sh"]).arg(folder).arg(root);
        run_checked(&mut copy)
    }

    /// A command that runs the program which the caller adds, with arguments, without a network.
    pub(super) fn enter(&self) -> Command {
        let [root, debs, files] = self.places();
        let mounts = [
            [&*debs, Path::new("/packages")],
            [&*files, Path::new("/files")],
        ];
        let mut inside = clean::enter((&root, self.arch), &mounts, &["--net"], &[]);
        inside.args([
            "env",
            "-i",
            "HOME=/root",
            "PATH=/usr/sbin:/usr/bin:/sbin:/bin",
            "LC_ALL=C.UTF-8",
        ]);
        inside
    }

    /// Removes it.
    pub(super) fn remove(&self) -> Result<()> {
        run_checked(as_root("rm").arg("-rf").arg(&self.folder))
    }
}

/// Prints the lines of `script`, each with the time that it took.
pub(super) fn print_times(script: &str, output: &[TimedLine], whole: Duration) {
    for (command, took) in durations(script, output, whole) {
        println!("{:8.1} s  {command}", took.as_secs_f64());
    }
}

/// Runs `command`; returns its exit status, its output and the total time.
pub(super) fn run(
    command: &Command,
    limit: Duration,
) -> Result<(ExitStatus, Vec<TimedLine>, Duration)> {
    let begin = Instant::now();
    let mut limited = limited(command, limit);
    limited.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = limited.spawn().context("starting timeout")?;
    let mut lines = Vec::new();
    if let Some(output) = child.stdout.take() {
        let mut output = BufReader::new(output);
        let mut line = Vec::new();
        while output.read_until(b'\n', &mut line).context("reading")? > 0 {
            lines.push((begin.elapsed(), String::from_utf8_lossy(&line).into_owned()));
            line.clear();
        }
    }
    let status = child.wait().context("waiting")?;
    in_time(status, limit)
        .with_context(|| format!("running {}", command.get_program().display()))?;
    Ok((status, lines, begin.elapsed()))
}

/// The lines of `script`, each with the time from its echo in the output to the next echo.
fn durations<'a>(
    script: &'a str,
    output: &[TimedLine],
    whole: Duration,
) -> Vec<(&'a str, Duration)> {
    let mut starts = Vec::new();
    let mut commands = script.lines().peekable();
    for (at, line) in output {
        if let Some(command) = commands.next_if(|&next| next == line.trim_end()) {
            starts.push((command, *at));
        }
    }
    let ends = starts.iter().skip(1).map(|(_, at)| *at).chain([whole]);
    let pairs = starts.iter().zip(ends);
    pairs
        .map(|((command, start), end)| (*command, end.saturating_sub(*start)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_has_the_time_until_the_next() {
        let ms = Duration::from_millis;
        let output = [(1, "ls"), (3, "a"), (4, "ls"), (5, "cat b"), (9, "ls")];
        let output = output.map(|(at, line)| (ms(at), format!("{line}\n")));
        let expected = [("ls", ms(4)), ("cat b", ms(6))];
        assert_eq!(durations("ls\ncat b\n", &output, ms(11)), expected);
        assert_eq!(durations("", &output, ms(11)), []);
    }

    #[test]
    fn output_comes_with_its_times() {
        let mut shell = Command::new("sh");
        shell.args(["-c", "echo a; printf b; exit 3"]);
        let (status, lines, whole) = run(&shell, LIMIT).unwrap();
        assert_eq!(status.code(), Some(3));
        let texts: Vec<_> = lines.iter().map(|(_, text)| &text[..]).collect();
        assert_eq!(texts, ["a\n", "b"]);
        assert!(lines.is_sorted_by_key(|(at, _)| *at) && lines[1].0 <= whole);
    }
}
