// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages of which one part lies in the program's memory, at an address that
//! may be wrong.
//!
//! The kernel copies that part: to a bad address it says `EFAULT`, as to an
//! ioctl's. (qemu-user sends and receives the good parts only, which shows in
//! the length.)

use std::io::{IoSlice, IoSliceMut};
use std::marker::PhantomData;
use std::mem::transmute;
use std::os::fd::{BorrowedFd, OwnedFd};

use libc::c_void;
use npu_wire::{WireError, receive_parts, send_parts};
use rustix::io::Errno;

/// Memory of the program, to be read: at any address, as the kernel does it.
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

/// Memory that may be written, by what [`Room::at`]'s caller says, or that is
/// not mapped.
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
        // SAFETY: borrowed, alone, for as long.
        unsafe { Self::at(memory) }
    }

    /// # Safety
    /// For as long as this is used, what of the memory is mapped may be
    /// written.
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

/// Sends `head`, a part of the program's memory and descriptors as one message.
///
/// # Errors
/// `EFAULT` if that part cannot be read; then nothing is sent. `ENODEV` if the
/// other side is gone.
pub(crate) fn send(
    socket: BorrowedFd<'_>,
    head: &[u8],
    memory: ClientMemory,
    descriptors: &[BorrowedFd<'_>],
) -> Result<(), Errno> {
    // SAFETY: the same structure, by what `IoSlice` guarantees. Nobody follows
    // the address but the kernel, which checks it, and only reads.
    let memory = unsafe { transmute::<libc::iovec, IoSlice<'_>>(memory.part()?) };
    send_parts(socket, &[IoSlice::new(head), memory], descriptors).map_err(errno)
}

/// A failure of the wire as an errno.
pub(crate) fn errno(error: WireError) -> Errno {
    match error {
        WireError::Os(errno) => errno,
        WireError::Closed => Errno::NODEV,
        WireError::Malformed(_) => Errno::PROTO,
    }
}

/// One message received.
pub(crate) struct ReceivedMessage {
    /// Its bytes, as far as there was room.
    pub(crate) len: usize,
    pub(crate) descriptor: Option<OwnedFd>,
}

/// Looks at the first bytes of the next message, which stays.
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

/// As [`peek`], without waiting.
///
/// # Errors
/// `EAGAIN` if there is no message.
pub(crate) fn look(socket: BorrowedFd<'_>, head: &mut [u8]) -> Result<usize, Errno> {
    let flags = rustix::net::RecvFlags::PEEK | rustix::net::RecvFlags::DONTWAIT;
    loop {
        match rustix::net::recv(socket, &mut *head, flags) {
            Err(RESET | Errno::INTR) => (),
            other => return other.map(|(_, len)| len),
        }
    }
}

/// What is told, once, of a server that closed its end with a message of ours
/// unread, such as that a signal came: ahead of the result, which is still in
/// the queue (Linux net/unix/af_unix.c). Without a
/// result the next answer is the end of the connection.
const RESET: Errno = Errno::CONNRESET;

/// Takes the message that a failed [`receive`] left in the queue: the kernel
/// refuses an address beyond user space before it takes the message, and a page
/// that is not mapped after that. The server sends no other message before it has
/// an answer.
fn discard(socket: BorrowedFd<'_>, head: &mut [u8]) {
    if look(socket, head).is_ok_and(|len| len > 0) {
        // If it fails the call that follows fails in the same way.
        let _ = receive_parts(socket, &mut [IoSliceMut::new(head)]);
    }
}

/// Receives a message: its first bytes into `head`, the others into `room`.
///
/// # Errors
/// `EFAULT` if that cannot be written; the message is gone all the same.
pub(crate) fn receive(
    socket: BorrowedFd<'_>,
    head: &mut [u8],
    room: Room<'_>,
) -> Result<ReceivedMessage, Errno> {
    let received = loop {
        // SAFETY: the same structure, by what `IoSliceMut` guarantees. Nobody
        // follows the address but the kernel, which checks it; what is mapped
        // there may be written, by what `Room::at`'s caller says.
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
    // What else a server sends is closed here.
    let [descriptor, _] = received.descriptors;
    Ok(ReceivedMessage {
        len: received.len,
        descriptor,
    })
}
