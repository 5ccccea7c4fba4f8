// SPDX-License-Identifier: MIT OR Apache-2.0
//! The channel of one call: its client's memory, descriptors and signals.

use std::cell::{Cell, RefCell};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};

use npu_wire::{DATA_BYTES, Frame, FrameKind, WireError, receive, send, status_of};
use rocket_uapi::{Caller, Descriptor, Wake};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use zerocopy::IntoBytes;

/// Whether the other end of a socket is closed everywhere.
pub(crate) fn has_hung_up(socket: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(socket, PollFlags::RDHUP)];
    let polled = rustix::event::poll(&mut fds, Some(&Timespec::default()));
    polled.is_err() || !fds[0].revents().is_empty()
}

/// The server's end of a call's channel.
#[derive(Debug)]
pub(crate) struct Channel {
    socket: OwnedFd,
    /// Whether the client has said that a signal handler ran.
    interrupted: Cell<bool>,
    /// Whether the client did not answer and is gone.
    gone: Cell<bool>,
    /// Room for an answer, allocated for the first one.
    buffer: RefCell<Vec<u8>>,
}

/// A client's answer to a question of the server.
struct Answer {
    frame: Frame,
    /// Bytes that follow the frame, in the buffer.
    data_len: usize,
    descriptor: Option<OwnedFd>,
}

impl Channel {
    pub(crate) fn new(socket: OwnedFd) -> Self {
        Self {
            socket,
            interrupted: Cell::new(false),
            gone: Cell::new(false),
            buffer: RefCell::default(),
        }
    }

    /// Sends a question to the client and waits for its answer.
    fn ask(
        &self,
        frame: Frame,
        data: &[u8],
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<Answer, WireError> {
        let answer =
            send(&self.socket, [frame.as_bytes(), data], descriptors).and_then(|()| self.answer());
        let is_gone = matches!(answer, Err(WireError::Closed));
        self.gone.set(self.gone.get() || is_gone);
        answer
    }

    fn answer(&self) -> Result<Answer, WireError> {
        let mut buffer = self.buffer.borrow_mut();
        buffer.resize(size_of::<Frame>() + DATA_BYTES, 0);
        loop {
            let received = match receive(&self.socket, &mut buffer) {
                Err(WireError::Os(Errno::INTR)) => continue,
                other => other?,
            };
            if received.len == 0 {
                return Err(WireError::Closed);
            }
            let (frame, kind, rest) = Frame::parse(&buffer[..received.len])?;
            match kind {
                FrameKind::Interrupt => self.interrupted.set(true),
                FrameKind::Answer => {
                    let [descriptor, _] = received.descriptors;
                    return Ok(Answer {
                        frame,
                        data_len: rest.len(),
                        descriptor,
                    });
                }
                _ => return Err(WireError::Malformed("it is not an answer")),
            }
        }
    }

    /// Waits until the client has done what it announced. Fails if the client is
    /// gone before.
    pub(crate) fn wait_for_client(&self) -> Result<(), WireError> {
        self.answer().map(drop)
    }

    /// Whether the client is gone, or does not wait any more.
    pub(crate) fn has_hung_up(&self) -> bool {
        has_hung_up(&self.socket)
    }

    fn read_some(&self, addr: u64, out: &mut [u8]) -> Result<(), WireError> {
        let frame = Frame {
            len: out.len() as u64,
            ..Frame::with_value(FrameKind::Read, addr)
        };
        let answer = self.ask(frame, &[], &[])?;
        answer.frame.result()?;
        if answer.data_len != out.len() {
            return Err(WireError::Malformed(
                "its data do not have the requested length",
            ));
        }
        let start = size_of::<Frame>();
        out.copy_from_slice(&self.buffer.borrow()[start..start + answer.data_len]);
        Ok(())
    }

    /// Ends the call with its result, and with the argument if it goes back.
    /// Returns whether the client was there.
    pub(crate) fn done(&self, result: Result<i32, Errno>, arg: &[u8]) -> bool {
        let frame = Frame {
            len: arg.len() as u64,
            ..Frame::with_status(FrameKind::Done, status_of(result))
        };
        self.end(frame, arg)
    }

    /// Ends an ioctl of a file other than the node. `Ok(None)`: it is not the
    /// device's.
    pub(crate) fn done_file(&self, result: Result<Option<i32>, Errno>) {
        let is_ours = !matches!(result, Ok(None));
        let frame = Frame {
            value: u64::from(is_ours),
            ..Frame::with_status(
                FrameKind::Done,
                status_of(result.map(Option::unwrap_or_default)),
            )
        };
        self.end(frame, &[]);
    }

    /// Ends a call whose result is a file. `offset` is that of an mmap in it.
    pub(crate) fn give(&self, file: OwnedFd, offset: u64) {
        let head = Frame::new(FrameKind::File);
        if let Err(error) = send(&self.socket, [head.as_bytes(), &[]], &[file.as_fd()]) {
            tracing::debug!(%error, "cannot send the file to a client");
        }
        // Close the file before the client gets its result. Then only the client
        // has it, so its munmap ends the mapping.
        drop(file);
        self.end(Frame::with_value(FrameKind::Done, offset), &[]);
    }

    fn end(&self, frame: Frame, data: &[u8]) -> bool {
        // An error means that the client is gone.
        let sent = send(&self.socket, [frame.as_bytes(), data], &[]);
        if let Err(error) = &sent {
            tracing::debug!(%error, "cannot send the result to a client");
        }
        sent.is_ok()
    }
}

/// Address of a chunk from `addr` on. It may wrap; the client then finds it
/// unmapped.
fn chunk_address(addr: u64, chunk: usize) -> u64 {
    addr.wrapping_add((chunk * DATA_BYTES) as u64)
}

/// A failure of the channel as an errno.
fn errno(error: WireError) -> Errno {
    match error {
        WireError::Os(errno) => errno,
        // The client is gone and gets no result.
        WireError::Closed => Errno::SRCH,
        WireError::Malformed(_) => Errno::PROTO,
    }
}

impl Caller for Channel {
    fn read(&self, addr: u64, out: &mut [u8]) -> Result<(), Errno> {
        for (index, chunk) in out.chunks_mut(DATA_BYTES).enumerate() {
            self.read_some(chunk_address(addr, index), chunk)
                .map_err(|_| Errno::FAULT)?;
        }
        Ok(())
    }

    fn write(&self, addr: u64, data: &[u8]) -> Result<(), Errno> {
        for (index, chunk) in data.chunks(DATA_BYTES).enumerate() {
            let frame = Frame {
                len: chunk.len() as u64,
                ..Frame::with_value(FrameKind::Write, chunk_address(addr, index))
            };
            let answer = self.ask(frame, chunk, &[]).map_err(|_| Errno::FAULT)?;
            answer.frame.result().map_err(|_| Errno::FAULT)?;
        }
        Ok(())
    }

    fn descriptor(&self, number: RawFd) -> Result<Descriptor, Errno> {
        // With the sign extended, as the client reads it.
        let frame = Frame::with_value(FrameKind::TakeFd, i64::from(number).cast_unsigned());
        let answer = self.ask(frame, &[], &[]).map_err(errno)?;
        answer.frame.result()?;
        answer.descriptor.map(Descriptor::Sent).ok_or(Errno::BADF)
    }

    fn install(
        &self,
        file: OwnedFd,
        close_on_exec: bool,
        announce: &mut dyn FnMut(RawFd) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let frame = Frame::with_value(FrameKind::InstallFd, u64::from(close_on_exec));
        let answer = self.ask(frame, &[], &[file.as_fd()]).map_err(errno)?;
        let number = answer.frame.result()?;
        announce(number).inspect_err(|_| {
            let close = Frame::with_value(FrameKind::CloseFd, i64::from(number).cast_unsigned());
            // A client that does not answer has no descriptors.
            let _ = self.ask(close, &[], &[]);
        })
    }

    fn is_gone(&self) -> bool {
        self.gone.get()
    }

    fn wake(&self) -> Wake<'_> {
        if self.interrupted.get() {
            Wake::Now
        } else {
            Wake::Readable(self.socket.as_fd())
        }
    }
}
