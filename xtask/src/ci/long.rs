// SPDX-License-Identifier: MIT OR Apache-2.0
//! The steps that only the long run has, as data.

use super::step::{CiStep, NIGHTLY, StepCommand, board_target, guest_target, nightly_toolchain};
use crate::arch::Arch;
use crate::paths;

/// The target of the steps that build with sanitizers.
const X86_64: &str = Arch::Amd64.rust_target();

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
            preloaded(
                "npu-probe --device /dev/accel/accel0 --dtype fp16 --shape 64x999x64 --fds 3",
            ),
            preloaded(&format!(
                "rocket-conformance --device /dev/accel/accel0 --except bug- {ROWS}"
            )),
        ],
    }
}

/// The oldest Rust that Cargo.toml promises.
const OLDEST_RUST: &str = env!("CARGO_PKG_RUST_VERSION");

pub(super) fn longer() -> Vec<CiStep> {
    vec![
        CiStep {
            name: "msrv",
            what: "the oldest Rust that Cargo.toml promises builds it, and cargo packages the crates",
            runs: vec![
                StepCommand::new(
                    "rustup",
                    &format!("toolchain install {OLDEST_RUST} --profile minimal"),
                ),
                StepCommand::cargo(&format!(
                    "+{OLDEST_RUST} check --workspace --exclude npu-bench --target-dir {}",
                    paths::target().join("oldest").to_string_lossy()
                )),
                StepCommand::cargo(
                    "package --allow-dirty -p rknpu-regcmd -p rocket-uapi -p rknpu-chip -p npu-model \
                     -p npu-kernels -p npu-matmul -p npu-capture",
                ),
            ],
        },
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
                board_target(),
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
            name: "packages-all",
            what: "the packages for the board too, under QEMU, and what lintian says of all",
            runs: vec![
                board_target(),
                guest_target(),
                StepCommand::cargo("xtask dist --check --lintian"),
            ],
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

pub(super) fn long_virtual_machine() -> [CiStep; 6] {
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
                board_target(),
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
             npu-probe soak --device /dev/accel/accel0 --processes 6 {soak}"
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
