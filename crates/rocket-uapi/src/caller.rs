// SPDX-License-Identifier: MIT OR Apache-2.0
//! The process that makes an ioctl, as the driver sees it: its memory, its descriptor
//! table, its signals.
//!
//! A caller in this process is this process itself. A server that takes ioctls from other
//! processes defines their descriptors, and how they interrupt a wait.

use std::os::fd::{AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};

use rustix::io::{Errno, FdFlags};

/// A process that makes ioctls. The default methods suit this process.
///
/// Ioctl structures hold addresses of job arrays, handle arrays and string buffers. The
/// host of the driver defines what such an address means. A bad address is `EFAULT`, never
/// a crash.
pub trait Caller {
    /// Fills `out` from `addr` on, like `copy_from_user`.
    ///
    /// # Errors
    /// `EFAULT` if any byte of the range is not readable.
    fn read(&self, addr: u64, out: &mut [u8]) -> Result<(), Errno>;

    /// Writes `data` from `addr` on, like `copy_to_user`.
    ///
    /// # Errors
    /// `EFAULT` if any byte of the range is not writable.
    fn write(&self, addr: u64, data: &[u8]) -> Result<(), Errno>;

    /// Returns the file behind one of its descriptors.
    ///
    /// # Errors
    /// `EBADF` for a number that is not open, here or only when the file is used.
    fn descriptor(&self, number: RawFd) -> Result<Descriptor, Errno> {
        Ok(Descriptor::Own(number))
    }

    /// Gives the process a descriptor, and passes its number to `announce`. If `announce` fails,
    /// this fails too, and the process has no descriptor.
    ///
    /// # Errors
    /// `EMFILE` if it has too many descriptors; errors of `announce`.
    fn install(
        &self,
        file: OwnedFd,
        close_on_exec: bool,
        announce: &mut dyn FnMut(RawFd) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let flags = if close_on_exec {
            FdFlags::CLOEXEC
        } else {
            FdFlags::empty()
        };
        rustix::io::fcntl_setfd(&file, flags)?;
        announce(file.as_raw_fd())?;
        let _ = file.into_raw_fd();
        Ok(())
    }

    /// Whether the process is known to be gone. A failed read of its memory is then not its
    /// fault.
    fn is_gone(&self) -> bool {
        false
    }

    /// The event that ends a wait of this call early.
    fn wake(&self) -> Wake<'_> {
        Wake::Signal
    }
}

/// A descriptor that a caller named.
#[derive(Debug)]
pub enum Descriptor {
    /// A number in this process.
    Own(RawFd),
    /// A file that another process sent.
    Sent(OwnedFd),
}

impl Descriptor {
    /// The file's number in this process.
    #[must_use]
    pub fn number(&self) -> RawFd {
        match self {
            Self::Own(number) => *number,
            Self::Sent(file) => file.as_raw_fd(),
        }
    }
}

/// The event that ends a wait of the driver with `EINTR`.
#[derive(Clone, Copy, Debug)]
pub enum Wake<'a> {
    /// A signal handler of the waiting thread.
    Signal,
    /// This file is readable, or has hung up.
    Readable(BorrowedFd<'a>),
    /// The call is already interrupted.
    Now,
}
