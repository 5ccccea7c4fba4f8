// SPDX-License-Identifier: MIT OR Apache-2.0
//! From bytes to a [`Capture`]. Every number is checked before it is used,
//! and nothing is allocated that the file has no bytes for.

mod section;

use std::fs::File;
use std::path::Path;
use std::sync::Mutex;

use rknpu_regcmd::Iova;
use rocket_uapi::RawTask;

use self::section::{FoundSection, check_table, file_header, trailer};
use crate::capture::{
    CHUNK_BYTES, Capture, CapturedJob, CapturedObject, Chunk, JobOutcome, ObjectUse, PageRun,
    RecordedDevice,
};
use crate::codes;
use crate::device;
use crate::error::CaptureError;
use crate::fields::Fields;
use crate::format::{
    DoneRecord, FLAG_ZERO_DATA, FileHeader, JobRecord, NO_OBJECT, OBJECT_HAS_ADDRESS, ObjectRecord,
    PAGE, PagesRecord, RUN_DATA, RUN_ZERO, RunRecord, SECTIONS_MAX, SectionKind, TASKS_MAX,
    TaskRecord, Trailer, USES_MAX, UseRecord,
};
use crate::source::CaptureBytes;

impl Capture {
    /// Reads a capture and checks all of it.
    ///
    /// # Errors
    /// What is wrong with the file, see [`CaptureError`].
    pub fn open(path: &Path) -> Result<Self, CaptureError> {
        finished(CaptureBytes::file(File::open(path)?)?)
    }

    /// Reads what is whole of a capture without an end, because its recorder
    /// died or the file was cut off. A finished one is read as by
    /// [`Capture::open`].
    ///
    /// # Errors
    /// When not even the device is in it, or what is there makes no sense.
    pub fn open_unfinished(path: &Path) -> Result<Self, CaptureError> {
        unfinished(CaptureBytes::file(File::open(path)?)?)
    }

    /// As [`Capture::open`], of bytes in memory.
    ///
    /// # Errors
    /// As [`Capture::open`].
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Self, CaptureError> {
        finished(CaptureBytes::Bytes(bytes))
    }

    /// As [`Capture::open_unfinished`], of bytes in memory.
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
    // A file with an end is not excused from being whole.
    if trailer(&source).is_ok() {
        return finished(source);
    }
    let header = file_header(&source)?;
    let mut parser = Parser::default();
    let mut at = size_of::<FileHeader>() as u64;
    while at < source.len() {
        // The first that is not whole is where the recorder stopped.
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

/// Collects what sections say.
#[derive(Default)]
struct Parser {
    device: Option<RecordedDevice>,
    notes: Vec<(String, String)>,
    objects: Vec<CapturedObject>,
    jobs: Vec<CapturedJob>,
    chunks: Vec<Chunk>,
    /// The first chunk of the next job.
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
        let parse = match section.kind {
            SectionKind::DEVICE => Self::device,
            SectionKind::NOTES => Self::notes,
            SectionKind::OBJECT => Self::object,
            SectionKind::PAGES => Self::pages,
            SectionKind::JOB => Self::job,
            SectionKind::DONE => Self::done,
            _ => return section.skip(source),
        };
        let payload = section.payload(source)?;
        let fields = Fields::new(&payload, section.kind, section.offset);
        parse(self, fields, section)
    }

    fn device(&mut self, fields: Fields<'_>, _: &FoundSection) -> Result<(), CaptureError> {
        if self.device.is_some() {
            return Err(fields.malformed("there is a second device"));
        }
        self.device = Some(device::decode(fields)?);
        Ok(())
    }

    fn notes(&mut self, mut fields: Fields<'_>, _: &FoundSection) -> Result<(), CaptureError> {
        for _ in 0..fields.number()? {
            self.notes.push((fields.text()?, fields.text()?));
        }
        fields.finish()
    }

    fn object(&mut self, mut fields: Fields<'_>, _: &FoundSection) -> Result<(), CaptureError> {
        let record: ObjectRecord = fields.record()?;
        let addressed = record.flags.get() & OBJECT_HAS_ADDRESS != 0;
        let iova = addressed.then(|| Iova(record.iova.get()));
        let bytes = record.bytes.get();
        if record.object.get() as usize != self.objects.len() {
            return Err(fields.malformed("objects are not counted one by one"));
        }
        if let Some(why) = CapturedObject::wrong(iova, bytes) {
            return Err(fields.malformed(why));
        }
        self.objects.push(CapturedObject {
            file: record.file.get(),
            handle: record.handle.get(),
            iova,
            bytes,
        });
        fields.finish()
    }

    fn pages(
        &mut self,
        mut fields: Fields<'_>,
        section: &FoundSection,
    ) -> Result<(), CaptureError> {
        let record: PagesRecord = fields.record()?;
        let object = record.object.get() as usize;
        let pages = match self.objects.get(object) {
            Some(object) => object.bytes / PAGE,
            None => return Err(fields.malformed("the pages belong to no object")),
        };
        let mut runs = Vec::new();
        let (mut end, mut data_pages) = (0, 0_u64);
        for run in fields.records::<RunRecord>(record.runs.get())? {
            let (first, count) = (u64::from(run.first.get()), u64::from(run.count.get()));
            if count == 0 || first < end || first + count > pages {
                return Err(fields.malformed("runs of pages overlap or leave the object"));
            }
            end = first + count;
            let data = match run.kind.get() {
                RUN_ZERO => None,
                RUN_DATA => {
                    // Below 2^32: a chunk that exceeds its limit is refused.
                    let place = data_pages as u32;
                    data_pages += count;
                    Some(place)
                }
                _ => return Err(fields.malformed("a run of pages is of no known kind")),
            };
            if data_pages * PAGE > CHUNK_BYTES {
                return Err(fields.malformed("it holds more pages than a section can"));
            }
            runs.push(PageRun {
                first: run.first.get(),
                count: run.count.get(),
                data,
            });
        }
        let raw_bytes = data_pages * PAGE;
        let packed = fields.rest();
        if u64::from(record.raw_bytes.get()) != raw_bytes || (raw_bytes == 0) != packed.is_empty() {
            return Err(fields.malformed("its data are not those of its pages"));
        }
        self.chunks.push(Chunk {
            object,
            runs,
            offset: section.end() - packed.len() as u64,
            packed_bytes: packed.len(),
            raw_bytes: raw_bytes as usize,
        });
        Ok(())
    }

    fn job(&mut self, mut fields: Fields<'_>, _: &FoundSection) -> Result<(), CaptureError> {
        let record: JobRecord = fields.record()?;
        if self.running || record.job.get() as usize != self.jobs.len() {
            return Err(fields.malformed("jobs do not come one by one"));
        }
        if record.tasks.get() > TASKS_MAX || record.bos.get() > USES_MAX {
            return Err(fields.malformed("the job has more programs or objects than any can"));
        }
        let tasks = fields.records::<TaskRecord>(record.tasks.get())?;
        let tasks = tasks.iter().map(|task| RawTask {
            regcmd: Iova(task.regcmd.get()),
            words: task.words.get(),
        });
        let tasks = tasks.collect();
        let file = record.file.get();
        let mut uses = Vec::new();
        for used in fields.records::<UseRecord>(record.bos.get())? {
            let object = match used.object.get() {
                NO_OBJECT => None,
                index => match self.objects.get(index as usize) {
                    Some(object) if object.file == file => Some(index as usize),
                    _ => return Err(fields.malformed("a list names an unknown object")),
                },
            };
            let role = codes::decode_role(used.role.get())
                .ok_or_else(|| fields.malformed("a list is of no known kind"))?;
            uses.push(ObjectUse {
                handle: used.handle.get(),
                object,
                role,
            });
        }
        let before = self.first..self.chunks.len();
        self.first = self.chunks.len();
        self.running = true;
        self.jobs.push(CapturedJob {
            file,
            tasks,
            uses,
            started_ns: record.started_ns.get(),
            ended_ns: None,
            outcome: JobOutcome::Unknown,
            before,
            after: self.first..self.first,
        });
        fields.finish()
    }

    fn done(&mut self, mut fields: Fields<'_>, _: &FoundSection) -> Result<(), CaptureError> {
        let record: DoneRecord = fields.record()?;
        let at = self.jobs.len();
        let Some(job) = self.jobs.last_mut().filter(|_| self.running) else {
            return Err(fields.malformed("no job runs that could end"));
        };
        if record.job.get() as usize + 1 != at {
            return Err(fields.malformed("another job runs"));
        }
        job.outcome = codes::decode_outcome(record.outcome.get(), record.errno.get())
            .ok_or_else(|| fields.malformed("the outcome is not known"))?;
        job.ended_ns = Some(record.ended_ns.get());
        job.after = self.first..self.chunks.len();
        self.first = self.chunks.len();
        self.running = false;
        fields.finish()
    }

    fn finish(
        mut self,
        header: &FileHeader,
        finished: bool,
        source: CaptureBytes,
    ) -> Result<Capture, CaptureError> {
        if self.running {
            // It never ended: what was seen of it still counts.
            if let Some(job) = self.jobs.last_mut() {
                job.after = self.first..self.chunks.len();
            }
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
