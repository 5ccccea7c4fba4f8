// SPDX-License-Identifier: MIT OR Apache-2.0
//! The protocol between `librocket_preload.so` in a client and the server of the model.
//!
//! A client's descriptor of the device is a socket (`AF_UNIX`, `SOCK_SEQPACKET`) connected
//! to the server; the connection is the open file. Copies of the descriptor, in threads and
//! processes, share it. Each call has a separate channel, so that calls do not mix: a
//! [`Request`] on the connection carries one end of a new socket pair. The rest of the call
//! uses that pair, in [`Frame`]s: the server requests what it needs of the client's memory
//! and descriptors, and finally sends the result. A server without a descriptor for a new
//! connection sends a [`FrameKind::Done`] on the connection itself, and closes it. A server
//! without a descriptor for a channel gives up the call.
//!
//! All fields have fixed widths, little endian, so an emulated client may use a native
//! server. This crate allocates nothing, and does not use the C library, whose `open` and
//! `ioctl` the client has replaced.
#![forbid(unsafe_code)]

mod address;
mod frame;
mod message;
pub mod path;
mod request;

pub use address::{
    Address, C_ENVIRONMENT, CONNECT_TIMEOUT, ENVIRONMENT, is_device, new_socket, peer_uid,
};
pub use frame::{DATA_BYTES, Frame, FrameKind, status_of};
pub use message::{Received, WireError, receive, receive_parts, send, send_parts};
pub use request::{REQUEST_BYTES, Request, RequestKind, VERSION};
