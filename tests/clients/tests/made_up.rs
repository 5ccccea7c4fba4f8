// SPDX-License-Identifier: MIT OR Apache-2.0
//! An ioctl that no code here knows: the preload library carries its argument
//! to the server and back.
#![allow(clippy::unwrap_used, reason = "tests")]

use client_tests::Client;
use npu_model::{Model, ModelOptions};
use npu_server::Server;
use test_support::hooked;

/// The driver's ioctl number 8, with 8 bytes in both directions.
const MADE_UP: u32 = 0xc008_6448;

#[test]
fn the_preload_library_carries_it() {
    let model = Model::new(ModelOptions::default());
    let adds_one = hooked(|below, request, arg, caller| {
        if request == MADE_UP {
            arg[0] += 1;
            return Ok(0);
        }
        // SAFETY: what the caller promises.
        unsafe { below.ioctl(request, arg, caller) }
    });
    let server = Server::start_through(model, adds_one).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut client = Client::compile("made_up", &[]).alone(folder.path());
    let address = String::from_utf8(server.address().name().to_vec()).unwrap();
    let output = client.env(npu_wire::ENVIRONMENT, address).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(server.counts().ioctls >= 2, "{:?}", server.counts());
}
