// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors of writing and reading captures.

use std::io;

use crate::format::{PAYLOAD_MAX, SectionKind, VERSION};

/// Why a file could not be read as a capture.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CaptureError {
    /// The file could not be read.
    #[error("cannot read the file: {0}")]
    Io(#[from] io::Error),
    /// It does not begin like a capture.
    #[error("not a capture file")]
    NotACapture,
    /// It was made by a later version of this program.
    #[error(
        "the capture has version {found}, this program reads version {VERSION}: use a newer program"
    )]
    Version {
        /// The version that the file says it has.
        found: u16,
    },
    /// It uses features that this program does not know.
    #[error("the capture needs features that this program does not know: flags {flags:#x}")]
    Flags {
        /// The bits of the header's flags that are not known here.
        flags: u32,
    },
    /// The trailer that ends a finished file is missing.
    #[error("the capture is unfinished: its recorder died, or the file was cut off")]
    Unfinished,
    /// A checksum does not match.
    #[error("the capture is damaged at byte {offset}: the checksum of the {what} does not match")]
    Checksum {
        /// Offset in the file, bytes.
        offset: u64,
        /// The part of the file that the checksum covers.
        what: &'static str,
    },
    /// A section is longer than allowed.
    #[error(
        "the section {kind} at byte {offset} claims {bytes} bytes; at most {PAYLOAD_MAX} \
         are possible"
    )]
    TooLong {
        /// The section's kind.
        kind: SectionKind,
        /// Where it begins, bytes from the start of the file.
        offset: u64,
        /// The length that its header claims, bytes.
        bytes: u64,
    },
    /// Fields contradict each other or the format.
    #[error("the section {kind} at byte {offset} is malformed: {what}")]
    Malformed {
        /// The section's kind.
        kind: SectionKind,
        /// Where it begins, bytes from the start of the file.
        offset: u64,
        /// The contradiction, in words.
        what: &'static str,
    },
    /// The table of sections does not match the file.
    #[error("the capture's table of sections does not match the file: {what}")]
    Table {
        /// The contradiction, in words.
        what: &'static str,
    },
    /// The file contains no device.
    #[error("the capture contains no device section")]
    NoDevice,
    /// Compressed pages could not be unpacked.
    #[error("the pages at byte {offset} cannot be unpacked: {message}")]
    Compression {
        /// Where their section begins, bytes from the start of the file.
        offset: u64,
        /// The message of zstd, or what is wrong with the length.
        message: String,
    },
}

/// Why recording stopped.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The file could not be written.
    #[error("cannot write the capture: {message}")]
    Io {
        /// The system's message.
        message: String,
    },
    /// The recording exceeds a limit of the format.
    #[error("the capture is full: {what}; record fewer jobs in each capture")]
    Full {
        /// What exceeds the limit, in words.
        what: &'static str,
    },
    /// A buffer object has an impossible length or address.
    #[error("the buffer object {handle} has an impossible length or address")]
    Object {
        /// Its GEM handle in its file.
        handle: u32,
    },
    /// The program made an ioctl that the recorder does not know.
    #[error(
        "the program made the ioctl {request:#010x}, which the recorder does not know: a job \
         or a buffer object may be missing from the capture"
    )]
    Request {
        /// The request number.
        request: u32,
    },
}

impl From<io::Error> for RecordError {
    fn from(error: io::Error) -> Self {
        Self::Io {
            message: error.to_string(),
        }
    }
}
