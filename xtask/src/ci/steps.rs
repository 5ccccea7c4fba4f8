// SPDX-License-Identifier: MIT OR Apache-2.0
//! The steps of CI as data: what each runs, in the order in which a newcomer
//! would want to know.

use super::long::{long_virtual_machine, longer};
use super::step::{
    AARCH64, CiStep, NIGHTLY, StepCommand, board_target, guest_target, nightly_toolchain,
};
use crate::paths;

/// The version of cargo-deny that deny.toml is written for.
const CARGO_DENY_VERSION: &str = "0.20.2";

/// How long the fuzz targets run, seconds, and how long in the long run.
const FUZZ_SECONDS: u32 = 40;
const LONG_FUZZ_SECONDS: u32 = 600;

/// Every step of CI; with `long`, those that take longer too.
pub(crate) fn all(long: bool) -> Vec<CiStep> {
    let mut steps = readme();
    steps.extend(checks());
    steps.push(deny());
    steps.push(miri());
    steps.push(fuzz(if long {
        LONG_FUZZ_SECONDS
    } else {
        FUZZ_SECONDS
    }));
    steps.push(aarch64(if long { EVERYWHERE } else { PER_PROCESSOR }));
    steps.push(teflon());
    steps.push(packages());
    steps.extend(virtual_machine());
    if long {
        steps.extend(longer());
        steps.extend(long_virtual_machine());
    }
    steps
}

/// Names of the steps that only the long run has, or that it runs for longer.
pub(crate) fn only_long() -> Vec<&'static str> {
    let commands =
        |step: &CiStep| -> Vec<String> { step.runs.iter().map(StepCommand::to_string).collect() };
    let usual: Vec<_> = all(false).iter().map(commands).collect();
    let long = all(true).into_iter();
    long.filter(|step| !usual.contains(&commands(step)))
        .map(|step| step.name)
        .collect()
}

/// What README tells users to run, just as it is written there.
fn readme() -> Vec<CiStep> {
    vec![
        CiStep {
            name: "fresh",
            what: "README: self-test and all tests, where there is only what README asks for",
            runs: vec![StepCommand::cargo("xtask fresh")],
        },
        CiStep {
            name: "clients",
            what: "the tests that take more: clients in C that use libdrm",
            runs: vec![StepCommand::cargo(
                "test --no-fail-fast -p client-tests -- --show-output",
            )],
        },
        CiStep {
            name: "llama",
            what: "README: stock llama.cpp with the backend, on the model",
            runs: vec![
                StepCommand::cargo("xtask demo"),
                StepCommand::cargo("xtask llama"),
            ],
        },
    ]
}

fn checks() -> Vec<CiStep> {
    vec![
        CiStep {
            name: "fmt",
            what: "the sources are formatted",
            runs: vec![
                StepCommand::cargo("fmt --all --check"),
                StepCommand::cargo("fmt --manifest-path fuzz/Cargo.toml -- --check"),
            ],
        },
        CiStep {
            name: "clippy",
            what: "no lint fires",
            runs: vec![StepCommand::cargo(
                "clippy --workspace --all-targets -- -D warnings",
            )],
        },
        CiStep {
            name: "docs",
            what: "rustdoc is clean, generated pages are current, links lead somewhere, type names \
                   stand for one thing",
            runs: vec![
                StepCommand::cargo("doc --workspace --no-deps").env("RUSTDOCFLAGS", "-D warnings"),
                StepCommand::cargo("xtask docs --check"),
                StepCommand::cargo("xtask book"),
                StepCommand::cargo("xtask names"),
            ],
        },
        CiStep {
            name: "hw-model",
            what: "the driver regression suite on the model, dangerous rows included",
            runs: vec![StepCommand::cargo(
                "run --release -p rocket-hw-tests -- --device model --except bug-",
            )],
        },
        CiStep {
            name: "abi",
            what: "structs and request numbers equal the kernel header's",
            runs: vec![StepCommand::cargo("xtask abi")],
        },
    ]
}

fn deny() -> CiStep {
    let tools = paths::target().join("tools");
    let tools = tools.to_string_lossy();
    CiStep {
        name: "deny",
        what: "licences and sources of the dependencies",
        runs: vec![
            // Does nothing where that version is there already.
            StepCommand::cargo(&format!(
                // Without optimisation, which would take longer than its work.
                "install --quiet --debug --locked --root {tools} cargo-deny --version {CARGO_DENY_VERSION}"
            )),
            StepCommand::new(
                &format!("{tools}/bin/cargo-deny"),
                "check licenses bans sources",
            ),
        ],
    }
}

fn miri() -> CiStep {
    CiStep {
        name: "miri",
        what: "no undefined behaviour in uapi over the model, and in the model's memory",
        runs: vec![
            nightly_toolchain(),
            // But for the page's program: a whole model takes Miri longer than the job may.
            StepCommand::cargo(&format!(
                "+{NIGHTLY} miri test -p rocket-uapi -- --skip UapiPage"
            ))
            // Reading the clock needs the host.
            .env("MIRIFLAGS", "-Zmiri-disable-isolation"),
            // The model's unsafe code: pages that CPU and NPU share.
            StepCommand::cargo(&format!(
                "+{NIGHTLY} miri test -p npu-model --lib driver::memory"
            ))
            .env("MIRIFLAGS", "-Zmiri-disable-isolation"),
        ],
    }
}

fn fuzz(seconds: u32) -> CiStep {
    CiStep {
        name: "fuzz",
        what: "the fuzz targets, for a while; `fresh` has replayed their corpora",
        runs: vec![StepCommand::cargo(&format!(
            "xtask fuzz --seconds {seconds}"
        ))],
    }
}

/// All members but the chores of the host, and the benchmarks, one of whose
/// yardsticks (`gemm`) does not build without fp16 arithmetic.
const EVERYWHERE: &str = "--workspace --exclude xtask --exclude npu-bench";

/// The members that differ between processors: SIMD, system calls, a C ABI.
/// The others take as long to build again, and are tested by the long run.
const PER_PROCESSOR: &str =
    "-p npu-kernels -p rknpu-chip -p npu-model -p rocket-uapi -p npu-matmul -p ggml-shim";

fn aarch64(members: &str) -> CiStep {
    CiStep {
        name: "aarch64",
        what: "the board's architecture: cross-built, tests under qemu-user",
        runs: vec![
            board_target(),
            StepCommand::cargo(&format!(
                "test --no-fail-fast --target {AARCH64} {members} -- --show-output"
            ))
            .env(
                "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER",
                "aarch64-linux-gnu-gcc",
            )
            .env(
                "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER",
                // The CPU of the board, and where Debian keeps its C library.
                "qemu-aarch64-static -cpu cortex-a76 -L /usr/aarch64-linux-gnu",
            ),
        ],
    }
}

fn teflon() -> CiStep {
    CiStep {
        name: "teflon",
        what: "Mesa's TensorFlow Lite delegate, as Debian ships it, on the model",
        runs: vec![board_target(), StepCommand::cargo("xtask teflon")],
    }
}

fn packages() -> CiStep {
    CiStep {
        name: "packages",
        what: "Debian's packages come into a clean Debian, work there, and go",
        runs: vec![StepCommand::cargo("xtask dist --arch amd64 --check")],
    }
}

fn virtual_machine() -> [CiStep; 2] {
    [
        CiStep {
            name: "vm-build",
            what: "a kernel for virtual machines, built or cached",
            runs: vec![StepCommand::cargo("xtask vm build")],
        },
        CiStep {
            name: "vm",
            what: "the driver regression suite on the mainline driver, in a virtual machine",
            runs: vec![guest_target(), StepCommand::cargo("xtask vm test")],
        },
    ]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;

    use super::*;
    use crate::fresh;

    #[test]
    fn names_are_unique() {
        let steps = all(true);
        let names: BTreeSet<_> = steps.iter().map(|step| step.name).collect();
        assert_eq!(names.len(), steps.len());
    }

    #[test]
    fn the_long_run_repeats_most_of_ci() {
        let longer = only_long();
        assert!(longer.contains(&"fuzz") && longer.contains(&"soak"));
        assert!(!longer.contains(&"fmt"));
    }

    /// What users are told to run is what CI runs.
    #[test]
    fn the_commands_of_the_readme_are_run() {
        let readme = fs::read_to_string(paths::root().join("README.md")).unwrap();
        for told in [
            "cargo run --release -p npu-probe",
            "cargo test",
            "cargo xtask demo",
            "cargo xtask llama",
        ] {
            assert!(readme.contains(told), "README no longer tells `{told}`");
            let runs = super::readme().into_iter().flat_map(|step| step.runs);
            let runs = runs.map(|run| run.to_string());
            assert!(
                runs.chain(fresh::COMMANDS.map(str::to_owned))
                    .any(|run| run.starts_with(told)),
                "CI no longer runs `{told}`"
            );
        }
        let install = format!("apt-get install {}\n", fresh::PACKAGES.join(" "));
        assert!(
            readme.contains(&install),
            "README no longer tells `{install}`"
        );
    }
}
