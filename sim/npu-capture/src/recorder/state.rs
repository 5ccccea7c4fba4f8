// SPDX-License-Identifier: MIT OR Apache-2.0
//! The state of a recording, and the sections that it writes for a job.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::BufWriter;
use std::ops::Range;

use rknpu_regcmd::Iova;
use rocket_uapi::sys;

use super::input::{JobView, ReadObject, RecorderOptions};
use crate::capture::{CapturedJob, CapturedObject, JobOutcome, ObjectUse, Role};
use crate::delta::{KeptRanges, ZERO_PAGE, add_range, changes};
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
    pub(super) running: bool,
    pub(super) jobs: u32,
    /// The object of each handle of each file.
    pub(super) current: BTreeMap<(u32, u32), u32>,
    pub(super) objects: Vec<WrittenObject>,
    pub(super) outcomes: Outcomes,
}

/// An object that is in the file.
#[derive(Debug)]
pub(super) struct WrittenObject {
    pub(super) captured: CapturedObject,
    kept: KeptRanges,
    /// Hashes of its pages as they are in the file.
    stored: Vec<u128>,
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

    /// Writes the memory before the job, and the job. Returns the objects whose contents are
    /// recorded.
    pub(super) fn begin(
        &mut self,
        job: &JobView<'_>,
        started_ns: u64,
        options: &RecorderOptions,
    ) -> Result<Vec<u32>, RecordError> {
        if self.writer.is_none() {
            return Ok(Vec::new());
        }
        let reached = reached(job);
        let mut objects = Vec::new();
        for captured in job.objects {
            let handle = captured.handle;
            if job.lists(handle) || reached.contains(&handle) {
                let object = self.object(captured, options.zero_data)?;
                self.keep_words(object, job.tasks);
                self.contents(object, job.bytes)?;
                objects.push(object);
            }
        }
        self.job(job, &reached, started_ns)?;
        if let Some(writer) = &mut self.writer {
            let out = writer.flush()?;
            if options.durable {
                out.get_ref().sync_data()?;
            }
        }
        Ok(objects)
    }

    /// The number of an object. Writes a section for a new one.
    fn object(&mut self, captured: &CapturedObject, zero: bool) -> Result<u32, RecordError> {
        let CapturedObject { file, handle, .. } = *captured;
        if let Some(&object) = self.current.get(&(file, handle))
            && self.objects[object as usize].captured == *captured
        {
            return Ok(object);
        }
        if captured.wrong().is_some() {
            return Err(RecordError::Object { handle });
        }
        let object = self.objects.len() as u32;
        let payload = sections::object::encode(object, captured);
        self.section(SectionKind::OBJECT, &payload)?;
        self.objects.push(WrittenObject {
            captured: *captured,
            kept: zero.then(BTreeMap::new),
            stored: vec![ZERO_PAGE; (captured.bytes / PAGE) as usize],
        });
        self.current.insert((file, handle), object);
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
    fn keep_words(&mut self, object: u32, tasks: &[sys::Task]) {
        let known = &mut self.objects[object as usize];
        let (Some(kept), Some(range)) = (&mut known.kept, known.captured.range()) else {
            return;
        };
        let words = tasks.iter().map(words_range);
        let inside = words.filter(|words| range.start <= words.start && words.end <= range.end);
        for words in inside {
            add_range(kept, words.start - range.start..words.end - range.start);
        }
    }

    /// Writes the pages of an object that changed.
    fn contents(&mut self, object: u32, bytes: ReadObject<'_>) -> Result<(), RecordError> {
        let Some(writer) = &mut self.writer else {
            return Ok(());
        };
        let WrittenObject {
            captured,
            kept,
            stored,
        } = &mut self.objects[object as usize];
        let read = |offset, into: &mut [u8]| bytes(captured.handle, offset, into);
        let mut emit = |payload: &[u8]| writer.section(SectionKind::PAGES, payload);
        changes(object, &read, kept, stored, &mut emit)
    }

    fn job(
        &mut self,
        job: &JobView<'_>,
        reached: &BTreeSet<u32>,
        started_ns: u64,
    ) -> Result<(), RecordError> {
        let listed = [(job.reads, Role::In), (job.writes, Role::Out)].into_iter();
        let listed = listed.flat_map(|(list, role)| list.iter().map(move |&handle| (handle, role)));
        let others = reached.iter().filter(|handle| !job.lists(**handle));
        let uses = listed.chain(others.map(|&handle| (handle, Role::Reached)));
        let uses = uses.map(|(handle, role)| {
            let there = job.objects.iter().any(|object| object.handle == handle);
            let object = self.current.get(&(job.file, handle)).filter(|_| there);
            ObjectUse {
                handle,
                object: object.map(|&object| object as usize),
                role,
            }
        });
        let uses = uses.collect();
        let submitted = CapturedJob::new(job.file, started_ns, job.tasks.to_vec(), uses);
        let payload = sections::job::encode(self.jobs, &submitted)?;
        self.section(SectionKind::JOB, &payload)
    }

    /// Writes the changes of `objects`, if they can be read, and the end of the job.
    pub(super) fn end(
        &mut self,
        objects: &[u32],
        outcome: JobOutcome,
        ended_ns: u64,
        bytes: Option<ReadObject<'_>>,
    ) -> Result<(), RecordError> {
        if self.writer.is_none() {
            return Ok(());
        }
        if let Some(bytes) = bytes {
            for &object in objects {
                self.contents(object, bytes)?;
            }
        }
        let payload = sections::done::encode(self.jobs, outcome, ended_ns);
        self.section(SectionKind::DONE, &payload)?;
        self.jobs += 1;
        Ok(())
    }
}

/// Handles of the objects that contain the programs or that these can touch; all
/// handles if that is not known.
fn reached(job: &JobView<'_>) -> BTreeSet<u32> {
    let objects = job.objects.iter();
    let objects = objects.filter_map(|object| Some((object.handle, object.range()?)));
    let mut reached = BTreeSet::new();
    let mut add = |start: u64, end: u64| {
        let is_touched = |range: &Range<u64>| start < range.end && range.start < end;
        let touched = objects.clone().filter(|(_, range)| is_touched(range));
        reached.extend(touched.map(|(handle, _)| handle));
    };
    let read = |handle: &u32, offset, into: &mut [u8]| {
        (job.bytes)(*handle, offset, into);
        true
    };
    for program in programs(job.tasks, objects.clone(), read) {
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
