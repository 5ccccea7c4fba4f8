// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages on a socket: bytes in several parts, and descriptors.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};

/// Maximum number of descriptors in a message.
const DESCRIPTORS: usize = 2;

/// Why a message could not be passed, or is not valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The other side has closed the connection.
    #[error("the other side has closed the connection")]
    Closed,
    /// The message does not belong to this protocol.
    #[error("not a message of this protocol: {0}")]
    Malformed(&'static str),
    /// The kernel refused to pass the message.
    #[error("cannot send or receive a message: {0}")]
    Os(#[from] Errno),
}

/// A received message without its bytes.
#[derive(Debug, Default)]
pub struct Received {
    /// Length of the message, bytes.
    pub len: usize,
    /// The descriptors that came with it, in order.
    pub descriptors: [Option<OwnedFd>; DESCRIPTORS],
    /// Whether the message was cut because it did not fit.
    pub is_cut: bool,
}

/// Sends one message.
///
/// # Errors
/// [`WireError::Closed`] if the other side has closed the connection.
pub fn send(
    socket: impl AsFd,
    parts: [&[u8]; 2],
    descriptors: &[BorrowedFd<'_>],
) -> Result<(), WireError> {
    send_parts(socket, &parts.map(IoSlice::new), descriptors)
}

/// Like [`send`], with parts that only the kernel reads.
///
/// # Errors
/// As [`send`].
pub fn send_parts(
    socket: impl AsFd,
    parts: &[IoSlice<'_>],
    descriptors: &[BorrowedFd<'_>],
) -> Result<(), WireError> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(WireError::Malformed("too many descriptors"));
    }
    loop {
        match rustix::net::sendmsg(&socket, parts, &mut control, SendFlags::NOSIGNAL) {
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => (),
            // The program may have made its descriptor non-blocking.
            Err(Errno::AGAIN) => {
                let mut fds = [PollFd::new(&socket, PollFlags::OUT)];
                match rustix::event::poll(&mut fds, None) {
                    Ok(_) | Err(Errno::INTR) => (),
                    Err(errno) => return Err(errno.into()),
                }
            }
            Err(Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN) => return Err(WireError::Closed),
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Receives one message into `buffer`. An empty message looks like the end of the
/// connection: [`Received::len`] is 0 for both.
///
/// # Errors
/// `EINTR` if a signal handler ran that does not restart system calls;
/// [`WireError::Malformed`] for a message that does not fit.
pub fn receive(socket: impl AsFd, buffer: &mut [u8]) -> Result<Received, WireError> {
    match receive_parts(socket, &mut [IoSliceMut::new(buffer)]) {
        Ok(received) if received.is_cut => Err(WireError::Malformed("it is too long")),
        Ok(received) => Ok(received),
        Err(Errno::CONNRESET) => Ok(Received::default()),
        Err(errno) => Err(errno.into()),
    }
}

/// Like [`receive`], into parts that only the kernel accesses.
///
/// # Errors
/// The errno of the kernel.
pub fn receive_parts(socket: impl AsFd, parts: &mut [IoSliceMut<'_>]) -> Result<Received, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let message = rustix::net::recvmsg(socket, parts, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let cut = ReturnFlags::TRUNC | ReturnFlags::CTRUNC;
    let mut received = Received {
        len: message.bytes,
        is_cut: message.flags.intersects(cut),
        ..Received::default()
    };
    for one in control.drain() {
        // Surplus descriptors are closed here.
        if let RecvAncillaryMessage::ScmRights(descriptors) = one {
            for (place, descriptor) in received.descriptors.iter_mut().zip(descriptors) {
                *place = Some(descriptor);
            }
        }
    }
    Ok(received)
}
