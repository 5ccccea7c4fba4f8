// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask fuzz`: builds the fuzzers, runs each for some time, and says
//! how much it tried.
//!
//! Corpora are kept as text, one input a line in hex, so that a repository of
//! hundreds of files of ten bytes is not needed and a change can be read.
//! What a run finds stays below `target/` until `--bless` takes it over.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::{self, ScopedJoinHandle};

use anyhow::{Context, Result, anyhow, bail, ensure};

use crate::arch::Arch;
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

/// Seconds after which one input counts as a hang.
const INPUT_SECONDS: u32 = 20;
/// Most memory of a fuzzer, MB; and most memory that is asked for at once.
const MEMORY_MB: u32 = 3072;
const ALLOCATION_MB: u32 = 1024;
/// Longest input, bytes.
const INPUT_BYTES: u32 = 4096;

/// Options of `cargo xtask fuzz`.
#[derive(clap::Args, Debug)]
pub(crate) struct FuzzArgs {
    /// How long the targets run, all at once
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    seconds: u32,
    /// Run only these targets
    #[arg(long, value_name = "TARGET", value_delimiter = ',')]
    only: Vec<String>,
    /// Afterwards reduce what is known of each target to the least inputs of
    /// the same coverage, and take them as its corpus
    #[arg(long)]
    bless: bool,
}

/// Builds the fuzzers, and runs those that `args` choose, all at once.
pub(crate) fn run(args: &FuzzArgs) -> Result<()> {
    for name in &args.only {
        ensure!(
            TARGETS.contains(&name.as_str()),
            "no fuzz target is called {name}; there are {}",
            TARGETS.join(", ")
        );
    }
    nightly::install(&[])?;
    build()?;
    let chosen = TARGETS
        .into_iter()
        .filter(|target| args.only.is_empty() || args.only.iter().any(|name| name == target))
        .map(Fuzzer::new)
        .collect::<Result<Vec<_>>>()?;
    let results: Vec<_> = thread::scope(|scope| {
        let running: Vec<_> = chosen
            .iter()
            .map(|fuzzer| scope.spawn(|| fuzzer.run(args.seconds)))
            .collect();
        running.into_iter().map(ScopedJoinHandle::join).collect()
    });
    for result in results {
        result.map_err(|_| anyhow!("a fuzzer's thread panicked"))??;
    }
    if args.bless {
        chosen.iter().try_for_each(Fuzzer::bless)?;
    }
    Ok(())
}

/// Where everything of the fuzzers is built and kept.
fn work() -> PathBuf {
    paths::target().join("fuzz")
}

fn build() -> Result<()> {
    let status = nightly::cargo()
        .args(["build", "--release", "--target", TRIPLE, "--target-dir"])
        .arg(work())
        .current_dir(paths::root().join("fuzz"))
        .env("RUSTFLAGS", RUSTFLAGS)
        .status()
        .context("running cargo")?;
    ensure!(status.success(), "the fuzzers do not build: {status}");
    Ok(())
}

/// One target with its folders.
struct Fuzzer {
    target: &'static str,
    binary: PathBuf,
    /// The corpus and the regressions of the repository, unpacked.
    seeds: PathBuf,
    /// What earlier runs on this machine found.
    found: PathBuf,
    /// Inputs that failed.
    failed: PathBuf,
}

impl Fuzzer {
    fn new(target: &'static str) -> Result<Self> {
        let folder = |kind: &str| work().join(kind).join(target);
        let fuzzer = Self {
            target,
            binary: work().join(TRIPLE).join("release").join(target),
            seeds: folder("seeds"),
            found: folder("found"),
            failed: folder("failed"),
        };
        if fuzzer.seeds.exists() {
            fs::remove_dir_all(&fuzzer.seeds).context("removing old seeds")?;
        }
        for folder in [&fuzzer.seeds, &fuzzer.found, &fuzzer.failed] {
            fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
        }
        for kind in ["corpus", "regressions"] {
            let path = packed(kind, target);
            let text = paths::text(&path)?;
            for (index, input) in unpack(&text)?.into_iter().enumerate() {
                fs::write(fuzzer.seeds.join(format!("{kind}-{index}")), input)
                    .context("writing a seed")?;
            }
        }
        Ok(fuzzer)
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.binary);
        command.args([
            format!("-timeout={INPUT_SECONDS}"),
            format!("-rss_limit_mb={MEMORY_MB}"),
            format!("-malloc_limit_mb={ALLOCATION_MB}"),
            format!("-max_len={INPUT_BYTES}"),
            format!("-artifact_prefix={}/", self.failed.display()),
        ]);
        command
    }

    /// Runs for `seconds`; prints the statistics, or the whole output of a
    /// failure.
    fn run(&self, seconds: u32) -> Result<()> {
        let output = self
            .command()
            .arg(format!("-max_total_time={seconds}"))
            .arg("-print_final_stats=1")
            .args([&self.found, &self.seeds])
            .stdin(Stdio::null())
            .output()
            .with_context(|| format!("running {}", self.binary.display()))?;
        let log = String::from_utf8_lossy(&output.stderr);
        if !output.status.success() {
            eprintln!("{log}");
            let mut lines = log
                .lines()
                .skip_while(|line| !line.contains(" panicked at "));
            let panic: Vec<_> = lines.by_ref().take(2).collect();
            bail!(
                "{} failed ({}); the input is in {}: add it to tests/fuzz/regressions/{}.txt, in hex \
                 and with a name, once it is fixed",
                self.target,
                panic.join(" "),
                self.failed.display(),
                self.target
            );
        }
        let count = statistic(&log, "stat::number_of_executed_units:")
            .with_context(|| format!("{} ran, but gave no statistics", self.target))?;
        let edges = statistic(&log, " cov:").unwrap_or_default();
        println!(
            "RESULT {}: {count} inputs in {seconds} s, {edges} edges",
            self.target
        );
        Ok(())
    }

    /// Replaces the corpus of the repository.
    fn bless(&self) -> Result<()> {
        let least = work().join("least").join(self.target);
        if least.exists() {
            fs::remove_dir_all(&least).context("removing an old corpus")?;
        }
        fs::create_dir_all(&least).context("making a folder")?;
        let status = self
            .command()
            .arg("-set_cover_merge=1")
            .args([&least, &self.seeds, &self.found])
            .stderr(Stdio::null())
            .status()
            .context("reducing a corpus")?;
        ensure!(status.success(), "reducing {}: {status}", self.target);
        let path = packed("corpus", self.target);
        fs::write(&path, pack(&least)?).with_context(|| format!("writing {}", path.display()))
    }
}

/// The text file with inputs of a target.
fn packed(kind: &str, target: &str) -> PathBuf {
    let folder = paths::root().join("tests/fuzz").join(kind);
    folder.join(target).with_extension("txt")
}

/// The number after the last `key` of a log.
fn statistic(log: &str, key: &str) -> Option<u64> {
    let (_, after) = log.rsplit_once(key)?;
    after.split_whitespace().next()?.parse().ok()
}

/// The inputs of a text: the last word of each line that is no comment.
fn unpack(text: &str) -> Result<Vec<Vec<u8>>> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .filter_map(|line| line.split_whitespace().last())
        .map(|hex| from_hex(hex).with_context(|| format!("{hex} is not hex")))
        .collect()
}

fn from_hex(hex: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = hex.as_bytes().as_chunks::<2>();
    let byte = |pair: &[u8; 2]| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok();
    if !rest.is_empty() {
        return None;
    }
    pairs.iter().map(byte).collect()
}

/// The files of a folder as text, short ones first.
fn pack(folder: &Path) -> Result<String> {
    let mut inputs = Vec::new();
    for entry in fs::read_dir(folder).context("listing a corpus")? {
        inputs.push(fs::read(entry?.path()).context("reading an input")?);
    }
    inputs.retain(|input| !input.is_empty());
    inputs.sort_by(|a, b| (a.len(), a).cmp(&(b.len(), b)));
    let mut text = String::from(
        "# SPDX-License-Identifier: MIT OR Apache-2.0\n# Written by `cargo xtask fuzz --bless`.\n",
    );
    for input in inputs {
        for byte in input {
            write!(text, "{byte:02x}")?;
        }
        text.push('\n');
    }
    Ok(text)
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

    #[test]
    fn statistics_are_the_last_ones() {
        let log = "#1 cov: 3 ft: 4\n#9 DONE cov: 12 ft: 5\nstat::number_of_executed_units: 77\n";
        assert_eq!(statistic(log, " cov:"), Some(12));
        assert_eq!(statistic(log, "stat::number_of_executed_units:"), Some(77));
        assert_eq!(statistic(log, "stat::none:"), None);
    }

    /// The programs are those of the library.
    #[test]
    fn targets_are_those_of_the_crate() {
        let library = fs::read_to_string(paths::root().join("tests/fuzz/src/lib.rs")).unwrap();
        for target in TARGETS {
            assert!(library.contains(&format!("(\"{target}\", {target})")));
            assert!(
                paths::root()
                    .join("fuzz/fuzz_targets")
                    .join(target)
                    .with_extension("rs")
                    .exists()
            );
        }
    }
}
