// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs with the library alone: the first starts a server, all meet there.
#![allow(clippy::unwrap_used, reason = "tests")]

use client_tests::Client;

/// One test, as both folders must be there at the same time: programs meet by the
/// folder's inode, and a server is still there for a while when its folder is gone.
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
