// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs with only the preload library: the first starts a server for all.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::io::Read;
use std::process::{Command, Stdio};

use client_tests::Client;

/// One test, since both folders must exist at the same time: programs meet by the
/// folder's inode, and a server outlives its folder for a while.
#[test]
fn the_first_program_starts_the_server_if_it_can() {
    let [folder, other] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let client = Client::compile("plain", &[]);
    let programs: Vec<_> = (0..4)
        .map(|_| client.alone(folder.path()).spawn().unwrap())
        .collect();
    for mut program in programs {
        assert!(program.wait().unwrap().success());
    }
    // The server is still there, or another one starts.
    let identify = Client::compile("identify", &["-pthread"]);
    assert!(identify.alone(folder.path()).status().unwrap().success());

    // Without a server there is no device.
    let output = client
        .alone(other.path())
        .env("ROCKET_SERVER_PROGRAM", "/no/such/program")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("ROCKET_SERVER_PROGRAM"), "{said}");
}

/// A server for all programs has its own limits, not those of the program that
/// started it. If it cannot raise them, it does not start.
#[test]
fn a_shared_server_has_limits_of_its_own() {
    for (limit, may_fail) in [("ulimit -Sn 16", false), ("ulimit -n 16", true)] {
        let address = format!("rocket-npu/limits-{}-{may_fail}", std::process::id());
        let serve = client_tests::probe(&["run", "--serve", "--address", &address]);
        let mut server = Command::new("sh")
            .args(["-c", &format!("{limit} && exec \"$@\""), "sh"])
            .arg(serve.get_program())
            .args(serve.get_args())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut ready = [0; 1];
        let count = server.stdout.as_mut().unwrap().read(&mut ready).unwrap();
        if count == 0 {
            let output = server.wait_with_output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(may_fail && said.contains("ulimit -Hn"), "{said}");
            continue;
        }
        let limits = fs::read_to_string(format!("/proc/{}/limits", server.id())).unwrap();
        server.kill().unwrap();
        server.wait().unwrap();
        let files = limits
            .lines()
            .find(|line| line.starts_with("Max open files"));
        let soft = files.unwrap().split_whitespace().nth(3).unwrap();
        assert!(soft.parse::<u64>().unwrap() >= 256, "{limits}");
    }
}
