// SPDX-License-Identifier: MIT OR Apache-2.0
//! The bytes of a capture, in a file or in memory.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Random access to the bytes of a capture.
#[derive(Debug)]
pub(crate) enum CaptureBytes {
    File(File, u64),
    Bytes(Vec<u8>),
}

impl CaptureBytes {
    pub(crate) fn file(file: File) -> io::Result<Self> {
        let len = file.metadata()?.len();
        Ok(Self::File(file, len))
    }

    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::File(_, len) => *len,
            Self::Bytes(bytes) => bytes.len() as u64,
        }
    }

    /// Fills `into` from `offset` on.
    pub(crate) fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        match self {
            Self::File(file, _) => file.read_exact_at(into, offset),
            Self::Bytes(bytes) => {
                let found = usize::try_from(offset)
                    .ok()
                    .and_then(|start| bytes.get(start..start.checked_add(into.len())?));
                into.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
                Ok(())
            }
        }
    }
}
