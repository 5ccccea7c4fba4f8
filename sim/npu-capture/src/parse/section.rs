// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds and checks the header, the sections and the end of a capture.

use std::fs::File;
use std::os::unix::fs::FileExt;

use zerocopy::IntoBytes;

use crate::error::CaptureError;
use crate::format::{
    END_MAGIC, FLAG_ZERO_DATA, FileHeader, MAGIC, PAYLOAD_MAX, Record, SectionHeader, SectionKind,
    TableEntry, Trailer, VERSION, own_crc, trailer_crc,
};

/// Bytes of an unknown section that are read at a time.
const SKIP_BYTES: usize = 64 << 10;

fn read<T: Record>(source: &File, offset: u64) -> Result<T, CaptureError> {
    let mut record = T::new_zeroed();
    source.read_exact_at(record.as_mut_bytes(), offset)?;
    Ok(record)
}

/// Reads and checks the header of a file of `len` bytes.
pub(super) fn file_header(source: &File, len: u64) -> Result<FileHeader, CaptureError> {
    if len < size_of::<FileHeader>() as u64 {
        return Err(CaptureError::NotACapture);
    }
    let header: FileHeader = read(source, 0)?;
    if header.magic != MAGIC {
        return Err(CaptureError::NotACapture);
    }
    let found = header.version.get();
    if found != VERSION {
        return Err(CaptureError::Version { found });
    }
    if own_crc(&header) != header.crc.get()
        || usize::from(header.header_bytes.get()) != size_of::<FileHeader>()
    {
        let what = "file header";
        return Err(CaptureError::Checksum { offset: 0, what });
    }
    match header.flags.get() & !FLAG_ZERO_DATA {
        0 => Ok(header),
        flags => Err(CaptureError::Flags { flags }),
    }
}

/// Reads and checks the end of a file of `len` bytes.
pub(super) fn trailer(source: &File, len: u64) -> Result<Trailer, CaptureError> {
    let offset = len
        .checked_sub(size_of::<Trailer>() as u64)
        .ok_or(CaptureError::Unfinished)?;
    let trailer: Trailer = read(source, offset)?;
    if trailer.magic != END_MAGIC {
        return Err(CaptureError::Unfinished);
    }
    if trailer_crc(&trailer) != trailer.crc.get() {
        let what = "end";
        return Err(CaptureError::Checksum { offset, what });
    }
    Ok(trailer)
}

/// Compares the table, which must end at `end`, with the sections that were found.
pub(super) fn check_table(
    source: &File,
    end: u64,
    trailer: &Trailer,
    entries: &[TableEntry],
) -> Result<(), CaptureError> {
    let section = TableEntry::read(source, trailer.table.get(), end)?;
    let wrong = |what| Err(CaptureError::Table { what });
    if section.kind() != SectionKind::TABLE || section.end() != end {
        return wrong("it is not at the place that the file's trailer names");
    }
    if section.bytes.get() != size_of_val(entries) as u64
        || trailer.sections.get() as usize != entries.len()
    {
        return wrong("its number of sections differs");
    }
    if section.payload(source)? != entries.as_bytes() {
        return wrong("an entry differs from its section");
    }
    Ok(())
}

impl TableEntry {
    /// Reads and checks the header of the section at `offset`, which must end at `end` or
    /// before.
    pub(super) fn read(source: &File, offset: u64, end: u64) -> Result<Self, CaptureError> {
        let header_bytes = size_of::<SectionHeader>() as u64;
        let damaged = |what| CaptureError::Checksum { offset, what };
        if end.saturating_sub(offset) < header_bytes {
            return Err(damaged("section header"));
        }
        let header: SectionHeader = read(source, offset)?;
        if own_crc(&header) != header.crc.get() {
            return Err(damaged("section header"));
        }
        let section = Self {
            kind: header.kind,
            payload_crc: header.payload_crc,
            offset: offset.into(),
            bytes: header.bytes,
        };
        let (kind, bytes) = (section.kind(), header.bytes.get());
        if bytes > end - offset - header_bytes {
            return Err(damaged("section"));
        }
        match header.flags.get() {
            0 => {}
            flags => return Err(CaptureError::Flags { flags }),
        }
        if section.is_known() && bytes > PAYLOAD_MAX {
            return Err(CaptureError::TooLong {
                kind,
                offset,
                bytes,
            });
        }
        Ok(section)
    }

    pub(super) fn kind(&self) -> SectionKind {
        SectionKind(self.kind)
    }

    /// Whether a reader knows what such a section contains. The table has no content.
    pub(super) fn is_known(&self) -> bool {
        matches!(
            self.kind(),
            SectionKind::DEVICE
                | SectionKind::NOTES
                | SectionKind::OBJECT
                | SectionKind::PAGES
                | SectionKind::JOB
                | SectionKind::DONE
        )
    }

    fn start(&self) -> u64 {
        self.offset.get() + size_of::<SectionHeader>() as u64
    }

    pub(super) fn end(&self) -> u64 {
        self.start() + self.bytes.get()
    }

    fn check(&self, crc: u32) -> Result<(), CaptureError> {
        if crc == self.payload_crc.get() {
            return Ok(());
        }
        Err(CaptureError::Checksum {
            offset: self.offset.get(),
            what: "section",
        })
    }

    /// Reads and checks the payload. The caller has checked its length.
    pub(super) fn payload(&self, source: &File) -> Result<Vec<u8>, CaptureError> {
        let mut payload = vec![0; self.bytes.get() as usize];
        source.read_exact_at(&mut payload, self.start())?;
        self.check(crc32fast::hash(&payload))?;
        Ok(payload)
    }

    /// Reads the payload only to check it.
    pub(super) fn skip(&self, source: &File) -> Result<(), CaptureError> {
        let mut crc = crc32fast::Hasher::new();
        let mut piece = [0; SKIP_BYTES];
        let (mut at, end) = (self.start(), self.end());
        while at < end {
            let len = (end - at).min(SKIP_BYTES as u64);
            let piece = &mut piece[..len as usize];
            source.read_exact_at(piece, at)?;
            crc.update(piece);
            at += len;
        }
        self.check(crc.finalize())
    }
}
