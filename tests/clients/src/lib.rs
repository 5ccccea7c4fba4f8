// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs in C that are independent of this project, compiled here and run
//! under `npu-probe run`, and helpers for servers that a test emulates.
//!
//! Cargo builds the tool and the library when the first test needs them, for
//! the tests' target and profile.
#![forbid(unsafe_code)]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests: a failure is a failed test"
)]

use std::ffi::OsStr;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};

use npu_wire::Address;
use rustix::net::SocketFlags;
use serde_json::Value;

/// The C compiler for the processor that the tests are built for.
pub const COMPILER: &str = if cfg!(target_arch = "aarch64") && cfg!(target_os = "linux") {
    "aarch64-linux-gnu-gcc"
} else {
    "cc"
};

/// The device node.
pub const NODE: &str = "/dev/accel/accel0";

/// Cargo's output folder, also of the tests. Builds the tool and the library.
static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
    let test = std::env::current_exe().unwrap();
    // target/[TRIPLE/]PROFILE/deps/TEST
    let folder = test.ancestors().nth(2).unwrap().to_owned();
    let mut build = Command::new(std::env::var_os("CARGO").unwrap());
    build.args([
        "build",
        "--quiet",
        "-p",
        "npu-probe",
        "-p",
        "rocket-preload",
    ]);
    if folder.ends_with("release") {
        build.arg("--release");
    }
    let triple = folder.parent().and_then(Path::file_name).unwrap();
    if triple.to_string_lossy().contains("-linux-") {
        build.arg("--target").arg(triple);
    }
    assert!(build.status().unwrap().success(), "{build:?}");
    folder
});

/// A command of the tool itself, on the model.
#[must_use]
pub fn probe(arguments: &[&str]) -> Command {
    let mut command = test_support::program(FOLDER.join("npu-probe"));
    command
        .args(arguments)
        .env("ROCKET_DEVICE", "model")
        .env_remove("RUST_LOG");
    command
}

/// A compiled client.
#[derive(Clone, Debug)]
pub struct Client {
    binary: PathBuf,
}

impl Client {
    /// Compiles `c/NAME.c`, with additional `arguments`.
    #[must_use]
    pub fn compile(name: &str, arguments: &[&str]) -> Self {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("c/{name}.c"));
        let folder = FOLDER.join("clients");
        fs::create_dir_all(&folder).unwrap();
        let binary = folder.join(name);
        // Under another name first: another test may compile it now.
        static FRESH: AtomicU32 = AtomicU32::new(0);
        let number = FRESH.fetch_add(1, Ordering::Relaxed);
        let fresh = folder.join(format!("{name}-{}-{number}", std::process::id()));
        let mut compiler = Command::new(COMPILER);
        compiler
            .args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-o"])
            .arg(&fresh)
            .arg(source)
            .args(arguments);
        assert!(compiler.status().unwrap().success(), "{compiler:?}");
        fs::rename(fresh, &binary).unwrap();
        Self { binary }
    }

    /// The client under `npu-probe run`, with `options` of that and `arguments`
    /// of the client.
    #[must_use]
    pub fn command(&self, options: &[&str], arguments: &[&str]) -> Command {
        let mut client = test_support::program(&self.binary);
        client.args(arguments);
        under_probe(options, &client)
    }

    /// The client under `npu-probe run --device NODE`. NODE looks like a real
    /// one, but is the model's: an outer `npu-probe run`, with the options
    /// `outer`, shows it.
    #[must_use]
    pub fn on_a_node(&self, outer: &[&str], options: &[&str], arguments: &[&str]) -> Command {
        let options = [&["--device", NODE], options].concat();
        under_probe(outer, &self.command(&options, arguments))
    }

    /// The client without `npu-probe`.
    #[must_use]
    pub fn bare(&self) -> Command {
        test_support::program(&self.binary)
    }

    /// The client with the preload library, and with this server in its environment.
    #[must_use]
    pub fn preloaded(&self, server: Option<&Address>) -> Command {
        let mut command = test_support::program(&self.binary);
        command.env("LD_PRELOAD", FOLDER.join("librocket_preload.so"));
        match server {
            Some(address) => command.env(npu_wire::ENVIRONMENT, OsStr::from_bytes(address.name())),
            None => command.env_remove(npu_wire::ENVIRONMENT),
        };
        command
    }

    /// Runs the client to its end.
    #[must_use]
    pub fn run(&self, options: &[&str], arguments: &[&str]) -> Output {
        self.command(options, arguments).output().unwrap()
    }

    /// Runs the client; panics with its name and output unless it ends with 0.
    pub fn pass(&self, options: &[&str], arguments: &[&str]) -> Output {
        let output = self.run(options, arguments);
        assert!(
            output.status.success(),
            "{}: {}: {}",
            self.binary.display(),
            output.status,
            text(&output)
        );
        output
    }
}

fn under_probe(options: &[&str], inner: &Command) -> Command {
    let mut command = test_support::program(FOLDER.join("npu-probe"));
    command
        .arg("run")
        .args(options)
        .arg("--preload")
        .arg(FOLDER.join("librocket_preload.so"))
        .arg("--")
        .arg(inner.get_program())
        .args(inner.get_args())
        .env_remove("ROCKET_DEVICE")
        .env_remove("RUST_LOG");
    command
}

/// What the clients share: the driver's structures, programs, references.
pub const SHARED: [&str; 4] = ["c/npu.c", "c/rocket.c", "-lm", "-pthread"];

/// Runs a client to its end. Returns the report of `npu-probe run`.
#[must_use]
pub fn report(client: &Client, options: &[&str]) -> Value {
    let output = client.pass(&[&["--json"], options].concat(), &[]);
    assert_eq!(output.stdout, b"ok\n", "{}", text(&output));
    // The dynamic linker may complain of the library before the report, to
    // programs of another processor that an emulated client starts.
    let all = String::from_utf8_lossy(&output.stderr);
    let start = all.find("{\n").unwrap_or(0);
    serde_json::from_str(&all[start..]).unwrap()
}

/// All that a program printed.
#[must_use]
pub fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
}

/// Checks that every job completed without a trap.
#[track_caller]
pub fn all_ran(report: &Value, opens: u64, jobs: u64) {
    assert_eq!(report["opens"], opens, "{report:#}");
    assert_eq!(report["jobs"], jobs, "{report:#}");
    assert_eq!(report["jobs_completed"], jobs, "{report:#}");
    assert_eq!(report["traps"], serde_json::json!({}), "{report:#}");
}

/// The JSON in a file.
#[must_use]
pub fn json_of(file: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap()
}

/// Runs a command on a capture. Returns its exit code and output.
#[must_use]
pub fn json(arguments: &[&str], file: &Path) -> (i32, Value) {
    let output = probe(arguments).arg("--json").arg(file).output().unwrap();
    let value = serde_json::from_slice(&output.stdout);
    let value = value.unwrap_or_else(|error| unreachable!("{error}: {}", text(&output)));
    (output.status.code().unwrap(), value)
}

/// Checks that a capture replays as it was recorded. Returns its jobs.
#[must_use]
#[track_caller]
pub fn replayed(file: &Path) -> Vec<Value> {
    let (code, seen) = json(&["replay"], file);
    let passed = (code, &seen["result"]) == (0, &Value::from("PASS"));
    assert!(passed, "{code}: {seen:#}");
    seen["jobs"].as_array().unwrap().clone()
}

/// The programs of a job of a capture.
#[must_use]
pub fn programs(job: &str, file: &Path) -> Value {
    let (code, seen) = json(&["decode", "--job", job], file);
    assert_eq!(code, 0);
    seen["jobs"][0]["programs"].clone()
}

/// A socket that listens under the server's name.
#[must_use]
pub fn listen(address: &Address, backlog: i32) -> OwnedFd {
    let socket = npu_wire::new_socket(SocketFlags::CLOEXEC).unwrap();
    rustix::net::bind(&socket, &address.socket().unwrap()).unwrap();
    rustix::net::listen(&socket, backlog).unwrap();
    socket
}
