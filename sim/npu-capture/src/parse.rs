// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parses a [`Capture`]. Every number is checked before it is used, and no allocation
//! is larger than the bytes that the file has for it.

mod section;

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Mutex;

use rustix::fs::{MemfdFlags, memfd_create};

use self::section::{check_table, file_header, trailer};
use crate::capture::{Capture, CapturedJob, CapturedObject, Chunk, RecordedDevice};
use crate::error::CaptureError;
use crate::fields::Fields;
use crate::format::{FLAG_ZERO_DATA, FileHeader, SECTIONS_MAX, SectionKind, TableEntry, Trailer};
use crate::sections;

impl Capture {
    /// Reads a capture and checks all of it.
    ///
    /// # Errors
    /// [`CaptureError`] says what is wrong with the file.
    pub fn open(path: &Path) -> Result<Self, CaptureError> {
        parse(File::open(path)?, false)
    }

    /// Reads the whole sections of a capture without an end, because its recorder died or
    /// the file was cut off. Reads a finished capture like [`Capture::open`].
    ///
    /// # Errors
    /// The device is missing, or a section is malformed.
    pub fn open_unfinished(path: &Path) -> Result<Self, CaptureError> {
        parse(File::open(path)?, true)
    }

    /// Like [`Capture::open`], from bytes in memory.
    ///
    /// # Errors
    /// As [`Capture::open`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, CaptureError> {
        parse(memory_file(bytes)?, false)
    }

    /// Like [`Capture::open_unfinished`], from bytes in memory.
    ///
    /// # Errors
    /// As [`Capture::open_unfinished`].
    pub fn from_unfinished_bytes(bytes: &[u8]) -> Result<Self, CaptureError> {
        parse(memory_file(bytes)?, true)
    }
}

/// A file of these bytes that is in no directory.
fn memory_file(bytes: &[u8]) -> io::Result<File> {
    let file = File::from(memfd_create("capture", MemfdFlags::CLOEXEC)?);
    file.write_all_at(bytes, 0)?;
    Ok(file)
}

/// Reads and checks a capture. If `may_be_unfinished`, a capture without an end counts up to
/// the first section that is not whole, where its recorder stopped.
fn parse(source: File, may_be_unfinished: bool) -> Result<Capture, CaptureError> {
    let len = source.metadata()?.len();
    let header = file_header(&source, len)?;
    let trailer = match trailer(&source, len) {
        Ok(trailer) => Some(trailer),
        Err(_) if may_be_unfinished => None,
        Err(error) => return Err(error),
    };
    let mut parser = Parser::default();
    let mut entries = Vec::new();
    let end = trailer.map_or(len, |trailer| trailer.table.get());
    let mut at = size_of::<FileHeader>() as u64;
    while at < end {
        let section = match parser.section(&source, at, end) {
            Ok(section) => section,
            Err(
                CaptureError::Checksum { .. }
                | CaptureError::Flags { .. }
                | CaptureError::TooLong { .. },
            ) if trailer.is_none() => break,
            Err(error) => return Err(error),
        };
        if entries.len() as u32 >= SECTIONS_MAX {
            let what = "there are too many sections";
            return Err(CaptureError::Table { what });
        }
        entries.push(section);
        at = section.end();
    }
    if let Some(trailer) = &trailer {
        let table_end = len - size_of::<Trailer>() as u64;
        check_table(&source, table_end, trailer, &entries)?;
    }
    parser.finish(&header, trailer.is_some(), source)
}

/// Collects the contents of sections.
#[derive(Default)]
struct Parser {
    device: Option<RecordedDevice>,
    notes: Vec<(String, String)>,
    objects: Vec<CapturedObject>,
    jobs: Vec<CapturedJob>,
    chunks: Vec<Chunk>,
    /// Index of the first chunk of the next job.
    first: usize,
}

impl Parser {
    /// Reads the section at `at`, which must end at `end` or before.
    fn section(&mut self, source: &File, at: u64, end: u64) -> Result<TableEntry, CaptureError> {
        let section = TableEntry::read(source, at, end)?;
        if !section.is_known() {
            section.skip(source)?;
            return Ok(section);
        }
        let payload = section.payload(source)?;
        let fields = Fields::new(&payload, section.kind(), at);
        match section.kind() {
            SectionKind::DEVICE if self.device.is_some() => {
                return Err(fields.malformed("it is a second device section"));
            }
            SectionKind::DEVICE => self.device = Some(sections::device::decode(fields)?),
            SectionKind::NOTES => self.notes.extend(sections::notes::decode(fields)?),
            SectionKind::OBJECT => {
                let object = sections::object::decode(fields, self.objects.len())?;
                self.objects.push(object);
            }
            SectionKind::PAGES => {
                let chunk = sections::pages::decode(fields, &self.objects, section.end())?;
                self.chunks.push(chunk);
            }
            SectionKind::JOB => self.job(fields)?,
            SectionKind::DONE => self.done(fields)?,
            _ => {}
        }
        Ok(section)
    }

    fn job(&mut self, fields: Fields<'_>) -> Result<(), CaptureError> {
        if self.running().is_some() {
            return Err(fields.malformed("the previous job has not ended"));
        }
        let mut job = sections::job::decode(fields, self.jobs.len(), &self.objects)?;
        job.before = self.new_chunks();
        self.jobs.push(job);
        Ok(())
    }

    fn done(&mut self, fields: Fields<'_>) -> Result<(), CaptureError> {
        let number = self.jobs.len().saturating_sub(1);
        let after = self.new_chunks();
        let Some(job) = self.running() else {
            return Err(fields.malformed("no job is running"));
        };
        job.after = after;
        sections::done::decode(fields, number, job)
    }

    /// The last job, if it has not ended.
    fn running(&mut self) -> Option<&mut CapturedJob> {
        self.jobs.last_mut().filter(|job| job.ended_ns.is_none())
    }

    /// The chunks since the last call.
    fn new_chunks(&mut self) -> Range<usize> {
        let first = std::mem::replace(&mut self.first, self.chunks.len());
        first..self.first
    }

    fn finish(
        mut self,
        header: &FileHeader,
        finished: bool,
        source: File,
    ) -> Result<Capture, CaptureError> {
        let after = self.new_chunks();
        if let Some(job) = self.running() {
            // The job never ended. Its changes so far still count.
            job.after = after;
        }
        Ok(Capture {
            device: self.device.ok_or(CaptureError::NoDevice)?,
            notes: self.notes,
            objects: self.objects,
            jobs: self.jobs,
            chunks: self.chunks,
            zero_data: header.flags.get() & FLAG_ZERO_DATA != 0,
            finished,
            source,
            unpacked: Mutex::default(),
        })
    }
}
