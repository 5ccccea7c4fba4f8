// SPDX-License-Identifier: MIT OR Apache-2.0
//! Check: one library serves every layout of ggml's backend interface.
//!
//! A small host in C, `xtask/scripts/ggml_host.c`, loads the ggml of a
//! distribution as programs do and lets it load its backends; what it then
//! prints about our device must be right. Debian's ggml is of the newest layout;
//! the binaries that come with node-llama-cpp have those of former ones, have
//! other SONAMEs, and are loaded with RTLD_LOCAL.

mod npm;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::stats::StatsTable;
use super::stock::{Backend, Stock};
use crate::arch::Arch;
use crate::paths;
use crate::process::{self, CommandOutput};
use crate::report::{CheckVerdict, VerdictTally};

/// Name of the checks.
pub(super) const NAME: &str = "hosts";
const LIMIT: Duration = Duration::from_secs(120);
const COMPILE_LIMIT: Duration = Duration::from_secs(60);

/// What the host in C must print, by the first word of the line: the
/// beginnings of the lines, in order.
const EXPECTED: [(&str, &[&str]); 6] = [
    (
        "product",
        &[
            "F16 own in CPU:",
            "F16 lent in ",
            "Q8_0 own in ",
            "Q8_0 lent in ",
            "Q4_0 own in ",
            "Q4_K own in ",
            // After the backend was loaded again.
            "F16 own in CPU:",
        ],
    ),
    ("feature", &["DEVICE = ", "PRECISION = ", "MIN_M = "]),
    // Those of the backend: as many as were set, and none when it is freed.
    ("threads", &["1 of 1", "3 of 3", "0 of 0"]),
    // Before the second of two products, and not when the callback is gone.
    ("abort", &["after 2: aborted", "after 0: computed"]),
    // Weights of before, with the backend unloaded.
    ("left", &["on_cpu good"]),
    ("loaded", &["again"]),
];

/// A value of `GGML_ROCKET_PRECISION`, and what comes out.
#[derive(Clone, Copy)]
struct PrecisionSetting {
    word: &'static str,
    /// The precisions that products may be computed in.
    computed: &'static [&'static str],
    /// Normalised mean square error that the products may have against the CPU's.
    limit: &'static str,
}

/// With each layout, and where ggml's own tests draw the line.
const AUTO: PrecisionSetting = PrecisionSetting {
    word: "auto",
    computed: &["fp16", "int8-hadamard"],
    limit: "5e-4",
};

/// What somebody may ask for, with one layout: about
/// twice what is seen. Numbers that have nothing to do with the CPU's are 1 to 2
/// apart from them.
const OTHERS: [PrecisionSetting; 5] = [
    PrecisionSetting {
        word: "w8a8",
        computed: &["int8"],
        limit: "2.5e-4",
    },
    PrecisionSetting {
        word: "w8a8-hadamard",
        computed: &["int8-hadamard"],
        limit: "5e-4",
    },
    PrecisionSetting {
        word: "w4a8",
        computed: &["w4a8"],
        limit: "0.02",
    },
    PrecisionSetting {
        word: "w4a8-hadamard",
        computed: &["w4a8-hadamard"],
        limit: "0.02",
    },
    PrecisionSetting {
        word: "w4a4-hadamard",
        computed: &["int4-hadamard"],
        limit: "0.08",
    },
];

/// A version of node-llama-cpp's binaries, and what is in it.
struct Prebuilt {
    /// npm's version of the package.
    package: &'static str,
    /// Version of the ggml in it, as its `ggml_version` says.
    ggml: &'static str,
    expected: Expected,
    /// What differs where the binaries are built for any 64-bit ARM, whose
    /// kernels want no other order.
    expected_on_arm: Expected,
}

/// Weights in plain memory, and in memory in an order of the CPU's.
const REARRANGES: Expected = Expected::Serves { rearranges: true };
const PLAIN: Expected = Expected::Serves { rearranges: false };
/// The refusal that a ggml older than the first layout gets.
const TOO_OLD: Expected = Expected::Refuses("is older than 0.9.1");

/// What a host must do with the backend.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Expected {
    /// Compute with it; whether the CPU's kernels rearrange Q4_0 weights.
    Serves { rearranges: bool },
    /// Go on without, after a line with this in it.
    Refuses(&'static str),
}

/// One of each layout before Debian's, and the last before them.
const PREBUILT: [Prebuilt; 4] = [
    Prebuilt {
        package: "3.13.0",
        ggml: "0.0.1",
        expected: TOO_OLD,
        expected_on_arm: TOO_OLD,
    },
    // Does not mark the nodes that are to be computed.
    Prebuilt {
        package: "3.14.0",
        ggml: "0.9.4",
        expected: REARRANGES,
        expected_on_arm: PLAIN,
    },
    // Does.
    Prebuilt {
        package: "3.16.2",
        ggml: "0.9.7",
        expected: REARRANGES,
        expected_on_arm: PLAIN,
    },
    Prebuilt {
        package: "3.22.1",
        ggml: "0.25.1",
        expected: REARRANGES,
        expected_on_arm: REARRANGES,
    },
];

/// Loads the backend into each host; a verdict for each.
pub(super) fn check(stock: &Stock, report: &mut VerdictTally) {
    let program = match compile(stock.arch(), "ggml_host") {
        Ok(program) => program,
        Err(error) => return report.error(NAME, &error),
    };
    report.add(
        &format!("{NAME} Debian, ggml {}", stock.ggml_version()),
        debian(stock, &program, AUTO),
    );
    for precision in OTHERS {
        let name = format!("{NAME} Debian, {}", precision.word);
        report.add(&name, debian(stock, &program, precision));
    }
    for prebuilt in &PREBUILT {
        let Prebuilt { package, ggml, .. } = prebuilt;
        let name = format!("{NAME} node-llama-cpp {package}, ggml {ggml}");
        report.set_host(ggml);
        let outcome = match npm::missing_program() {
            Some(missing) => Ok(CheckVerdict::Skip(format!(
                "needs the program {missing}, which this machine does not have"
            ))),
            None => node(stock, &program, prebuilt),
        };
        report.add(&name, outcome);
    }
    report.set_host(stock.ggml_version());
}

/// npm's name of the binaries of a release of node-llama-cpp.
pub(super) fn node_binaries(arch: Arch, version: &str) -> String {
    npm::specification(arch, version)
}

/// Compiles a host in C, `xtask/scripts/NAME.c`.
pub(super) fn compile(arch: Arch, name: &str) -> Result<PathBuf> {
    let directory = paths::target().join("llama");
    std::fs::create_dir_all(&directory).context("making target/llama")?;
    let program = directory.join(format!("{name}-{arch}"));
    let compiler = if arch.is_native() {
        "cc".to_owned()
    } else {
        arch.cross_linker()
    };
    let mut command = Command::new(&compiler);
    command
        .args(["-std=c11", "-D_GNU_SOURCE", "-O1"])
        .args(["-Wall", "-Wextra", "-Werror", "-o"])
        .arg(&program)
        .arg(paths::root().join(format!("xtask/scripts/{name}.c")))
        .args(["-ldl", "-lm", "-lpthread"]);
    process::run(command, COMPILE_LIMIT)?.checked(&compiler)?;
    Ok(program)
}

/// With Debian's ggml, which finds its CPU backends by itself.
fn debian(stock: &Stock, program: &Path, precision: PrecisionSetting) -> Result<CheckVerdict> {
    let mut command = stock.program(program, &[], Backend::With);
    command
        .arg(precision.limit)
        .arg(stock.ggml_library())
        .env("GGML_ROCKET_PRECISION", precision.word);
    judge(
        process::run(command, LIMIT)?,
        stock.ggml_version(),
        REARRANGES,
        precision,
    )
}

/// With the ggml of an npm package.
fn node(stock: &Stock, program: &Path, prebuilt: &Prebuilt) -> Result<CheckVerdict> {
    let directory = npm::fetch(stock.arch(), prebuilt.package)?;
    let mut command = stock.program(program, &[&directory], Backend::With);
    command
        .arg(AUTO.limit)
        .arg(npm::ggml_library(&directory)?)
        .arg(&directory);
    let expected = match stock.arch() {
        Arch::Amd64 => prebuilt.expected,
        Arch::Arm64 => prebuilt.expected_on_arm,
    };
    judge(process::run(command, LIMIT)?, prebuilt.ggml, expected, AUTO)
}

/// Judges what the host in C wrote.
fn judge(
    output: CommandOutput,
    ggml: &str,
    expected: Expected,
    precision: PrecisionSetting,
) -> Result<CheckVerdict> {
    let text = output.text();
    let output = output
        .checked("ggml_host")
        .with_context(|| text.lines().last().unwrap_or_default().to_owned())?;
    let lines = |word: &'static str| {
        text.lines()
            .filter_map(move |line| line.strip_prefix(word)?.strip_prefix(' '))
    };
    ensure!(text.ends_with("end\n"), "the output has no end: {text}");
    ensure!(
        lines("ggml").eq([ggml]),
        "the package should have ggml {ggml}: {text}"
    );
    let listed: Vec<&str> = lines("device")
        .filter(|device| device.starts_with("ROCKET"))
        .collect();
    match expected {
        Expected::Refuses(why) => {
            ensure!(listed.is_empty(), "the device is listed: {listed:?}");
            let said: Vec<&str> = output
                .stderr
                .lines()
                .filter(|line| line.contains("ROCKET: "))
                .collect();
            let [line] = said[..] else {
                bail!("expected one line that says why, got {said:?}");
            };
            ensure!(
                line.contains(why) && line.contains("goes on without the NPU"),
                "expected a line with {why:?}, got {line:?}"
            );
            Ok(CheckVerdict::Pass(format!("refused in one line: {line}")))
        }
        Expected::Serves { rearranges } => {
            let stats = StatsTable::find(&output.stderr)?;
            // ACCEL is 3 in every version.
            let device = format!("{} 3 {}", stats.name(), stats.device());
            ensure!(
                listed == [&*device],
                "{device:?} should be listed, but it is {listed:?}"
            );
            for (word, beginnings) in EXPECTED {
                let seen: Vec<&str> = lines(word).collect();
                ensure!(
                    seen.len() == beginnings.len()
                        && seen.iter().zip(beginnings).all(|(s, b)| s.starts_with(b)),
                    "{word}: expected {beginnings:?}, got {seen:?}"
                );
            }
            ensure!(
                lines("product").all(|product| product.ends_with(" good")),
                "a product is wrong: {text}"
            );
            let seen = lines("product").any(|line| line.starts_with("Q4_0 own in CPU_REPACK:"));
            ensure!(
                seen == rearranges,
                "Q4_0 weights should lie in {} memory: {text}",
                if rearranges {
                    "the CPU's rearranged"
                } else {
                    "plain"
                }
            );
            let PrecisionSetting {
                computed, limit, ..
            } = precision;
            let used = stats.precisions();
            ensure!(
                !used.is_empty() && used.iter().all(|precision| computed.contains(precision)),
                "products were computed in {}, not in {}",
                used.join(", "),
                computed.join(", ")
            );
            let counts = used.iter().map(|precision| stats.offloaded(precision));
            let products: u64 = counts.sum::<Result<_>>()?;
            Ok(CheckVerdict::Pass(format!(
                "{products} products in {} as on the CPU, within {limit} of normalised mean \
                 square error; threads set, computing aborted, backend unloaded while there are \
                 weights, and loaded again",
                used.join(" and ")
            )))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    use super::*;

    /// What a host prints with which all is well.
    fn good() -> String {
        let mut text =
            "ggml 1.2.3\ndevice CPU 0 x\ndevice ROCKET-MODEL0 3 software model\n".to_owned();
        for (word, beginnings) in EXPECTED {
            for beginning in beginnings {
                text += &format!("{word} {beginning} good\n");
            }
        }
        text + "end\n"
    }

    const STATS: &str = "ROCKET statistics: software model\n  products computed in fp16 8\n  \
        products computed in int8 0\n  products failed 0\n  jobs 7\n";

    fn serves(stdout: &str, stderr: &str) -> Result<CheckVerdict> {
        judge_as(stdout, stderr, PLAIN)
    }

    fn judge_as(stdout: &str, stderr: &str, expected: Expected) -> Result<CheckVerdict> {
        let output = CommandOutput {
            status: ExitStatus::from_raw(0),
            stdout: stdout.into(),
            stderr: stderr.to_owned(),
        };
        judge(output, "1.2.3", expected, AUTO)
    }

    #[test]
    fn only_a_host_with_all_products_right_passes() {
        let good = good();
        assert!(serves(&good, STATS).is_ok());
        for (what, with) in [
            ("ggml 1.2.3", "ggml 1.2.4"),
            ("-MODEL0 3 ", "-MODEL0 1 "),
            ("device ROCKET-MODEL0 3 software model\n", ""),
            ("F16 own in CPU: good", "F16 own in CPU: BAD"),
            ("product Q8_0 own in  good\n", ""),
            ("3 of 3", "4 of 3"),
            ("on_cpu good", "on_cpu BAD"),
            ("aborted", "computed"),
            ("end\n", ""),
        ] {
            let bad = good.replacen(what, with, 1);
            assert_ne!(bad, good);
            assert!(serves(&bad, STATS).is_err(), "{what} -> {with}");
        }
        assert!(judge_as(&good, STATS, REARRANGES).is_err());
        let rearranged = good.replace("Q4_0 own in ", "Q4_0 own in CPU_REPACK:");
        assert!(judge_as(&rearranged, STATS, REARRANGES).is_ok());
        assert!(judge_as(&good, STATS, TOO_OLD).is_err());
        assert!(serves(&good, "").is_err());
        assert!(serves(&good, &STATS.replace("fp16 8", "fp16 0")).is_err());
        assert!(serves(&good, &STATS.replace("int8 0", "int8 1")).is_err());
    }
}
