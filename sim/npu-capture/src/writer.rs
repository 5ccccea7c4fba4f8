// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes sections into a file, with checksums, and the table at the end.

use std::io::Write;

use zerocopy::IntoBytes;
use zerocopy::little_endian::U32;

use crate::error::RecordError;
use crate::format::{
    END_MAGIC, FileHeader, MAGIC, PAYLOAD_MAX, SECTIONS_MAX, SectionHeader, SectionKind,
    TableEntry, Trailer, VERSION, own_crc, trailer_crc,
};

/// Writes a capture file section by section.
///
/// A file that is never finished has no table, but all sections that were
/// written are whole: see [`Capture::open_unfinished`](crate::Capture::open_unfinished).
#[derive(Debug)]
pub struct CaptureWriter<W: Write> {
    out: W,
    at: u64,
    table: Vec<TableEntry>,
}

impl<W: Write> CaptureWriter<W> {
    /// Begins a file. `flags` is 0 or [`crate::format::FLAG_ZERO_DATA`], `unix_ns` is the
    /// time in nanoseconds since 1970.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn new(mut out: W, flags: u32, unix_ns: u64) -> Result<Self, RecordError> {
        let mut header = FileHeader {
            magic: MAGIC,
            version: VERSION.into(),
            header_bytes: (size_of::<FileHeader>() as u16).into(),
            flags: flags.into(),
            unix_ns: unix_ns.into(),
            reserved: 0.into(),
            crc: 0.into(),
        };
        header.crc = own_crc(&header).into();
        out.write_all(header.as_bytes())?;
        Ok(Self {
            out,
            at: size_of::<FileHeader>() as u64,
            table: Vec::new(),
        })
    }

    /// Adds a section. Readers skip unknown kinds.
    ///
    /// # Errors
    /// When it cannot be written, or is longer than a section can be.
    pub fn section(&mut self, kind: SectionKind, payload: &[u8]) -> Result<(), RecordError> {
        if payload.len() as u64 > PAYLOAD_MAX {
            let what = "a section would be too long";
            return Err(RecordError::Full { what });
        }
        // The table is a section too.
        if self.table.len() as u32 >= SECTIONS_MAX - 1 {
            let what = "it has too many sections";
            return Err(RecordError::Full { what });
        }
        let entry = self.write(kind, payload)?;
        self.table.push(entry);
        Ok(())
    }

    fn write(&mut self, kind: SectionKind, payload: &[u8]) -> Result<TableEntry, RecordError> {
        let mut header = SectionHeader {
            kind: kind.0,
            flags: 0.into(),
            bytes: (payload.len() as u64).into(),
            payload_crc: crc32fast::hash(payload).into(),
            crc: 0.into(),
        };
        header.crc = own_crc(&header).into();
        let entry = TableEntry {
            kind: kind.0,
            payload_crc: header.payload_crc,
            offset: self.at.into(),
            bytes: header.bytes,
        };
        self.out.write_all(header.as_bytes())?;
        self.out.write_all(payload)?;
        self.at += (size_of::<SectionHeader>() + payload.len()) as u64;
        Ok(entry)
    }

    /// Passes what was written to the system.
    ///
    /// # Errors
    /// When that fails.
    pub fn flush(&mut self) -> Result<&mut W, RecordError> {
        self.out.flush()?;
        Ok(&mut self.out)
    }

    /// Writes the table and the end.
    ///
    /// # Errors
    /// When that cannot be written.
    pub fn finish(mut self) -> Result<W, RecordError> {
        let table = std::mem::take(&mut self.table);
        let offset = self.at;
        self.write(SectionKind::TABLE, table.as_bytes())?;
        let mut trailer = Trailer {
            table: offset.into(),
            sections: U32::new(table.len() as u32),
            crc: 0.into(),
            magic: END_MAGIC,
        };
        trailer.crc = trailer_crc(&trailer).into();
        self.out.write_all(trailer.as_bytes())?;
        self.out.flush()?;
        Ok(self.out)
    }
}
