// SPDX-License-Identifier: MIT OR Apache-2.0
//! The bytes of a capture file, version 1, as in docs/capture.md: all numbers
//! little endian, no padding.

use std::mem::offset_of;

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// First bytes of a file. The high bit, the line end and the end-of-file byte
/// show whether a file was damaged by a transfer as text.
pub const MAGIC: [u8; 8] = *b"\x89RKCAP\n\x1a";
/// Last bytes of a finished file.
pub(crate) const END_MAGIC: [u8; 8] = *b"RKCAPEND";
/// The version that is written, so far the only one.
pub(crate) const VERSION: u16 = 1;
/// Bytes of a page, the unit of contents.
pub const PAGE: u64 = 4096;
/// Maximum bytes of data pages of one PAGE section.
pub(crate) const CHUNK_BYTES: u64 = 256 * PAGE;
/// Maximum payload of a section of a known kind, bytes: far more than a job of
/// 65536 tasks needs.
pub(crate) const PAYLOAD_MAX: u64 = 16 << 20;
/// Maximum number of sections of a file.
pub(crate) const SECTIONS_MAX: u32 = 1 << 24;

/// File flag: contents are 0 except for command words.
pub const FLAG_ZERO_DATA: u32 = 1;

/// The kind of a section: four letters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SectionKind(pub [u8; 4]);

impl SectionKind {
    /// The device that was recorded.
    pub const DEVICE: Self = Self(*b"DEVI");
    /// Texts about the recording.
    pub const NOTES: Self = Self(*b"NOTE");
    /// A buffer object.
    pub const OBJECT: Self = Self(*b"BOBJ");
    /// Pages of an object.
    pub const PAGES: Self = Self(*b"PAGE");
    /// A job, as it was submitted.
    pub const JOB: Self = Self(*b"JOBS");
    /// The end of a job.
    pub const DONE: Self = Self(*b"DONE");
    /// The table of all sections before it.
    pub const TABLE: Self = Self(*b"TABL");
}

impl std::fmt::Debug for SectionKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

impl std::fmt::Display for SectionKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0.escape_ascii())
    }
}

/// A record: fixed fields, as they stand in the file.
pub(crate) trait Record:
    FromBytes + IntoBytes + Immutable + KnownLayout + Unaligned
{
}
impl<T: FromBytes + IntoBytes + Immutable + KnownLayout + Unaligned> Record for T {}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct FileHeader {
    pub(crate) magic: [u8; 8],
    pub(crate) version: U16,
    pub(crate) header_bytes: U16,
    pub(crate) flags: U32,
    pub(crate) unix_ns: U64,
    pub(crate) reserved: U32,
    /// CRC-32 of the bytes before this field.
    pub(crate) crc: U32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct SectionHeader {
    pub(crate) kind: [u8; 4],
    pub(crate) flags: U32,
    pub(crate) bytes: U64,
    pub(crate) payload_crc: U32,
    /// CRC-32 of the bytes before this field.
    pub(crate) crc: U32,
}

/// A section as the table lists it.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct TableEntry {
    pub(crate) kind: [u8; 4],
    pub(crate) payload_crc: U32,
    pub(crate) offset: U64,
    pub(crate) bytes: U64,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Trailer {
    pub(crate) table: U64,
    pub(crate) sections: U32,
    /// CRC-32 of the bytes before this field.
    pub(crate) crc: U32,
    pub(crate) magic: [u8; 8],
}

/// Packs pages for a PAGE section: one zstd frame, or nothing for no pages.
///
/// # Errors
/// When zstd fails.
pub fn pack(pages: &[u8]) -> std::io::Result<Vec<u8>> {
    if pages.is_empty() {
        return Ok(Vec::new());
    }
    zstd::bulk::compress(pages, LEVEL)
}

/// Level of zstd: the fastest. Programs and sparse data shrink with it; weights
/// hardly shrink at any level.
const LEVEL: i32 = 1;

/// The checksum of a record that ends in its own checksum.
pub(crate) fn own_crc<T: Record>(record: &T) -> u32 {
    let bytes = record.as_bytes();
    crc32fast::hash(&bytes[..bytes.len() - size_of::<U32>()])
}

/// The checksum of a trailer's first two fields.
pub(crate) fn trailer_crc(trailer: &Trailer) -> u32 {
    crc32fast::hash(&trailer.as_bytes()[..offset_of!(Trailer, crc)])
}
