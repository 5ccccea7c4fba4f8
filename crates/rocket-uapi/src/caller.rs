// SPDX-License-Identifier: MIT OR Apache-2.0
//! The process that makes an ioctl, as far as the driver deals with it: its
//! memory, its descriptor table, its signals.
//!
//! For callers in this process that is this process. A server that takes
//! ioctls from other processes says what their descriptors are, and how they
//! interrupt a wait.

use std::os::fd::{AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};

use rustix::io::{Errno, FdFlags};

use crate::own_process::OwnProcess;
use crate::user_memory::{Arena, UserMemory};

/// A process that makes ioctls. What is given here is right for this process.
pub trait Caller: UserMemory {
    /// The file behind one of its descriptors.
    ///
    /// # Errors
    /// `EBADF` for a number that is not open. (It may also turn out only when
    /// the file is used.)
    fn descriptor(&self, number: RawFd) -> Result<Descriptor, Errno> {
        Ok(Descriptor::Own(number))
    }

    /// Gives the process a descriptor, whose number it comes to know by
    /// `tell`. If that fails, so does this, and the process has no descriptor.
    ///
    /// # Errors
    /// `EMFILE` where it has too many, or as `tell`.
    fn install(
        &self,
        file: OwnedFd,
        close_on_exec: bool,
        tell: &mut dyn FnMut(RawFd) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let flags = if close_on_exec {
            FdFlags::CLOEXEC
        } else {
            FdFlags::empty()
        };
        rustix::io::fcntl_setfd(&file, flags)?;
        tell(file.as_raw_fd())?;
        let _ = file.into_raw_fd();
        Ok(())
    }

    /// Whether it is known to be gone. That its memory could not be read then
    /// is no mistake of its.
    fn is_gone(&self) -> bool {
        false
    }

    /// What ends a wait of this call before its time.
    fn wake(&self) -> Wake<'_> {
        Wake::Signal
    }
}

impl Caller for Arena {}

impl Caller for OwnProcess {}

/// A descriptor that a caller named.
#[derive(Debug)]
pub enum Descriptor {
    /// By its number in this process.
    Own(RawFd),
    /// Of another process, which has sent it.
    Sent(OwnedFd),
}

impl Descriptor {
    /// The number by which this process knows the file.
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
    /// A signal handler of the thread that waits.
    Signal,
    /// This file can be read, or has hung up.
    Readable(BorrowedFd<'a>),
    /// It is interrupted already.
    Now,
}
