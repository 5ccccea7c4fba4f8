// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages on a socket: bytes in two parts, and descriptors.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};

/// Most descriptors in one message.
const DESCRIPTORS: usize = 2;

/// Why a message did not come, or means nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The other side is gone.
    #[error("the other side has closed the connection")]
    Closed,
    /// The other side speaks something else.
    #[error("a message that is none of this protocol: {0}")]
    Malformed(&'static str),
    /// The kernel refused to pass the message.
    #[error("a message could not be passed: {0}")]
    Os(#[from] Errno),
}

/// What came with the bytes of a message.
#[derive(Debug, Default)]
pub struct Received {
    /// Bytes of the message.
    pub len: usize,
    /// The descriptors that came with it, in order.
    pub descriptors: [Option<OwnedFd>; DESCRIPTORS],
    /// Whether there was more than room for it.
    pub is_cut: bool,
}

/// Sends one message.
///
/// # Errors
/// [`WireError::Closed`] if nobody can receive it.
pub fn send(
    socket: impl AsFd,
    parts: [&[u8]; 2],
    descriptors: &[BorrowedFd<'_>],
) -> Result<(), WireError> {
    send_parts(socket, &parts.map(IoSlice::new), descriptors)
}

/// As [`send`], of parts that nobody but the kernel looks at.
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
            // The program's descriptor may be one that does not block.
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

/// Receives one message into `buffer`. A message of no bytes looks like the
/// end of the connection: [`Received::len`] is 0 for both.
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

/// As [`receive`], into parts that nobody but the kernel looks at.
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
        // What is too many is closed here.
        if let RecvAncillaryMessage::ScmRights(descriptors) = one {
            for (place, descriptor) in received.descriptors.iter_mut().zip(descriptors) {
                *place = Some(descriptor);
            }
        }
    }
    Ok(received)
}
