// SPDX-License-Identifier: MIT OR Apache-2.0
//! The steps of CI as data: what each runs, in the order in which a newcomer
//! would want to know.

use std::fmt;
use std::process::Command;

use crate::{nightly, paths};

/// The nightly toolchain of the steps that need one.
const NIGHTLY: &str = nightly::TOOLCHAIN;

/// The version of cargo-deny that deny.toml is written for.
const CARGO_DENY_VERSION: &str = "0.20.2";

/// The board's architecture.
const AARCH64: &str = "aarch64-unknown-linux-gnu";

/// The target of programs for a virtual machine's guest, which are static.
const MUSL: &str = "aarch64-unknown-linux-musl";

/// The target of the steps that build with sanitizers.
const X86_64: &str = "x86_64-unknown-linux-gnu";

/// How long the fuzz targets run, seconds, and how long in the long run.
const FUZZ_SECONDS: u32 = 40;
const LONG_FUZZ_SECONDS: u32 = 600;

/// Random calls on the mainline driver: about three minutes.
const FUZZ_CALLS: u32 = 16_000;

/// How long processes multiply on the mainline driver, and how long they do so
/// while some are killed, in seconds of the guest.
const SOAK_SECONDS: u32 = 120;
const SOAK_KILLS_SECONDS: u32 = 600;
/// How long such a guest may take, in seconds of this machine.
const SOAK_LIMIT: u32 = 3600;

/// Property test cases per test in the long run; the tests' own default is a
/// few dozen to a few hundred.
const LONG_CASES: &str = "1000";

/// One step: a name, what it proves, and commands that must all succeed.
pub(crate) struct CiStep {
    pub(crate) name: &'static str,
    pub(crate) what: &'static str,
    pub(crate) runs: Vec<StepCommand>,
}

/// One command with its environment.
pub(crate) struct StepCommand {
    program: String,
    arguments: Vec<String>,
    environment: Vec<(&'static str, String)>,
}

impl StepCommand {
    fn new(program: &str, arguments: &str) -> Self {
        Self {
            program: program.to_owned(),
            arguments: arguments.split_whitespace().map(str::to_owned).collect(),
            environment: Vec::new(),
        }
    }

    fn cargo(arguments: &str) -> Self {
        Self::new("cargo", arguments)
    }

    fn env(mut self, name: &'static str, value: &str) -> Self {
        self.environment.push((name, value.to_owned()));
        self
    }

    /// The command, to be run at the root of the work tree.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).current_dir(paths::root());
        for (name, value) in &self.environment {
            command.env(name, value);
        }
        command
    }
}

impl fmt::Display for StepCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in &self.environment {
            write!(f, "{name}={value} ")?;
        }
        write!(f, "{}", self.program)?;
        for argument in &self.arguments {
            write!(f, " {argument}")?;
        }
        Ok(())
    }
}

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
            what: "rustdoc is clean, generated pages are current, type names stand for one thing",
            runs: vec![
                StepCommand::cargo("doc --workspace --no-deps").env("RUSTDOCFLAGS", "-D warnings"),
                StepCommand::cargo("xtask docs --check"),
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

/// Installs what Miri and the sanitizers need, where it is not there.
fn nightly_toolchain() -> StepCommand {
    StepCommand::new(
        "rustup",
        &format!("toolchain install {NIGHTLY} --profile minimal -c miri -c rust-src"),
    )
}

fn miri() -> CiStep {
    CiStep {
        name: "miri",
        what: "no undefined behaviour in uapi over the model, and in the model's memory",
        runs: vec![
            nightly_toolchain(),
            StepCommand::cargo(&format!("+{NIGHTLY} miri test -p rocket-uapi"))
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
            StepCommand::new("rustup", &format!("target add {AARCH64}")),
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
        runs: vec![
            StepCommand::new("rustup", &format!("target add {AARCH64}")),
            StepCommand::cargo("xtask teflon"),
        ],
    }
}

/// The target of a guest's programs.
fn guest_target() -> StepCommand {
    StepCommand::new("rustup", &format!("target add {MUSL}"))
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

fn long_virtual_machine() -> [CiStep; 6] {
    [
        CiStep {
            name: "vm-kasan",
            what: "the same on a kernel that looks for mistakes of its own",
            runs: vec![
                guest_target(),
                StepCommand::cargo("xtask vm build --kasan"),
                StepCommand::cargo("xtask vm test --kasan --limit 1800"),
            ],
        },
        CiStep {
            name: "vm-programs",
            what: "C clients, npu-probe and stock llama.cpp on the mainline driver",
            runs: vec![
                guest_target(),
                StepCommand::cargo("xtask vm programs"),
                StepCommand::cargo("xtask llama --arch arm64 real-driver"),
            ],
        },
        CiStep {
            name: "vm-teflon",
            what: "Mesa's TensorFlow Lite delegate on the mainline driver: the model's outputs",
            runs: vec![
                StepCommand::new("rustup", &format!("target add {AARCH64}")),
                guest_target(),
                StepCommand::cargo("xtask teflon --real-driver"),
            ],
        },
        vm_soak(),
        CiStep {
            name: "vm-fuzz",
            what: "random calls find no new mistake of the mainline driver, nor of the model",
            runs: vec![
                guest_target(),
                StepCommand::cargo("xtask vm build --kasan"),
                StepCommand::cargo(&format!(
                    "xtask vm run --kasan --smp 2 --fail-on-complaint -- \
                     rocket-fuzz --destructive --seed 1 --steps {FUZZ_CALLS}"
                )),
            ],
        },
        CiStep {
            name: "vm-repeat",
            what: "twenty runs of the suite on the mainline driver end the same",
            runs: vec![
                guest_target(),
                StepCommand::cargo("xtask vm test --no-bugs --repeat 20"),
            ],
        },
    ]
}

/// Processes are killed on a kernel without the bug that this meets, which looks for
/// mistakes of its own: no complaint of that bug is expected there.
fn vm_soak() -> CiStep {
    let run = |kernel: &str, soak: &str| {
        StepCommand::cargo(&format!(
            "xtask vm run {kernel} --smp 2 --limit {SOAK_LIMIT} --fail-on-complaint -- \
             npu-probe --device /dev/accel/accel0 soak --processes 6 {soak}"
        ))
    };
    CiStep {
        name: "vm-soak",
        what: "processes on the mainline driver, some of them killed: every word right",
        runs: vec![
            guest_target(),
            run("", &format!("--seconds {SOAK_SECONDS}")),
            run(
                "--kasan --patch tests/hw/bugs/use-after-close.patch",
                &format!("--kill --allow-timeouts --seconds {SOAK_KILLS_SECONDS}"),
            ),
        ],
    }
}

/// Tests with a sanitizer, which instruments the host's code: hence the
/// target, which keeps build scripts and macros out of it.
fn sanitized(sanitizer: &str, what: &str) -> StepCommand {
    let folder = paths::target().join(sanitizer);
    let folder = folder.to_string_lossy();
    StepCommand::cargo(&format!(
        "+{NIGHTLY} test --target {X86_64} --target-dir {folder} {what}"
    ))
    .env("RUSTFLAGS", &format!("-Zsanitizer={sanitizer}"))
}

/// The code that talks to a kernel, executed where there is none: the preload
/// library shows it a node. For that its system calls must go through the C
/// library, which rustix does if it is compiled so.
///
/// Left out is the row about lseek, which the library does not replace.
fn kernel_door() -> CiStep {
    const ROWS: &str = "version capabilities ioctl poll-read argument create gem mmap prep fini submit \
                        flags fence dma-buf-sync war close after prime raw waw";
    let target = paths::target();
    let folder = target.join("through-libc");
    let (target, folder) = (target.to_string_lossy(), folder.to_string_lossy());
    let preloaded = |program: &str| {
        StepCommand::new(
            &format!("{target}/debug/npu-probe"),
            &format!("run -- {folder}/debug/{program}"),
        )
    };
    CiStep {
        name: "kernel-door",
        what: "rocket-uapi's way to a kernel, against the model behind the preload library",
        runs: vec![
            StepCommand::cargo("build -p npu-probe -p rocket-preload"),
            StepCommand::cargo(&format!(
                "build --target-dir {folder} -p npu-probe -p rocket-hw-tests"
            ))
            .env("RUSTFLAGS", "--cfg=rustix_use_libc"),
            preloaded("npu-probe --device /dev/accel/accel0 --dtype fp16 --k 999 --fds 3"),
            preloaded(&format!(
                "rocket-conformance --device /dev/accel/accel0 --except bug- {ROWS}"
            )),
        ],
    }
}

fn longer() -> Vec<CiStep> {
    vec![
        CiStep {
            name: "properties",
            what: "the property tests, many more cases",
            runs: vec![
                StepCommand::cargo(
                    "test --release -p rknpu-regcmd -p rknpu-chip -p npu-model -p npu-kernels -p npu-matmul",
                )
                .env("PROPTEST_CASES", LONG_CASES),
            ],
        },
        CiStep {
            name: "tsan",
            what: "no data race in the driver half, its clients and their threads",
            runs: vec![
                nightly_toolchain(),
                // The standard library too: a race is seen only where both
                // sides are instrumented.
                sanitized("thread", "-Zbuild-std -p npu-model --lib --test driver"),
            ],
        },
        CiStep {
            name: "asan",
            what: "no bad address and no leak in the model and its clients",
            runs: vec![
                nightly_toolchain(),
                sanitized("address", "-p rknpu-chip -p npu-model --lib --tests"),
                // Buffers of a job whose end is not known are leaked on
                // purpose, and tests make such jobs.
                sanitized("address", "-p rocket-uapi --lib --tests")
                    .env("ASAN_OPTIONS", "detect_leaks=0"),
            ],
        },
        kernel_door(),
        CiStep {
            name: "hosts",
            what: "every layout of ggml's backend interface, which takes npm; the board's too",
            runs: vec![
                StepCommand::cargo("xtask llama hosts"),
                StepCommand::new("rustup", &format!("target add {AARCH64}")),
                StepCommand::cargo("xtask llama --arch arm64 hosts"),
            ],
        },
        CiStep {
            name: "backend-ops",
            what: "the matrix products of ggml's own tests, all but the few largest",
            runs: vec![StepCommand::cargo("xtask llama all-backend-ops")],
        },
        CiStep {
            name: "llama-long",
            what: "the backend under valgrind, in a llama-cpp-python built from source, under node",
            runs: vec![StepCommand::cargo("xtask llama valgrind python node")],
        },
        CiStep {
            name: "soak",
            what: "two thousand self-tests in one process",
            runs: vec![StepCommand::cargo(
                "run --release -p npu-probe -- --device model --repeat 2000",
            )],
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
