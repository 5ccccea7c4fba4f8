// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests: the first message of a call, on the connection.

use rocket_uapi::sys::ARG_LEN_MAX;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, TryFromBytes};

use crate::message::WireError;

/// Version of the protocol, which must be the same in client and server.
pub const VERSION: u16 = 3;

/// First bytes of all requests: `NPU\x1b`, little endian.
const MAGIC: u32 = u32::from_le_bytes(*b"NPU\x1b");

/// Kind of a call that a client makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, TryFromBytes)]
#[repr(u16)]
pub enum RequestKind {
    /// Makes the connection an open file.
    Open,
    /// An ioctl of the device. The argument's bytes follow if they can be read.
    Ioctl,
    /// mmap of the device.
    Mmap,
    /// An ioctl of another file, which is the second descriptor.
    FileIoctl,
    /// Returns the path of the shadow directory, with the files that describe the device.
    Shadow,
    /// close. Once the client has closed its descriptor, it sends an
    /// [`Answer`](crate::FrameKind::Answer). If that was the last descriptor, the call ends
    /// when the file is released, else at once.
    Close,
    /// open of sw_sync, for fences that a program signals itself.
    SwSync,
    /// mmap of another file, which is the second descriptor. If it belongs to the device
    /// and the mapping is allowed, the client maps it from its start.
    FileMmap,
}

/// The first message of a call.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
pub struct Request {
    /// `MAGIC`, which marks a request.
    pub magic: u32,
    /// [`VERSION`]
    pub version: u16,
    /// A [`RequestKind`].
    pub ask: u16,
    /// Request number of an ioctl.
    pub number: u32,
    /// Calling process, as it claims.
    pub process: u32,
    /// Address of the argument in the client.
    pub arg: u64,
    /// mmap: bytes.
    pub len: u64,
    /// mmap: offset in the device.
    pub offset: u64,
    /// mmap: protection.
    pub prot: u32,
    /// mmap: flags.
    pub flags: u32,
}

/// Size of a [`Request`], bytes.
pub const REQUEST_BYTES: usize = size_of::<Request>();

const _: () = assert!(REQUEST_BYTES == 48);

impl Request {
    /// A request with only its kind.
    #[must_use]
    pub fn new(ask: RequestKind) -> Self {
        Self {
            magic: MAGIC,
            version: VERSION,
            ask: ask as u16,
            ..Self::default()
        }
    }

    /// Splits a message into a request and the data after it.
    ///
    /// # Errors
    /// [`WireError::Malformed`] for a message that is short, no request, of another version, of an
    /// unknown kind, or too long.
    pub fn parse(message: &[u8]) -> Result<(Self, RequestKind, &[u8]), WireError> {
        let (request, rest) =
            Self::read_from_prefix(message).map_err(|_| WireError::Malformed("it is too short"))?;
        if request.magic != MAGIC {
            return Err(WireError::Malformed("it is not a request"));
        }
        if request.version != VERSION {
            return Err(WireError::Malformed("it has another version"));
        }
        let ask = RequestKind::try_read_from_bytes(request.ask.as_bytes())
            .map_err(|_| WireError::Malformed("unknown request"))?;
        if rest.len() > ARG_LEN_MAX {
            return Err(WireError::Malformed("its argument is too long"));
        }
        Ok((request, ask, rest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_request_comes_back() {
        let unknown = RequestKind::FileMmap as u16 + 1;
        let requests = (0..=unknown).map(|ask| Request {
            ask,
            ..Request::new(RequestKind::Open)
        });
        for request in requests {
            let message = [request.as_bytes(), &[1, 2, 3]].concat();
            match Request::parse(&message) {
                Ok(parsed) => assert_eq!(
                    (parsed.0, parsed.1 as u16, parsed.2),
                    (request, request.ask, &[1, 2, 3][..])
                ),
                Err(_) => assert_eq!(request.ask, unknown),
            }
        }
    }

    proptest! {
        #![proptest_config(test_support::cases(256))]

        #[test]
        fn garbage_is_refused(message in prop::collection::vec(any::<u8>(), 0..100)) {
            prop_assert!(Request::parse(&message).is_err());
        }
    }
}
