// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask fuzz`: builds the fuzzers, runs each for some time, and says
//! how much it tried.
//!
//! Corpora are kept as text, one input a line in hex, so that a repository of
//! hundreds of files of ten bytes is not needed and a change can be read.
//! What a run finds stays below `target/` until `--bless` takes it over.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::arch::Arch;
use crate::process::run_checked;
use crate::{nightly, paths};

/// What fuzzers are built for; naming it keeps build scripts and macros,
/// which run in the compiler, free of instrumentation.
const TRIPLE: &str = Arch::Amd64.rust_target();

/// Coverage for libFuzzer, and AddressSanitizer. Without `trace-compares`,
/// which takes more than half of the time: the targets build registers from
/// choices, so that there is no magic number to be guessed.
const RUSTFLAGS: &str = "--cfg fuzzing -Zsanitizer=address -Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-level=3 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table";

/// The targets, as `tests/fuzz` names them.
const TARGETS: [&str; 5] = [
    "pc_stream",
    "ioctl_sequence",
    "disassembly",
    "link",
    "capture",
];

/// When one input counts as a hang, in seconds, as too large, in MB, and how long it may be.
const LIMITS: &str = "-timeout=20 -rss_limit_mb=3072 -malloc_limit_mb=1024 -max_len=4096";

/// Options of `cargo xtask fuzz`.
#[derive(clap::Args, Debug)]
pub(crate) struct FuzzArgs {
    /// How long the targets run, all at once
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    seconds: u32,
    /// Run only these targets
    #[arg(long, value_name = "TARGET", value_delimiter = ',', value_parser = TARGETS)]
    only: Vec<String>,
    /// Afterwards reduce what is known of each target to the least inputs of
    /// the same coverage, and take them as its corpus
    #[arg(long)]
    bless: bool,
}

/// Builds the fuzzers, and runs those that `args` choose, all at once.
pub(crate) fn run(args: &FuzzArgs) -> Result<()> {
    nightly::install(&[])?;
    let mut build = nightly::cargo();
    build
        .args(["build", "--release", "--target", TRIPLE, "--target-dir"])
        .arg(work(""))
        .current_dir(paths::root().join("fuzz"))
        .env("RUSTFLAGS", RUSTFLAGS);
    run_checked(&mut build)?;
    let chosen =
        |target: &&str| args.only.is_empty() || args.only.iter().any(|name| name == target);
    let chosen: Vec<&str> = TARGETS.into_iter().filter(chosen).collect();
    let start = |target: &&str| start(target, args.seconds);
    let running = chosen.iter().map(start).collect::<Result<Vec<_>>>()?;
    // All of them end, whatever becomes of one.
    let ended: Vec<_> = chosen
        .iter()
        .zip(running)
        .map(|(target, child)| end(target, child))
        .collect();
    ended.into_iter().collect::<Result<()>>()?;
    if args.bless {
        chosen.iter().try_for_each(|target| bless(target))?;
    }
    Ok(())
}

/// Where everything of the fuzzers is built and kept: programs, and for each target `seeds`,
/// the corpus and the regressions of the repository, what was `found` on this machine, and
/// inputs that `failed`.
fn work(place: &str) -> PathBuf {
    paths::target().join("fuzz").join(place)
}

/// An empty directory below [`work`].
fn empty(place: &str) -> Result<PathBuf> {
    let folder = work(place);
    if folder.exists() {
        fs::remove_dir_all(&folder).context("removing old inputs")?;
    }
    fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
    Ok(folder)
}

fn fuzzer(target: &str) -> Command {
    let mut command = Command::new(work(&format!("{TRIPLE}/release/{target}")));
    let failed = work(&format!("failed/{target}"));
    command
        .args(LIMITS.split(' '))
        .arg(format!("-artifact_prefix={}/", failed.display()));
    command
}

fn start(target: &str, seconds: u32) -> Result<Child> {
    let seeds = empty(&format!("seeds/{target}"))?;
    for kind in ["corpus", "regressions"] {
        let inputs = unpack(&paths::text(&packed(kind, target))?)?;
        for (index, input) in inputs.into_iter().enumerate() {
            fs::write(seeds.join(format!("{kind}-{index}")), input).context("writing a seed")?;
        }
    }
    let found = work(&format!("found/{target}"));
    for folder in [&found, &work(&format!("failed/{target}"))] {
        fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
    }
    let log = fs::File::create(work(&format!("{target}.log"))).context("making a log")?;
    let mut command = fuzzer(target);
    command
        .arg(format!("-max_total_time={seconds}"))
        .arg("-print_final_stats=1");
    command
        .args([&found, &seeds])
        .stdin(Stdio::null())
        .stderr(log);
    command.spawn().with_context(|| format!("running {target}"))
}

/// Waits for a fuzzer; prints its statistics, or the whole output of a failure.
fn end(target: &str, mut running: Child) -> Result<()> {
    let status = running.wait().context("waiting for a fuzzer")?;
    let log = fs::read(work(&format!("{target}.log"))).context("reading a log")?;
    let log = String::from_utf8_lossy(&log);
    if !status.success() {
        eprintln!("{log}");
        let lines = log
            .lines()
            .skip_while(|line| !line.contains(" panicked at "));
        bail!(
            "{target} failed ({}); the input is in {}: add it to tests/fuzz/regressions/{target}.txt, \
             in hex and with a name, once it is fixed",
            lines.take(2).collect::<Vec<_>>().join(" "),
            work(&format!("failed/{target}")).display(),
        );
    }
    let count = statistic(&log, "stat::number_of_executed_units:")
        .with_context(|| format!("{target} ran, but gave no statistics"))?;
    let seconds = statistic(&log, " in ").unwrap_or_default();
    let edges = statistic(&log, " cov:").unwrap_or_default();
    println!("RESULT {target}: {count} inputs in {seconds} s, {edges} edges");
    Ok(())
}

/// Replaces the corpus of the repository.
fn bless(target: &str) -> Result<()> {
    let least = empty(&format!("least/{target}"))?;
    let mut merge = fuzzer(target);
    merge
        .arg("-set_cover_merge=1")
        .arg(&least)
        .stderr(Stdio::null());
    merge.args([
        work(&format!("seeds/{target}")),
        work(&format!("found/{target}")),
    ]);
    run_checked(&mut merge)?;
    let path = packed("corpus", target);
    fs::write(&path, pack(&least)?).with_context(|| format!("writing {}", path.display()))
}

/// The text file with inputs of a target.
fn packed(kind: &str, target: &str) -> PathBuf {
    paths::root().join(format!("tests/fuzz/{kind}/{target}.txt"))
}

/// The number after the last `key` of a log.
fn statistic(log: &str, key: &str) -> Option<u64> {
    let (_, after) = log.rsplit_once(key)?;
    after.split_whitespace().next()?.parse().ok()
}

/// The inputs of a text: the last word of each line that is no comment, in hex.
fn unpack(text: &str) -> Result<Vec<Vec<u8>>> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let input = |hex: &str| {
        ensure!(
            hex.len().is_multiple_of(2) && hex.is_ascii(),
            "{hex} is not hex"
        );
        let bytes = (0..hex.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&hex[at..at + 2], 16));
        bytes
            .collect::<Result<_, _>>()
            .with_context(|| format!("{hex} is not hex"))
    };
    lines
        .filter_map(|line| line.split_whitespace().last())
        .map(input)
        .collect()
}

/// The files of a folder as text, short ones first.
fn pack(folder: &Path) -> Result<String> {
    let mut inputs = Vec::new();
    for entry in fs::read_dir(folder).context("listing a corpus")? {
        inputs.push(fs::read(entry?.path()).context("reading an input")?);
    }
    inputs.retain(|input| !input.is_empty());
    inputs.sort_by(|a, b| (a.len(), a).cmp(&(b.len(), b)));
    let line = |input: Vec<u8>| {
        input
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect::<String>()
            + "\n"
    };
    Ok(
        "# SPDX-License-Identifier: MIT OR Apache-2.0\n# Written by `cargo xtask fuzz --bless`.\n"
            .to_owned()
            + &inputs.into_iter().map(line).collect::<String>(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_are_read_as_they_are_written() {
        let text = "# comment\n00ff10\nname 0a\n";
        assert_eq!(unpack(text).unwrap(), [vec![0, 0xff, 0x10], vec![10]]);
        assert!(unpack("0").is_err());
        assert!(unpack("zz").is_err());
    }

    /// The programs are those of the library.
    #[test]
    fn targets_are_those_of_the_crate() {
        let library = paths::text(&paths::root().join("tests/fuzz/src/lib.rs")).unwrap();
        for target in TARGETS {
            assert!(library.contains(&format!("(\"{target}\", {target})")));
            assert!(
                paths::root()
                    .join(format!("fuzz/fuzz_targets/{target}.rs"))
                    .exists()
            );
        }
    }
}
