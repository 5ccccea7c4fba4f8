// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages of which one part lies in the program's memory, at an address that
//! may be wrong.
//!
//! The kernel copies that part: to a bad address it says `EFAULT`, as to an
//! ioctl's. (qemu-user sends and receives the good parts only, which shows in
//! the length.)

use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use libc::{c_int, c_void};
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;

/// Most descriptors in one message.
const DESCRIPTORS: usize = 2;

/// Room for descriptors, with the alignment of a control message.
#[repr(C, align(8))]
struct Control([u8; CONTROL_BYTES]);

const CONTROL_BYTES: usize = control_space(DESCRIPTORS);

/// Bytes of a control message with so many descriptors, and of its padding.
const fn control_space(descriptors: usize) -> usize {
    // SAFETY: plain arithmetic.
    unsafe { libc::CMSG_SPACE((descriptors * size_of::<c_int>()) as u32) as usize }
}

/// Bytes of a control message with so many descriptors.
const fn control_len(descriptors: usize) -> usize {
    // SAFETY: plain arithmetic.
    unsafe { libc::CMSG_LEN((descriptors * size_of::<c_int>()) as u32) as usize }
}

/// Memory of the program, to be read: at any address, as the kernel does it.
#[derive(Clone, Copy)]
pub(crate) struct Memory {
    pub(crate) addr: u64,
    pub(crate) len: usize,
}

impl Memory {
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
    memory: Memory,
    lent: PhantomData<&'a mut [u8]>,
}

impl<'a> Room<'a> {
    pub(crate) const NONE: Self = Self {
        memory: Memory::NONE,
        lent: PhantomData,
    };

    pub(crate) fn of(bytes: &'a mut [u8]) -> Self {
        let memory = Memory {
            addr: bytes.as_mut_ptr().expose_provenance() as u64,
            len: bytes.len(),
        };
        // SAFETY: borrowed, alone, for as long.
        unsafe { Self::at(memory) }
    }

    /// # Safety
    /// For as long as this is used, what of the memory is mapped may be
    /// written.
    pub(crate) unsafe fn at(memory: Memory) -> Self {
        Self {
            memory,
            ..Self::NONE
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.memory.len
    }
}

fn header(parts: &mut [libc::iovec; 2]) -> libc::msghdr {
    // SAFETY: a `msghdr` is numbers and pointers, for which zeroes are good.
    let mut header: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    header.msg_iov = parts.as_mut_ptr();
    header.msg_iovlen = parts.len();
    header
}

fn last_errno() -> Errno {
    Errno::from_raw_os_error(crate::guard::errno())
}

/// Sends `head`, a part of the program's memory and descriptors as one message.
///
/// # Errors
/// `EFAULT` if that part cannot be read; then nothing is sent. `ENODEV` if the
/// other side is gone.
pub(crate) fn send(
    socket: BorrowedFd<'_>,
    head: &[u8],
    memory: Memory,
    descriptors: [Option<BorrowedFd<'_>>; DESCRIPTORS],
) -> Result<(), Errno> {
    let mut parts = [
        libc::iovec {
            iov_base: head.as_ptr().cast_mut().cast(),
            iov_len: head.len(),
        },
        memory.part()?,
    ];
    let mut header = header(&mut parts);
    let mut control = Control([0; CONTROL_BYTES]);
    let count = descriptors.iter().flatten().count();
    if count > 0 {
        header.msg_control = control.0.as_mut_ptr().cast();
        header.msg_controllen = control_space(count);
        put_descriptors(&header, descriptors.iter().flatten(), control_len(count));
    }
    loop {
        // SAFETY: the first part is a slice that lives. Of the second the
        // kernel checks the address; it is only read.
        let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &header, libc::MSG_NOSIGNAL) };
        if sent >= 0 {
            return Ok(());
        }
        match last_errno() {
            Errno::INTR => (),
            // The program's descriptor may be one that does not block.
            Errno::AGAIN => {
                let mut fds = [PollFd::from_borrowed_fd(socket, PollFlags::OUT)];
                let _ = rustix::event::poll(&mut fds, None);
            }
            Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN => return Err(Errno::NODEV),
            errno => return Err(errno),
        }
    }
}

/// Writes the control message that carries descriptors.
fn put_descriptors<'a>(
    header: &libc::msghdr,
    descriptors: impl Iterator<Item = &'a BorrowedFd<'a>>,
    len: usize,
) {
    // SAFETY: the header's control buffer lives and has room for a message.
    let message = unsafe { libc::CMSG_FIRSTHDR(header) };
    if message.is_null() {
        return;
    }
    // SAFETY: within the control buffer, which is aligned for it.
    unsafe {
        message.write(libc::cmsghdr {
            cmsg_len: len,
            cmsg_level: libc::SOL_SOCKET,
            cmsg_type: libc::SCM_RIGHTS,
        });
    }
    // SAFETY: it has room for as many numbers as `len` says.
    let data = unsafe { libc::CMSG_DATA(message) }.cast::<c_int>();
    for (index, descriptor) in descriptors.enumerate() {
        // SAFETY: see above.
        let place = unsafe { data.add(index) };
        // SAFETY: see above; they need not be aligned.
        unsafe { place.write_unaligned(descriptor.as_raw_fd()) };
    }
}

/// One message received.
pub(crate) struct Received {
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

/// Receives a message: its first bytes into `head`, the others into `room`.
///
/// # Errors
/// `EFAULT` if that cannot be written; the message is gone all the same.
pub(crate) fn receive(
    socket: BorrowedFd<'_>,
    head: &mut [u8],
    room: Room<'_>,
) -> Result<Received, Errno> {
    let mut parts = [
        libc::iovec {
            iov_base: head.as_mut_ptr().cast(),
            iov_len: head.len(),
        },
        room.memory.part()?,
    ];
    let mut control = Control([0; CONTROL_BYTES]);
    let mut header = header(&mut parts);
    header.msg_control = control.0.as_mut_ptr().cast();
    // Room for one: the kernel keeps what else a server sends.
    header.msg_controllen = control_len(1);
    let len = loop {
        // SAFETY: the first part is a slice that lives, the control buffer
        // too. The second is memory that may be written where it is mapped, and
        // the kernel checks whether it is.
        let len = unsafe { libc::recvmsg(socket.as_raw_fd(), &mut header, libc::MSG_CMSG_CLOEXEC) };
        match usize::try_from(len) {
            Ok(len) => break len,
            Err(_) if [Errno::INTR, RESET].contains(&last_errno()) => (),
            Err(_) => return Err(last_errno()),
        }
    };
    Ok(Received {
        len,
        descriptor: first_descriptor(&header),
    })
}

fn first_descriptor(header: &libc::msghdr) -> Option<OwnedFd> {
    // SAFETY: the kernel has filled the control buffer of this header.
    let message = unsafe { libc::CMSG_FIRSTHDR(header) };
    if message.is_null() {
        return None;
    }
    // SAFETY: not null: a whole message header within the control buffer.
    let fields = unsafe { message.read() };
    if (fields.cmsg_level, fields.cmsg_type) != (libc::SOL_SOCKET, libc::SCM_RIGHTS)
        || fields.cmsg_len < control_len(1)
    {
        return None;
    }
    // SAFETY: it has room for one number, by its length.
    let data = unsafe { libc::CMSG_DATA(message) };
    // SAFETY: see above; it need not be aligned.
    let number = unsafe { data.cast::<c_int>().read_unaligned() };
    // SAFETY: a descriptor that the kernel has just made for this process, and
    // whose number nobody else knows.
    Some(unsafe { OwnedFd::from_raw_fd(number) })
}
