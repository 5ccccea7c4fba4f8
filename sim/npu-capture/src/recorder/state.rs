// SPDX-License-Identifier: MIT OR Apache-2.0
//! The state of a recording, and the sections that it writes for a job.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::BufWriter;
use std::ops::Range;

use rknpu_regcmd::Iova;
use rocket_uapi::RawTask;

use super::input::{BoView, JobView, RecorderOptions};
use crate::capture::{CapturedJob, CapturedObject, JobOutcome, ObjectUse, Role};
use crate::delta::{BoBytes, Keep, ZERO_PAGE, changes};
use crate::error::RecordError;
use crate::format::{PAGE, SectionKind};
use crate::programs::{programs, words_range};
use crate::sections;
use crate::writer::CaptureWriter;

/// Numbers of recorded jobs by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcomes {
    /// Jobs that completed.
    pub completed: u64,
    /// Jobs that the driver killed: it reset their core.
    pub killed: u64,
    /// Jobs that the driver dropped, although SUBMIT returned 0.
    pub dropped: u64,
    /// Jobs whose SUBMIT failed, or whose outcome is unknown.
    pub others: u64,
}

impl Outcomes {
    pub(super) fn note(&mut self, outcome: JobOutcome) {
        let counter = match outcome {
            JobOutcome::Completed => &mut self.completed,
            JobOutcome::Killed(_) => &mut self.killed,
            JobOutcome::Dropped => &mut self.dropped,
            JobOutcome::Refused(_) | JobOutcome::Unknown => &mut self.others,
        };
        *counter += 1;
    }
}

/// State of a recording: what is in the file so far, and its writer.
#[derive(Debug, Default)]
pub(super) struct State {
    /// `None` after the end or an error.
    pub(super) writer: Option<CaptureWriter<BufWriter<File>>>,
    pub(super) error: Option<RecordError>,
    pub(super) has_device: bool,
    pub(super) running: bool,
    pub(super) jobs: u32,
    /// The object of each handle of each file.
    pub(super) current: BTreeMap<(u32, u32), u32>,
    pub(super) objects: Vec<WrittenObject>,
    pub(super) outcomes: Outcomes,
}

/// A job whose end is not in the file yet.
#[derive(Debug)]
pub(super) struct BegunJob {
    pub(super) job: u32,
    pub(super) file: u32,
    /// The objects whose contents are recorded.
    pub(super) objects: Vec<u32>,
}

/// An object that is in the file.
#[derive(Debug)]
pub(super) struct WrittenObject {
    captured: CapturedObject,
    keep: Keep,
    /// Hashes of its pages as they are in the file.
    stored: Vec<u128>,
}

/// The object behind `bo`. One without an address has no contents in the file.
fn captured(file: u32, bo: &BoView<'_>) -> CapturedObject {
    CapturedObject {
        file,
        handle: bo.handle,
        iova: bo.iova,
        bytes: bo.iova.map_or(0, |_| bo.len),
    }
}

impl State {
    /// Returns the value of `result`. An error ends the recording; this then returns a
    /// default.
    pub(super) fn keep_going<T: Default>(&mut self, result: Result<T, RecordError>) -> T {
        result.unwrap_or_else(|error| {
            tracing::error!(%error, "recording has ended");
            self.writer = None;
            self.error.get_or_insert(error);
            T::default()
        })
    }

    pub(super) fn write(&mut self, kind: SectionKind, payload: &[u8]) {
        let written = self.section(kind, payload);
        self.keep_going(written);
    }

    /// Writes the memory before the job, and the job. Returns the objects whose contents are
    /// recorded.
    pub(super) fn begin(
        &mut self,
        file: u32,
        job: &JobView<'_>,
        started_ns: u64,
        options: &RecorderOptions,
    ) -> Result<Vec<u32>, RecordError> {
        if self.writer.is_none() {
            return Ok(Vec::new());
        }
        let reached = reached(job);
        let mut objects = Vec::new();
        for bo in job.bos {
            let named = job.reads.contains(&bo.handle) || job.writes.contains(&bo.handle);
            if named || reached.contains(&bo.handle) {
                let object = self.object(file, bo, options.zero_data)?;
                self.keep_words(object, job.tasks);
                self.contents(object, bo.bytes)?;
                objects.push(object);
            }
        }
        self.job(file, job, &reached, started_ns)?;
        if let Some(writer) = &mut self.writer {
            let out = writer.flush()?;
            if options.durable {
                out.get_ref().sync_data()?;
            }
        }
        Ok(objects)
    }

    /// The number of the object behind `bo`. Writes a section for a new object.
    fn object(&mut self, file: u32, bo: &BoView<'_>, zero: bool) -> Result<u32, RecordError> {
        let captured = captured(file, bo);
        if let Some(&object) = self.current.get(&(file, bo.handle))
            && self.objects[object as usize].captured == captured
        {
            return Ok(object);
        }
        if captured.wrong().is_some() {
            let handle = bo.handle;
            return Err(RecordError::Object { handle });
        }
        let object = self.objects.len() as u32;
        let payload = sections::object::encode(object, &captured);
        self.section(SectionKind::OBJECT, &payload)?;
        self.objects.push(WrittenObject {
            captured,
            keep: if zero {
                Keep::Only(BTreeMap::new())
            } else {
                Keep::All
            },
            stored: vec![ZERO_PAGE; (captured.bytes / PAGE) as usize],
        });
        self.current.insert((file, bo.handle), object);
        Ok(object)
    }

    fn section(&mut self, kind: SectionKind, payload: &[u8]) -> Result<(), RecordError> {
        match &mut self.writer {
            Some(writer) => writer.section(kind, payload),
            None => Ok(()),
        }
    }

    /// Marks the words of `tasks` that are in an object to be stored, even if other data is
    /// left out.
    fn keep_words(&mut self, object: u32, tasks: &[RawTask]) {
        let known = &mut self.objects[object as usize];
        let Some(range) = known.captured.range() else {
            return;
        };
        for task in tasks {
            let words = words_range(task);
            if range.start <= words.start && words.end <= range.end && !words.is_empty() {
                let keep = words.start - range.start..words.end - range.start;
                known.keep.add(keep);
            }
        }
    }

    /// Writes the pages of an object that changed.
    fn contents(&mut self, object: u32, bytes: &dyn BoBytes) -> Result<(), RecordError> {
        let Some(writer) = &mut self.writer else {
            return Ok(());
        };
        let known = &mut self.objects[object as usize];
        let mut emit = |payload: &[u8]| writer.section(SectionKind::PAGES, payload);
        changes(object, bytes, &known.keep, &mut known.stored, &mut emit)
    }

    fn job(
        &mut self,
        file: u32,
        job: &JobView<'_>,
        reached: &BTreeSet<u32>,
        started_ns: u64,
    ) -> Result<(), RecordError> {
        let mut uses = Vec::new();
        let mut push = |handle: u32, role: Role| {
            let there = job.bos.iter().any(|bo| bo.handle == handle);
            let object = self.current.get(&(file, handle)).filter(|_| there);
            uses.push(ObjectUse {
                handle,
                object: object.map(|&object| object as usize),
                role,
            });
        };
        job.reads.iter().for_each(|&handle| push(handle, Role::In));
        job.writes
            .iter()
            .for_each(|&handle| push(handle, Role::Out));
        for &handle in reached {
            if !job.reads.contains(&handle) && !job.writes.contains(&handle) {
                push(handle, Role::Reached);
            }
        }
        let submitted = CapturedJob::new(file, started_ns, job.tasks.to_vec(), uses);
        let payload = sections::job::encode(self.jobs, &submitted)?;
        self.section(SectionKind::JOB, &payload)
    }

    pub(super) fn end(
        &mut self,
        begun: &BegunJob,
        outcome: JobOutcome,
        ended_ns: u64,
        bos: &[BoView<'_>],
    ) -> Result<(), RecordError> {
        if self.writer.is_none() {
            return Ok(());
        }
        for bo in bos {
            let Some(&object) = self.current.get(&(begun.file, bo.handle)) else {
                continue;
            };
            let known = &self.objects[object as usize].captured;
            // The handle may have been closed and reused meanwhile.
            if begun.objects.contains(&object) && *known == captured(begun.file, bo) {
                self.contents(object, bo.bytes)?;
            }
        }
        let payload = sections::done::encode(begun.job, outcome, ended_ns);
        self.section(SectionKind::DONE, &payload)?;
        self.jobs += 1;
        Ok(())
    }
}

/// Handles of the objects that contain the programs or that these can touch; all
/// handles if that is not known.
fn reached(job: &JobView<'_>) -> BTreeSet<u32> {
    let range = |bo: &BoView<'_>| captured(0, bo).range();
    let read = |iova: u64, into: &mut [u8]| {
        let end = iova + into.len() as u64;
        let holder = job.bos.iter().find_map(|bo| {
            let range = range(bo).filter(|range| range.start <= iova && end <= range.end)?;
            Some((bo, iova - range.start))
        });
        let Some((bo, offset)) = holder else {
            return false;
        };
        bo.bytes.read(offset, into);
        true
    };
    let mut reached = BTreeSet::new();
    let mut add = |start: u64, end: u64| {
        let is_touched = |range: Range<u64>| start < range.end && range.start < end;
        let touched = job
            .bos
            .iter()
            .filter(|bo| range(bo).is_some_and(is_touched));
        reached.extend(touched.map(|bo| bo.handle));
    };
    for program in programs(job.tasks, read) {
        let words = words_range(&program.task);
        add(words.start, words.end);
        for (_, touched) in program.extents() {
            match touched {
                Ok(extents) => extents
                    .iter()
                    .for_each(|extent| add(extent.start, extent.end)),
                Err(_) => add(0, Iova::END),
            }
        }
    }
    reached
}
