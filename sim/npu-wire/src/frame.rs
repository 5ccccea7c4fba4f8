// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages on the channel of one call.

use rustix::io::Errno;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, TryFromBytes};

use crate::message::WireError;

/// Maximum number of bytes that follow a frame.
pub const DATA_BYTES: usize = 64 << 10;

/// Kind of a frame: its sender and its meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, TryFromBytes)]
#[repr(u32)]
pub enum FrameKind {
    /// Server: send `len` bytes of memory from `value` on.
    Read,
    /// Server: write the following bytes to memory from `value` on.
    Write,
    /// Server: send the descriptor `value`.
    TakeFd,
    /// Server: install the attached descriptor, to be closed on exec if `value` is 1. The
    /// answer's status is its number.
    InstallFd,
    /// Server: close the descriptor `value`, which was installed before.
    CloseFd,
    /// Server: the attached descriptor is to be mapped once the call has ended. It comes
    /// before the end, so that the server has closed the file by then: a file that it still
    /// holds would look like a mapped one.
    File,
    /// Server: the call ends with `status`. The following bytes are written to the
    /// argument.
    Done,
    /// Client: the answer to one of the above.
    Answer,
    /// Client: a signal handler ran; end a wait.
    Interrupt,
}

/// One message of a channel. Data may follow it.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
pub struct Frame {
    /// A [`FrameKind`].
    pub kind: u32,
    /// A result, or an errno below zero.
    pub status: i32,
    /// An address or a number.
    pub value: u64,
    /// Number of bytes requested, or of bytes that follow.
    pub len: u64,
}

impl Frame {
    /// A frame with only its kind.
    #[must_use]
    pub fn new(kind: FrameKind) -> Self {
        Self {
            kind: kind as u32,
            ..Self::default()
        }
    }

    /// A frame with a status.
    #[must_use]
    pub fn with_status(kind: FrameKind, status: i32) -> Self {
        Self {
            status,
            ..Self::new(kind)
        }
    }

    /// A frame with a value.
    #[must_use]
    pub fn with_value(kind: FrameKind, value: u64) -> Self {
        Self {
            value,
            ..Self::new(kind)
        }
    }

    /// Splits a message into a frame and the data after it.
    ///
    /// # Errors
    /// [`WireError::Malformed`] for a short message or an unknown kind.
    pub fn parse(message: &[u8]) -> Result<(Self, FrameKind, &[u8]), WireError> {
        let (frame, rest) =
            Self::read_from_prefix(message).map_err(|_| WireError::Malformed("it is too short"))?;
        let kind = FrameKind::try_read_from_bytes(frame.kind.as_bytes())
            .map_err(|_| WireError::Malformed("unknown frame"))?;
        Ok((frame, kind, rest))
    }

    /// The status as a result.
    ///
    /// # Errors
    /// The errno with which the other side's call failed.
    pub fn result(&self) -> Result<i32, Errno> {
        if self.status >= 0 {
            return Ok(self.status);
        }
        Err(rocket_uapi::errno_of(self.status))
    }
}

/// Converts a result to a status.
#[must_use]
pub fn status_of(result: Result<i32, Errno>) -> i32 {
    match result {
        Ok(value) => value.max(0),
        Err(errno) => -errno.raw_os_error(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_frame_comes_back() {
        let unknown = FrameKind::Interrupt as u32 + 1;
        let frames = (0..=unknown).map(|kind| Frame {
            kind,
            ..Frame::with_value(FrameKind::Read, 7)
        });
        for frame in frames {
            let message = [frame.as_bytes(), &[9]].concat();
            match Frame::parse(&message) {
                Ok(parsed) => assert_eq!(
                    (parsed.0, parsed.1 as u32, parsed.2),
                    (frame, frame.kind, &[9][..])
                ),
                Err(_) => assert_eq!(frame.kind, unknown),
            }
        }
        assert!(Frame::parse(&[0; 23]).is_err());
    }

    proptest! {
        #![proptest_config(test_support::cases(256))]

        #[test]
        fn any_status_is_a_result(status in any::<i32>()) {
            let frame = Frame::with_status(FrameKind::Done, status);
            match frame.result() {
                Ok(value) => prop_assert_eq!(value, status),
                Err(Errno::PROTO) => prop_assert!(status < 0),
                Err(errno) => prop_assert_eq!(status_of(Err(errno)), status),
            }
        }
    }
}
