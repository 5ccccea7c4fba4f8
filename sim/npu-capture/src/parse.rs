// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parses a [`Capture`]. Every number is checked before it is used, and no allocation
//! is larger than the bytes that the file has for it.

mod section;

use std::fs::File;
use std::ops::Range;
use std::path::Path;
use std::sync::Mutex;

use self::section::{FoundSection, check_table, file_header, trailer};
use crate::capture::{Capture, CapturedJob, CapturedObject, Chunk, RecordedDevice};
use crate::error::CaptureError;
use crate::fields::Fields;
use crate::format::{FLAG_ZERO_DATA, FileHeader, SECTIONS_MAX, SectionKind, Trailer};
use crate::sections;
use crate::source::CaptureBytes;

impl Capture {
    /// Reads a capture and checks all of it.
    ///
    /// # Errors
    /// [`CaptureError`] says what is wrong with the file.
    pub fn open(path: &Path) -> Result<Self, CaptureError> {
        finished(CaptureBytes::file(File::open(path)?)?)
    }

    /// Reads the whole sections of a capture without an end, because its recorder died or
    /// the file was cut off. Reads a finished capture like [`Capture::open`].
    ///
    /// # Errors
    /// The device is missing, or a section is malformed.
    pub fn open_unfinished(path: &Path) -> Result<Self, CaptureError> {
        unfinished(CaptureBytes::file(File::open(path)?)?)
    }

    /// Like [`Capture::open`], from bytes in memory.
    ///
    /// # Errors
    /// As [`Capture::open`].
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Self, CaptureError> {
        finished(CaptureBytes::Bytes(bytes))
    }

    /// Like [`Capture::open_unfinished`], from bytes in memory.
    ///
    /// # Errors
    /// As [`Capture::open_unfinished`].
    pub fn from_unfinished_bytes(bytes: Vec<u8>) -> Result<Self, CaptureError> {
        unfinished(CaptureBytes::Bytes(bytes))
    }
}

/// Reads a capture that has an end.
fn finished(source: CaptureBytes) -> Result<Capture, CaptureError> {
    let header = file_header(&source)?;
    let trailer = trailer(&source)?;
    let end = source.len() - size_of::<Trailer>() as u64;
    let table = trailer.table.get();
    let mut parser = Parser::default();
    let mut entries = Vec::new();
    let mut at = size_of::<FileHeader>() as u64;
    while at < table {
        let section = FoundSection::read(&source, at, table)?;
        if entries.len() as u32 >= SECTIONS_MAX {
            let what = "there are too many sections";
            return Err(CaptureError::Table { what });
        }
        entries.push(section.entry());
        parser.section(&source, &section)?;
        at = section.end();
    }
    check_table(&source, table, end, &trailer, &entries)?;
    parser.finish(&header, true, source)
}

/// Reads the whole sections of a capture, whether it has an end or not.
fn unfinished(source: CaptureBytes) -> Result<Capture, CaptureError> {
    // A file with an end must be whole.
    if trailer(&source).is_ok() {
        return finished(source);
    }
    let header = file_header(&source)?;
    let mut parser = Parser::default();
    let mut at = size_of::<FileHeader>() as u64;
    while at < source.len() {
        // The recorder stopped at the first section that is not whole.
        match FoundSection::read(&source, at, source.len()) {
            Ok(section) if section.kind == SectionKind::TABLE => break,
            Ok(section) => match parser.section(&source, &section) {
                Ok(()) => at = section.end(),
                Err(CaptureError::Checksum { .. }) => break,
                Err(error) => return Err(error),
            },
            Err(CaptureError::Io(error)) => return Err(error.into()),
            Err(_) => break,
        }
    }
    parser.finish(&header, false, source)
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
    /// Whether the last job has not ended.
    running: bool,
}

impl Parser {
    fn section(
        &mut self,
        source: &CaptureBytes,
        section: &FoundSection,
    ) -> Result<(), CaptureError> {
        if !section.is_known() {
            return section.skip(source);
        }
        let payload = section.payload(source)?;
        let fields = Fields::new(&payload, section.kind, section.offset);
        match section.kind {
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
            _ => return section.skip(source),
        }
        Ok(())
    }

    fn job(&mut self, fields: Fields<'_>) -> Result<(), CaptureError> {
        if self.running {
            return Err(fields.malformed("the previous job has not ended"));
        }
        let mut job = sections::job::decode(fields, self.jobs.len(), &self.objects)?;
        job.before = self.new_chunks();
        self.running = true;
        self.jobs.push(job);
        Ok(())
    }

    fn done(&mut self, fields: Fields<'_>) -> Result<(), CaptureError> {
        if !self.running {
            return Err(fields.malformed("no job is running"));
        }
        sections::done::decode(fields, &mut self.jobs)?;
        self.end_job();
        Ok(())
    }

    /// Assigns the chunks since the start of the running job to its end.
    fn end_job(&mut self) {
        let after = self.new_chunks();
        if let Some(job) = self.jobs.last_mut() {
            job.after = after;
        }
        self.running = false;
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
        source: CaptureBytes,
    ) -> Result<Capture, CaptureError> {
        if self.running {
            // The job never ended. Its changes so far still count.
            self.end_job();
        }
        Ok(Capture {
            device: self.device.ok_or(CaptureError::NoDevice)?,
            notes: self.notes,
            objects: self.objects,
            jobs: self.jobs,
            chunks: self.chunks,
            zero_data: header.flags.get() & FLAG_ZERO_DATA != 0,
            finished,
            unix_ns: header.unix_ns.get(),
            source,
            unpacked: Mutex::default(),
        })
    }
}
