// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds and checks the header, the sections and the end of a capture.

use zerocopy::IntoBytes;

use crate::error::CaptureError;
use crate::format::{
    END_MAGIC, FLAG_ZERO_DATA, FileHeader, MAGIC, PAYLOAD_MAX, Record, SectionHeader, SectionKind,
    TableEntry, Trailer, VERSION, own_crc,
};
use crate::source::CaptureBytes;
use crate::writer::trailer_crc;

/// Bytes of an unknown section that are read at a time.
const SKIP_BYTES: usize = 64 << 10;

fn read<T: Record>(source: &CaptureBytes, offset: u64) -> Result<T, CaptureError> {
    let mut record = T::new_zeroed();
    source.read(offset, record.as_mut_bytes())?;
    Ok(record)
}

/// Reads and checks the header of the file.
pub(super) fn file_header(source: &CaptureBytes) -> Result<FileHeader, CaptureError> {
    if source.len() < size_of::<FileHeader>() as u64 {
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

/// Reads and checks the end of the file.
pub(super) fn trailer(source: &CaptureBytes) -> Result<Trailer, CaptureError> {
    let offset = source
        .len()
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

/// Compares the table with the sections that were found.
pub(super) fn check_table(
    source: &CaptureBytes,
    at: u64,
    end: u64,
    trailer: &Trailer,
    entries: &[TableEntry],
) -> Result<(), CaptureError> {
    let section = FoundSection::header(source, at, end)?;
    let wrong = |what| Err(CaptureError::Table { what });
    if section.kind != SectionKind::TABLE || section.end() != end {
        return wrong("it is not at the place that the file's trailer names");
    }
    if section.bytes != size_of_val(entries) as u64
        || trailer.sections.get() as usize != entries.len()
    {
        return wrong("its number of sections differs");
    }
    if section.payload(source)? != entries.as_bytes() {
        return wrong("an entry differs from its section");
    }
    Ok(())
}

/// A section with a correct header and a payload within the file.
pub(super) struct FoundSection {
    pub(super) kind: SectionKind,
    pub(super) offset: u64,
    bytes: u64,
    crc: u32,
}

impl FoundSection {
    /// Reads the header of the section at `offset`, which must end at `end` or
    /// before.
    fn header(source: &CaptureBytes, offset: u64, end: u64) -> Result<Self, CaptureError> {
        let header_bytes = size_of::<SectionHeader>() as u64;
        let damaged = |what| CaptureError::Checksum { offset, what };
        if end.saturating_sub(offset) < header_bytes {
            return Err(damaged("section header"));
        }
        let header: SectionHeader = read(source, offset)?;
        if own_crc(&header) != header.crc.get() {
            return Err(damaged("section header"));
        }
        let kind = SectionKind(header.kind);
        let (bytes, flags) = (header.bytes.get(), header.flags.get());
        if bytes > end - offset - header_bytes {
            return Err(damaged("section"));
        }
        if flags != 0 {
            return Err(CaptureError::Flags { flags });
        }
        Ok(Self {
            kind,
            offset,
            bytes,
            crc: header.payload_crc.get(),
        })
    }

    /// Like `header`, but refuses a section that is longer than its kind allows.
    pub(super) fn read(source: &CaptureBytes, offset: u64, end: u64) -> Result<Self, CaptureError> {
        let section = Self::header(source, offset, end)?;
        let Self { kind, bytes, .. } = section;
        if section.is_known() && bytes > PAYLOAD_MAX {
            return Err(CaptureError::TooLong {
                kind,
                offset,
                bytes,
            });
        }
        Ok(section)
    }

    pub(super) fn is_known(&self) -> bool {
        KNOWN.contains(&self.kind)
    }

    fn start(&self) -> u64 {
        self.offset + size_of::<SectionHeader>() as u64
    }

    pub(super) fn end(&self) -> u64 {
        self.start() + self.bytes
    }

    pub(super) fn entry(&self) -> TableEntry {
        TableEntry {
            kind: self.kind.0,
            payload_crc: self.crc.into(),
            offset: self.offset.into(),
            bytes: self.bytes.into(),
        }
    }

    fn check(&self, crc: u32) -> Result<(), CaptureError> {
        if crc == self.crc {
            return Ok(());
        }
        Err(CaptureError::Checksum {
            offset: self.offset,
            what: "section",
        })
    }

    /// Reads and checks the payload. The caller has checked its length.
    pub(super) fn payload(&self, source: &CaptureBytes) -> Result<Vec<u8>, CaptureError> {
        let mut payload = vec![0; self.bytes as usize];
        source.read(self.start(), &mut payload)?;
        self.check(crc32fast::hash(&payload))?;
        Ok(payload)
    }

    /// Reads the payload only to check it.
    pub(super) fn skip(&self, source: &CaptureBytes) -> Result<(), CaptureError> {
        let mut crc = crc32fast::Hasher::new();
        let mut piece = [0; SKIP_BYTES];
        let (mut at, end) = (self.start(), self.end());
        while at < end {
            let len = (end - at).min(SKIP_BYTES as u64);
            let piece = &mut piece[..len as usize];
            source.read(at, piece)?;
            crc.update(piece);
            at += len;
        }
        self.check(crc.finalize())
    }
}

const KNOWN: [SectionKind; 6] = [
    SectionKind::DEVICE,
    SectionKind::NOTES,
    SectionKind::OBJECT,
    SectionKind::PAGES,
    SectionKind::JOB,
    SectionKind::DONE,
];
