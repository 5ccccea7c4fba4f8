// SPDX-License-Identifier: MIT OR Apache-2.0
//! Servers that the tests play.
#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests: a failed unwrap is a failed test"
)]

use std::os::fd::OwnedFd;

use npu_wire::Address;
use rustix::net::SocketFlags;

/// A socket that listens by the server's name.
pub(crate) fn listen(address: &Address, backlog: i32) -> OwnedFd {
    let socket = npu_wire::new_socket(SocketFlags::CLOEXEC).unwrap();
    rustix::net::bind(&socket, &address.socket().unwrap()).unwrap();
    rustix::net::listen(&socket, backlog).unwrap();
    socket
}
