// SPDX-License-Identifier: MIT OR Apache-2.0
//! What programs inherit from `npu-probe run`, the low limits of a login, a
//! signal to end, and the errors of `npu-probe run`.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::process::{Command, Output};

use client_tests::{Client, probe, text};

/// Runs a command in a shell, and ends it if it hangs.
fn shell(before: &str, command: &Command) -> Output {
    let words = [command.get_program()]
        .into_iter()
        .chain(command.get_args());
    let words: Vec<_> = words.map(|word| format!("'{}'", word.display())).collect();
    let mut shell = Command::new("timeout");
    shell.args(["--signal=KILL", "300", "sh", "-c"]);
    shell.arg(format!("{before} exec {}", words.join(" ")));
    for name in ["ROCKET_DEVICE", "RUST_LOG"] {
        shell.env_remove(name);
    }
    shell.output().unwrap()
}

#[test]
fn without_descriptors_a_run_ends_with_a_sentence() {
    let client = Client::compile("plain", &["-pthread"]);
    for limit in 4..=16 {
        let output = shell(&format!("ulimit -n {limit};"), &client.command(&[], &[]));
        let said = text(&output);
        match output.status.code() {
            // The server has too few descriptors.
            Some(4) => {
                for part in ["Too many open files", "ulimit -n"] {
                    assert!(said.contains(part), "{limit}: no `{part}` in {said}");
                }
                assert!(!said.contains("TMPDIR"), "{limit}: {said}");
            }
            // The program got an error: its own EMFILE, or the server's ENFILE.
            Some(1) => {
                let told = said.contains("(errno 23)") || said.contains("(errno 24)");
                assert!(told, "{limit}: {said}");
            }
            Some(0) => assert!(said.contains("plain: all is well"), "{limit}: {said}"),
            other => panic!("{limit}: {other:?}: {said}"),
        }
    }
}

/// Limits of an ordinary login, and the lowest that suffice.
#[test]
fn clients_work_within_the_limits_of_a_login() {
    for (name, limit) in [("plain", 64), ("plain", 1024), ("threads512", 1024)] {
        let client = Client::compile(name, &["-pthread"]);
        let limits = format!("ulimit -n {limit}; ulimit -s 8192;");
        let output = shell(&limits, &client.command(&[], &[]));
        let said = text(&output);
        assert_eq!(output.status.code(), Some(0), "{name}, {limit}: {said}");
        assert!(said.contains("all is well"), "{name}, {limit}: {said}");
    }
}

#[test]
fn the_self_test_passes_with_512_threads_and_64_descriptors() {
    let arguments = ["--device", "model", "--fds", "3", "--shape", "64x512x512"];
    let limits = "ulimit -n 64; ulimit -s 8192; NPU_THREADS=512";
    let output = shell(limits, &probe(&arguments));
    let said = text(&output);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("PASS"), "{said}");
}

/// From the first moment on the program gets the signal, and not `npu-probe`,
/// whose end would leave the program without a server.
#[test]
fn a_signal_to_end_is_passed_on_from_the_first_moment() {
    let client = Client::compile("asks_to_end", &[]);
    for time in 0..20 {
        let output = shell("", &client.command(&[], &[]));
        let said = text(&output);
        // 128 and SIGTERM's number.
        assert_eq!(output.status.code(), Some(143), "{time}: {said}");
        assert!(said.contains("opened     0 times"), "{time}: {said}");
    }
}

/// A child inherits the same as without `npu-probe run`.
#[test]
fn limits_and_signals_are_as_they_were() {
    let client = Client::compile("inherits", &[]);
    let plain = client.bare().output().unwrap();
    let run = client.pass(&[], &[]);
    assert_eq!(
        String::from_utf8(run.stdout).unwrap(),
        String::from_utf8(plain.stdout).unwrap()
    );
}

/// Opening fails as when a process or the system has no descriptor left.
#[test]
fn a_server_without_descriptors_says_so() {
    let client = Client::compile("full", &[]);
    let output = shell("ulimit -n 64;", &client.command(&[], &[]));
    let said = text(&output);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("full: all is well"), "{said}");
}

#[test]
fn a_folder_for_temporary_files_that_is_not_there_is_named() {
    let output = Client::compile("plain", &[])
        .command(&[], &[])
        .env("TMPDIR", "/no/where")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(4));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("/no/where") && said.contains("TMPDIR"),
        "{said}"
    );
}

/// A mistyped path must not lose the report after the program has run.
#[test]
fn a_report_that_cannot_be_written_is_told_of_before_the_program_runs() {
    for option in ["--report", "--trace", "--record"] {
        let output = Client::compile("plain", &[]).run(&[option, "/no/where/it"], &[]);
        assert_eq!(output.status.code(), Some(5), "{option}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("/no/where/it"), "{said}");
        assert_eq!(output.stdout, b"", "{option}: the program has run");
    }
}
