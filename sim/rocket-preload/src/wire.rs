// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages with one part in the program's memory, at an address that may be invalid.
//!
//! The kernel copies that part and returns `EFAULT` for a bad address, as for an ioctl.
//! (qemu-user sends and receives only the valid parts, which shows in the length.)

use std::io::{IoSlice, IoSliceMut};
use std::marker::PhantomData;
use std::mem::transmute;
use std::os::fd::{BorrowedFd, OwnedFd};

use libc::c_void;
use npu_wire::{WireError, receive_parts, send_parts};
use rustix::io::Errno;

/// Memory of the program to read, at any address: only the kernel accesses it.
#[derive(Clone, Copy)]
pub(crate) struct ClientMemory {
    pub(crate) addr: u64,
    pub(crate) len: usize,
}

impl ClientMemory {
    pub(crate) const NONE: Self = Self { addr: 0, len: 0 };

    fn part(self) -> Result<libc::iovec, Errno> {
        let addr = usize::try_from(self.addr).map_err(|_| Errno::FAULT)?;
        Ok(libc::iovec {
            iov_base: std::ptr::with_exposed_provenance_mut::<c_void>(addr),
            iov_len: self.len,
        })
    }
}

/// Memory that may be written, as the caller of [`Room::at`] promises, or that is not
/// mapped.
pub(crate) struct Room<'a> {
    memory: ClientMemory,
    lent: PhantomData<&'a mut [u8]>,
}

impl<'a> Room<'a> {
    pub(crate) const NONE: Self = Self {
        memory: ClientMemory::NONE,
        lent: PhantomData,
    };

    pub(crate) fn of(bytes: &'a mut [u8]) -> Self {
        let memory = ClientMemory {
            addr: bytes.as_mut_ptr().expose_provenance() as u64,
            len: bytes.len(),
        };
        // SAFETY: the bytes are mutably borrowed for that time.
        unsafe { Self::at(memory) }
    }

    /// # Safety
    /// While this is in use, the mapped parts of the memory may be written.
    pub(crate) unsafe fn at(memory: ClientMemory) -> Self {
        Self {
            memory,
            ..Self::NONE
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.memory.len
    }
}

/// Sends one message: `head`, a part of the program's memory, and descriptors.
///
/// # Errors
/// `EFAULT` if that part cannot be read; then nothing is sent. `ENODEV` if the other side
/// has closed the connection.
pub(crate) fn send(
    socket: BorrowedFd<'_>,
    head: &[u8],
    memory: ClientMemory,
    descriptors: &[BorrowedFd<'_>],
) -> Result<(), Errno> {
    // SAFETY: `IoSlice` guarantees the same layout. Only the kernel follows the address: it
    // checks it, and only reads.
    let memory = unsafe { transmute::<libc::iovec, IoSlice<'_>>(memory.part()?) };
    send_parts(socket, &[IoSlice::new(head), memory], descriptors).map_err(errno)
}

/// Converts an error of the connection to an errno.
pub(crate) fn errno(error: WireError) -> Errno {
    match error {
        WireError::Os(errno) => errno,
        WireError::Closed => Errno::NODEV,
        WireError::Malformed(_) => Errno::PROTO,
    }
}

pub(crate) struct ReceivedMessage {
    /// Bytes received, at most the room.
    pub(crate) len: usize,
    pub(crate) descriptor: Option<OwnedFd>,
}

/// Reads the first bytes of the next message, and leaves the message in the queue.
///
/// # Errors
/// `EINTR` if a signal handler ran that does not restart system calls.
pub(crate) fn peek(socket: BorrowedFd<'_>, head: &mut [u8]) -> Result<usize, Errno> {
    loop {
        match rustix::net::recv(socket, &mut *head, rustix::net::RecvFlags::PEEK) {
            Err(RESET) => (),
            other => return other.map(|(_, len)| len),
        }
    }
}

/// Like [`peek`], without waiting.
///
/// # Errors
/// `EAGAIN` if there is no message.
pub(crate) fn try_peek(socket: BorrowedFd<'_>, head: &mut [u8]) -> Result<usize, Errno> {
    let flags = rustix::net::RecvFlags::PEEK | rustix::net::RecvFlags::DONTWAIT;
    loop {
        match rustix::net::recv(socket, &mut *head, flags) {
            Err(RESET | Errno::INTR) => (),
            other => return other.map(|(_, len)| len),
        }
    }
}

/// The kernel returns this error once if the server has closed its end with an unread
/// message of ours, such as a signal's (Linux net/unix/af_unix.c). It comes before the
/// result, which is still in the queue. If there is no result, the next receive returns the
/// end of the connection.
const RESET: Errno = Errno::CONNRESET;

/// Removes the message that a failed [`receive`] left in the queue. The kernel refuses an
/// address beyond user space before it takes the message, and an unmapped page after it.
/// The server sends no other message before it has an answer.
fn discard(socket: BorrowedFd<'_>, head: &mut [u8]) {
    if try_peek(socket, head).is_ok_and(|len| len > 0) {
        // If this fails, the next call fails in the same way.
        let _ = receive_parts(socket, &mut [IoSliceMut::new(head)]);
    }
}

/// Receives a message: its first bytes into `head`, the others into `room`.
///
/// # Errors
/// `EFAULT` if `room` cannot be written; the message is removed nevertheless.
pub(crate) fn receive(
    socket: BorrowedFd<'_>,
    head: &mut [u8],
    room: Room<'_>,
) -> Result<ReceivedMessage, Errno> {
    let received = loop {
        // SAFETY: `IoSliceMut` guarantees the same layout. Only the kernel follows the
        // address, which it checks. The caller of `Room::at` has promised that the mapped
        // parts may be written.
        let room = unsafe { transmute::<libc::iovec, IoSliceMut<'_>>(room.memory.part()?) };
        match receive_parts(socket, &mut [IoSliceMut::new(head), room]) {
            Err(Errno::INTR | RESET) => (),
            Err(Errno::FAULT) => {
                discard(socket, head);
                return Err(Errno::FAULT);
            }
            other => break other?,
        }
    };
    // Any second descriptor is closed here.
    let [descriptor, _] = received.descriptors;
    Ok(ReceivedMessage {
        len: received.len,
        descriptor,
    })
}
