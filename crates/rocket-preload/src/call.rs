// SPDX-License-Identifier: MIT OR Apache-2.0
//! One call to the server, and what the server asks for meanwhile.

use std::os::fd::{AsFd, BorrowedFd, IntoRawFd, OwnedFd};

use npu_wire::{Frame, FrameKind, Request, WireError};
use rustix::io::{Errno, FdFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use zerocopy::IntoBytes;

use crate::wire::{self, Memory};

/// How a call ended.
pub(crate) struct Outcome {
    /// What the system call would return.
    pub(crate) result: Result<i32, Errno>,
    /// With a file to map: where in it. Of an ioctl of another file: whether
    /// it was one of the device's.
    pub(crate) value: u64,
    /// A file to map.
    pub(crate) file: Option<OwnedFd>,
    /// Bytes that came with it.
    pub(crate) data_len: usize,
}

/// Does a call on a connection. `arg` goes along with the request, if it can
/// be read; `out` takes what comes with the result.
///
/// # Errors
/// `ENODEV` if the server is gone, `EMFILE` without descriptors for the call,
/// `ENFILE` where the server has none.
pub(crate) fn call(
    connection: BorrowedFd<'_>,
    request: &Request,
    arg: Memory,
    out: Memory,
    file: Option<BorrowedFd<'_>>,
) -> Result<Outcome, Errno> {
    let (channel, theirs) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )?;
    let requested = request_call(connection, request, arg, theirs.as_fd(), file);
    drop(theirs);
    // A server without descriptors may have gone before it is asked, too.
    match requested.and_then(|()| converse(channel.as_fd(), out)) {
        Err(Errno::NODEV) => Err(why_no_result(connection)),
        other => other,
    }
}

/// Why a call has no result: the server is gone, or has no descriptors left.
fn why_no_result(connection: BorrowedFd<'_>) -> Errno {
    let mut head = [0; size_of::<Frame>()];
    match wire::look(connection, &mut head) {
        // The end of the connection.
        Ok(0) => Errno::NODEV,
        // The only thing that is ever said there.
        Ok(_) => Frame::parse(&head)
            .ok()
            .and_then(|(frame, _, _)| frame.result().err())
            .unwrap_or(Errno::PROTO),
        // It is still there, and could not take the channel.
        Err(Errno::AGAIN) => Errno::NFILE,
        Err(_) => Errno::NODEV,
    }
}

fn request_call(
    connection: BorrowedFd<'_>,
    request: &Request,
    arg: Memory,
    channel: BorrowedFd<'_>,
    file: Option<BorrowedFd<'_>>,
) -> Result<(), Errno> {
    let head = request.as_bytes();
    match wire::send(connection, head, arg, [Some(channel), file]) {
        Err(Errno::FAULT) => wire::send(connection, head, Memory::NONE, [Some(channel), file]),
        other => other,
    }
}

fn errno(error: WireError) -> Errno {
    match error {
        WireError::Os(errno) => errno,
        WireError::Closed => Errno::NODEV,
        WireError::Malformed(_) => Errno::PROTO,
    }
}

/// Does what the server asks for until it gives the result.
fn converse(channel: BorrowedFd<'_>, out: Memory) -> Result<Outcome, Errno> {
    let mut interrupted = false;
    let mut file = None;
    loop {
        let mut head = [0; size_of::<Frame>()];
        match wire::peek(channel, &mut head) {
            Ok(0) => return Err(Errno::NODEV),
            Ok(_) => (),
            Err(Errno::INTR) => {
                // The server decides whether that ends the call.
                if !interrupted {
                    interrupted = true;
                    // If the server has ended the call already, its result is
                    // the next message.
                    let _ = answer(channel, Frame::new(FrameKind::Interrupt));
                }
                continue;
            }
            Err(errno) => return Err(errno),
        }
        let (frame, kind, _) = Frame::parse(&head).map_err(errno)?;
        match kind {
            FrameKind::Done => return done(channel, &mut head, out, file),
            FrameKind::File => {
                file = wire::receive(channel, &mut head, Memory::NONE)?.descriptor;
            }
            FrameKind::Read => {
                wire::receive(channel, &mut head, Memory::NONE)?;
                send_memory(channel, &frame)?;
            }
            FrameKind::Write => {
                let memory = Memory {
                    addr: frame.value,
                    len: npu_wire::DATA_BYTES.min(frame.len as usize),
                };
                let written = wire::receive(channel, &mut head, memory);
                let whole = head.len() + memory.len;
                let result = match written {
                    Ok(received) if received.len == whole => Ok(0),
                    Ok(_) | Err(Errno::FAULT) => Err(Errno::FAULT),
                    Err(errno) => return Err(errno),
                };
                tell(channel, result)?;
            }
            FrameKind::TakeFd => {
                wire::receive(channel, &mut head, Memory::NONE)?;
                send_descriptor(channel, &frame)?;
            }
            FrameKind::InstallFd => {
                let received = wire::receive(channel, &mut head, Memory::NONE)?;
                tell(channel, install(received.descriptor, frame.value == 1))?;
            }
            FrameKind::CloseFd => {
                wire::receive(channel, &mut head, Memory::NONE)?;
                close_installed(&frame);
                tell(channel, Ok(0))?;
            }
            FrameKind::Answer | FrameKind::Interrupt => return Err(Errno::PROTO),
        }
    }
}

/// Takes the result, and what of the argument comes back with it.
fn done(
    channel: BorrowedFd<'_>,
    head: &mut [u8; size_of::<Frame>()],
    out: Memory,
    file: Option<OwnedFd>,
) -> Result<Outcome, Errno> {
    let received = wire::receive(channel, head, out)?;
    let (frame, _, _) = Frame::parse(head).map_err(errno)?;
    let data_len = received.len - head.len().min(received.len);
    // Part of the argument could not be written. The kernel says so even of
    // a call that failed.
    let cut = (data_len as u64) < frame.len && data_len < out.len;
    Ok(Outcome {
        result: if cut {
            Err(Errno::FAULT)
        } else {
            frame.result()
        },
        value: frame.value,
        file,
        data_len,
    })
}

fn answer(channel: BorrowedFd<'_>, frame: Frame) -> Result<(), Errno> {
    npu_wire::send(channel, [frame.as_bytes(), &[]], &[]).map_err(errno)
}

fn tell(channel: BorrowedFd<'_>, result: Result<i32, Errno>) -> Result<(), Errno> {
    let status = npu_wire::status_of(result);
    answer(channel, Frame::with_status(FrameKind::Answer, status))
}

fn send_memory(channel: BorrowedFd<'_>, asked: &Frame) -> Result<(), Errno> {
    let memory = Memory {
        addr: asked.value,
        len: npu_wire::DATA_BYTES.min(asked.len as usize),
    };
    let frame = Frame::new(FrameKind::Answer);
    match wire::send(channel, frame.as_bytes(), memory, [None, None]) {
        Err(Errno::FAULT) => tell(channel, Err(Errno::FAULT)),
        other => other,
    }
}

fn send_descriptor(channel: BorrowedFd<'_>, asked: &Frame) -> Result<(), Errno> {
    let Ok(number @ 0..) = i32::try_from(asked.value.cast_signed()) else {
        return tell(channel, Err(Errno::BADF));
    };
    // SAFETY: the program named this descriptor for this call. If it is not
    // open, all that happens is that the kernel says `EBADF`.
    let named = unsafe { BorrowedFd::borrow_raw(number) };
    let frame = Frame::new(FrameKind::Answer);
    match npu_wire::send(channel, [frame.as_bytes(), &[]], &[named]) {
        Err(WireError::Os(Errno::BADF)) => tell(channel, Err(Errno::BADF)),
        other => other.map_err(errno),
    }
}

fn install(descriptor: Option<OwnedFd>, close_on_exec: bool) -> Result<i32, Errno> {
    // Without one it was the program that had no number left.
    let descriptor = descriptor.ok_or(Errno::MFILE)?;
    if !close_on_exec {
        rustix::io::fcntl_setfd(&descriptor, FdFlags::empty())?;
    }
    Ok(descriptor.into_raw_fd())
}

/// Closes a descriptor that was installed in this call and of which the
/// program never learned.
fn close_installed(asked: &Frame) {
    use std::os::fd::FromRawFd;
    if let Ok(number @ 0..) = i32::try_from(asked.value.cast_signed()) {
        // SAFETY: the server, which serves the model that this program chose,
        // names a number that `install` gave it in this call.
        drop(unsafe { OwnedFd::from_raw_fd(number) });
    }
}
