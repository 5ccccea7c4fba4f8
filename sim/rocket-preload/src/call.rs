// SPDX-License-Identifier: MIT OR Apache-2.0
//! One call to the server, with the requests that the server makes meanwhile.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd};

use npu_wire::{Frame, FrameKind, Request, WireError};
use rustix::io::{Errno, FdFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use zerocopy::IntoBytes;

use crate::complain::complain;
use crate::named::Named;
use crate::wire::{self, ClientMemory, Room, errno};

/// The server's answer at the end of a call.
pub(crate) struct CallOutcome {
    pub(crate) result: Result<i32, Errno>,
    /// With a file to map: the offset in it. For an ioctl of another file: whether the file
    /// belongs to the device.
    pub(crate) value: u64,
    pub(crate) file: Option<OwnedFd>,
    pub(crate) data_len: usize,
}

/// Makes a call on a connection. The argument is sent with the request if it can be read;
/// `out` receives the data that comes with the result.
///
/// # Errors
/// `ENODEV` if the server is gone; `EMFILE` if this process, `ENFILE` if the server has no
/// descriptors for the call; `EPROTO` if the server requests what the call does not name.
pub(crate) fn call(
    connection: BorrowedFd<'_>,
    request: &Request,
    named: &Named,
    out: Room<'_>,
    file: Option<BorrowedFd<'_>>,
) -> Result<CallOutcome, Errno> {
    let begun = begin(connection, request, named.sent(), file);
    // A server without descriptors may also close the connection before the request.
    match begun.and_then(|channel| converse(channel.as_fd(), named, out)) {
        Err(Errno::NODEV) => Err(why_no_result(connection)),
        other => other,
    }
}

/// Begins a call, and returns the client's end of its channel.
///
/// # Errors
/// `ENODEV` if the server is gone; `EMFILE` without descriptors for the call.
pub(crate) fn begin(
    connection: BorrowedFd<'_>,
    request: &Request,
    arg: ClientMemory,
    file: Option<BorrowedFd<'_>>,
) -> Result<OwnedFd, Errno> {
    let (channel, theirs) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )?;
    let head = request.as_bytes();
    let descriptors = [theirs.as_fd(), file.unwrap_or(theirs.as_fd())];
    let descriptors = &descriptors[..1 + usize::from(file.is_some())];
    match wire::send(connection, head, arg, descriptors) {
        Err(Errno::FAULT) => wire::send(connection, head, ClientMemory::NONE, descriptors)?,
        other => other?,
    }
    Ok(channel)
}

/// Why a call has no result: the server is gone, or has no descriptors left.
fn why_no_result(connection: BorrowedFd<'_>) -> Errno {
    let mut head = [0; size_of::<Frame>()];
    match wire::try_peek(connection, &mut head) {
        // The connection has ended.
        Ok(0) => Errno::NODEV,
        // An error is the only message that a server sends on a connection.
        Ok(_) => Frame::parse(&head)
            .ok()
            .and_then(|(frame, _, _)| frame.result().err())
            .unwrap_or(Errno::PROTO),
        // The server is alive, but had no descriptor for the channel.
        Err(Errno::AGAIN) => Errno::NFILE,
        Err(_) => Errno::NODEV,
    }
}

/// Reports a request for something that the call does not name.
fn refusal() -> Errno {
    complain(
        b"the server asks for memory or a descriptor that the program did not name: \
          it is broken, or was not started by npu-probe; start the program with `npu-probe run`",
    );
    Errno::PROTO
}

/// Answers the server's requests until it sends the result.
fn converse(channel: BorrowedFd<'_>, named: &Named, out: Room<'_>) -> Result<CallOutcome, Errno> {
    let mut interrupted = false;
    let mut file = None;
    // A descriptor for the program, which does not have its number yet.
    let mut installed: Option<OwnedFd> = None;
    loop {
        let mut head = [0; size_of::<Frame>()];
        match wire::peek(channel, &mut head) {
            Ok(0) => return Err(Errno::NODEV),
            Ok(_) => (),
            Err(Errno::INTR) => {
                // The server decides whether the signal ends the call.
                if !interrupted {
                    interrupted = true;
                    // If the server has already ended the call, its result is the next
                    // message.
                    let _ = answer(channel, Frame::new(FrameKind::Interrupt));
                }
                continue;
            }
            Err(errno) => return Err(errno),
        }
        let (frame, kind, _) = Frame::parse(&head).map_err(errno)?;
        let memory = ClientMemory {
            addr: frame.value,
            len: npu_wire::DATA_BYTES.min(frame.len as usize),
        };
        let room = match kind {
            FrameKind::Done => {
                let outcome = done(channel, &mut head, out, file)?;
                // The program owns the descriptor from here on.
                installed.map(IntoRawFd::into_raw_fd);
                return Ok(outcome);
            }
            FrameKind::Write => named.room(memory).ok_or_else(refusal)?,
            _ => Room::NONE,
        };
        let received = wire::receive(channel, &mut head, room);
        match kind {
            FrameKind::Write => {
                let whole = head.len() + memory.len;
                let result = match received {
                    Ok(received) if received.len == whole => Ok(0),
                    Ok(_) | Err(Errno::FAULT) => Err(Errno::FAULT),
                    Err(errno) => return Err(errno),
                };
                send_result(channel, result)?;
            }
            FrameKind::File => file = received?.descriptor,
            FrameKind::Read => {
                received?;
                if !named.reads(memory) {
                    return Err(refusal());
                }
                send_memory(channel, memory)?;
            }
            FrameKind::TakeFd => {
                received?;
                send_descriptor(channel, named, &frame)?;
            }
            FrameKind::InstallFd => {
                // No call installs two descriptors.
                if installed.is_some() {
                    return Err(refusal());
                }
                let result = install(received?.descriptor, frame.value == 1);
                let number = result.as_ref().map(AsRawFd::as_raw_fd).map_err(|&e| e);
                installed = result.ok();
                send_result(channel, number)?;
            }
            FrameKind::CloseFd => {
                received?;
                let is_it = |own: &OwnedFd| i64::from(own.as_raw_fd()) == frame.value.cast_signed();
                if !installed.as_ref().is_some_and(is_it) {
                    return Err(refusal());
                }
                installed = None;
                send_result(channel, Ok(0))?;
            }
            FrameKind::Done | FrameKind::Answer | FrameKind::Interrupt => {
                return Err(Errno::PROTO);
            }
        }
    }
}

/// Receives the result, with the argument that returns with it.
fn done(
    channel: BorrowedFd<'_>,
    head: &mut [u8; size_of::<Frame>()],
    out: Room<'_>,
    file: Option<OwnedFd>,
) -> Result<CallOutcome, Errno> {
    let room = out.len();
    let received = wire::receive(channel, head, out)?;
    let (frame, _, _) = Frame::parse(head).map_err(errno)?;
    let data_len = received.len - head.len().min(received.len);
    // Part of the argument could not be written. The kernel reports that even for a call
    // that failed.
    let cut = (data_len as u64) < frame.len && data_len < room;
    Ok(CallOutcome {
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

fn send_result(channel: BorrowedFd<'_>, result: Result<i32, Errno>) -> Result<(), Errno> {
    let status = npu_wire::status_of(result);
    answer(channel, Frame::with_status(FrameKind::Answer, status))
}

fn send_memory(channel: BorrowedFd<'_>, memory: ClientMemory) -> Result<(), Errno> {
    let frame = Frame::new(FrameKind::Answer);
    match wire::send(channel, frame.as_bytes(), memory, &[]) {
        Err(Errno::FAULT) => send_result(channel, Err(Errno::FAULT)),
        other => other,
    }
}

fn send_descriptor(channel: BorrowedFd<'_>, named: &Named, asked: &Frame) -> Result<(), Errno> {
    let number = i32::try_from(asked.value.cast_signed()).map_err(|_| refusal())?;
    if !named.takes(number) {
        return Err(refusal());
    }
    if number < 0 {
        return send_result(channel, Err(Errno::BADF));
    }
    // SAFETY: the program named this descriptor for this call, as checked above. If it is
    // not open, the kernel returns `EBADF`, with no other effect.
    let file = unsafe { BorrowedFd::borrow_raw(number) };
    let frame = Frame::new(FrameKind::Answer);
    match npu_wire::send(channel, [frame.as_bytes(), &[]], &[file]) {
        Err(WireError::Os(Errno::BADF)) => send_result(channel, Err(Errno::BADF)),
        other => other.map_err(errno),
    }
}

/// Prepares a received descriptor for the program.
fn install(descriptor: Option<OwnedFd>, close_on_exec: bool) -> Result<OwnedFd, Errno> {
    // If it is missing, this process had no descriptor left to receive it.
    let descriptor = descriptor.ok_or(Errno::MFILE)?;
    if !close_on_exec {
        rustix::io::fcntl_setfd(&descriptor, FdFlags::empty())?;
    }
    Ok(descriptor)
}
