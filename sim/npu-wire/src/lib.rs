// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `librocket_preload.so` in a client and the server with the model say
//! to each other.
//!
//! A client's descriptor of the device is a socket (`AF_UNIX`,
//! `SOCK_SEQPACKET`) connected to the server; the connection is the open file.
//! Copies of the descriptor, in threads and processes, share it. So that their
//! calls do not mix, each call has a channel of its own: a [`Request`] on the
//! connection carries one end of a fresh socket pair, and all the rest of the
//! call happens there, in [`Frame`]s: what the server needs of the client's
//! memory and descriptors, and at last the result. A server without descriptors
//! for a new connection says so on the connection itself, in a
//! [`FrameKind::Done`], and closes it; one without a descriptor for a channel
//! lets go of the call.
//!
//! All fields have fixed widths, little endian, so an emulated client may talk
//! to a native server. Nothing here allocates, and nothing goes through the C
//! library, whose `open` and `ioctl` the client has replaced.
#![forbid(unsafe_code)]

mod address;
mod decimal;
mod frame;
mod message;
pub mod path;
mod request;

pub use address::{
    Address, C_ENVIRONMENT, CONNECT_TIMEOUT, ENVIRONMENT, is_device, meeting_folder, new_socket,
    peer_uid,
};
pub use decimal::{DIGITS, decimal};
pub use frame::{DATA_BYTES, Frame, FrameKind, status_of};
pub use message::{Received, WireError, receive, receive_parts, send, send_parts};
pub use request::{Ask, REQUEST_BYTES, Request, VERSION};
