// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs the jobs of a capture one after another, and compares each.

use std::collections::BTreeMap;
use std::time::Duration;

use rocket_uapi::{Bo, BufferAccess, Deadline, Device, Error, Handle, RawJob};

use super::compare::{self, PIECE};
use super::error::ReplayError;
use super::place::{PlacedFile, bytes_needed};
use super::report::{ContentsComparison, ReplayReport, ReplayedJob};
use crate::capture::{Capture, CapturedJob, JobOutcome, Role, is_dropped};
use crate::contents::{Contents, Moment};

/// Options of a replay.
#[derive(Clone, Copy, Debug)]
pub struct ReplayOptions {
    /// Maximum bytes of buffer objects at a time. The gaps between the addresses of
    /// a job's objects count too, since they are allocated for a moment.
    pub bytes_max: u64,
    /// Maximum bytes that all jobs together load and compare.
    pub work_max: u64,
}

/// Enough for all but large language models. A board has 4 GiB and more.
const BYTES_MAX: u64 = 1 << 30;
/// About ten seconds of a fast CPU.
const WORK_MAX: u64 = 64 << 30;

/// How long to wait for a job. The driver kills it after half a second; this leaves room
/// for a slow host that computes it in software.
const WAIT: Duration = Duration::from_secs(60);

impl Default for ReplayOptions {
    fn default() -> Self {
        Self {
            bytes_max: BYTES_MAX,
            work_max: WORK_MAX,
        }
    }
}

pub(super) struct Replay<'a> {
    capture: &'a Capture,
    device: &'a Device,
    options: ReplayOptions,
    /// Open files, by the number of the recorded file.
    files: BTreeMap<u32, PlacedFile>,
    /// Contents before the job that runs, and after it.
    before: Contents<'a>,
    after: Contents<'a>,
}

impl<'a> Replay<'a> {
    pub(super) fn new(capture: &'a Capture, device: &'a Device, options: ReplayOptions) -> Self {
        Self {
            capture,
            device,
            options,
            files: BTreeMap::new(),
            before: Contents::new(capture),
            after: Contents::new(capture),
        }
    }

    pub(super) fn all(mut self) -> Result<ReplayReport, ReplayError> {
        self.check_limits()?;
        let jobs = (0..self.capture.jobs().len()).map(|index| self.job(index));
        Ok(ReplayReport {
            jobs: jobs.collect::<Result<_, _>>()?,
        })
    }

    /// Checks the claims of the file first: all that follows takes memory and
    /// time by the lengths of objects, and a small file may claim much.
    fn check_limits(&self) -> Result<(), ReplayError> {
        let ReplayOptions {
            bytes_max,
            work_max,
            ..
        } = self.options;
        let mut work = 0_u64;
        for (index, job) in self.capture.jobs().iter().enumerate() {
            let bytes = bytes_needed(self.capture, job);
            if bytes > bytes_max {
                return Err(ReplayError::TooLarge {
                    job: index,
                    bytes,
                    max: bytes_max,
                });
            }
            let objects = job.objects().into_iter();
            let lengths = objects.filter_map(|object| {
                let object = &self.capture.objects()[object];
                object.iova.map(|_| object.bytes)
            });
            work = lengths.fold(work, u64::saturating_add);
        }
        if work > work_max {
            return Err(ReplayError::TooMuchWork {
                bytes: work,
                max: work_max,
            });
        }
        Ok(())
    }

    /// Opens a file with the objects of job `index`. The limit is for all files
    /// together, so the others are closed if necessary.
    fn place(&mut self, index: usize) -> Result<PlacedFile, ReplayError> {
        let needed = bytes_needed(self.capture, &self.capture.jobs()[index]);
        let taken: u64 = self.files.values().map(|placed| placed.bytes).sum();
        let mut left = self.options.bytes_max.saturating_sub(taken);
        if needed > left {
            self.files.clear();
            left = self.options.bytes_max;
        }
        PlacedFile::new(self.capture, self.device, index, left)
    }

    fn job(&mut self, index: usize) -> Result<ReplayedJob, ReplayError> {
        let job = &self.capture.jobs()[index];
        let addressed = |&object: &usize| self.capture.objects()[object].iova.is_some();
        let objects: Vec<usize> = job.objects().into_iter().filter(addressed).collect();
        // An older file without these objects is closed first, to free its memory.
        let has =
            |placed: &PlacedFile| objects.iter().all(|object| placed.bos.contains_key(object));
        let ready = self.files.remove(&job.file).filter(has);
        let mut placed = ready.map_or_else(|| self.place(index), Ok)?;
        self.before.go(Moment::Before(index));
        self.after.go(Moment::After(index));
        for &object in &objects {
            if let Some(bo) = placed.bos.get_mut(&object) {
                load(&self.before, object, bo)?;
            }
        }
        let replayed = run(job, &placed, &objects)?;
        // If the recorded end is unknown, there is nothing to compare with.
        // Objects of a job that may still run must not be read.
        let known = job.outcome != JobOutcome::Unknown && replayed != JobOutcome::Unknown;
        let comparison = if known && !self.capture.zero_data() {
            Some(self.compare(job, &placed, &objects)?)
        } else {
            None
        };
        // A job whose end was not seen may still change its objects.
        if replayed != JobOutcome::Unknown {
            self.files.insert(job.file, placed);
        }
        Ok(ReplayedJob {
            recorded: job.outcome,
            replayed,
            comparison,
        })
    }

    fn compare(
        &self,
        job: &CapturedJob,
        placed: &PlacedFile,
        objects: &[usize],
    ) -> Result<ContentsComparison, ReplayError> {
        let mut comparison = ContentsComparison::default();
        for &object in objects {
            let Some(bo) = placed.bos.get(&object) else {
                continue;
            };
            let now = bo.read(Deadline::after(WAIT))?;
            let start = bo.iova().0.into();
            let none_yet = comparison.first.is_none();
            compare::object(&mut comparison, &self.after, object, start, &now)?;
            if let Some(first) = comparison.first.as_mut().filter(|_| none_yet) {
                let moments = [&self.before, &self.after];
                first.place = compare::element(self.capture, job, moments, first, &now);
            }
        }
        Ok(comparison)
    }
}

/// Fills `bo` with its bytes in `contents`.
fn load(contents: &Contents<'_>, object: usize, bo: &mut Bo) -> Result<(), ReplayError> {
    let mut bytes = bo.write(Deadline::after(WAIT))?;
    let mut wanted = vec![0; PIECE.min(bytes.len())];
    for (index, piece) in bytes.chunks_mut(PIECE).enumerate() {
        let wanted = &mut wanted[..piece.len()];
        contents.read(object, index as u64 * PIECE as u64, wanted)?;
        if piece != wanted {
            piece.copy_from_slice(wanted);
        }
    }
    bytes.finish()?;
    Ok(())
}

fn run(
    job: &CapturedJob,
    placed: &PlacedFile,
    objects: &[usize],
) -> Result<JobOutcome, ReplayError> {
    let exists = |handle| {
        let mut list = job.uses.iter();
        list.any(|used| used.handle == handle && used.object.is_some())
    };
    let (reads, writes) = (job.handles(Role::In), job.handles(Role::Out));
    if is_dropped(&job.tasks, &reads, &writes, exists) {
        return Ok(JobOutcome::Dropped);
    }
    let handle = |object| placed.bos.get(&object).map(Bo::handle);
    let handles = |role| {
        let list = job.uses.iter().filter(move |used| used.role == role);
        // Imported objects only order jobs, so they are left out.
        list.filter_map(|used| handle(used.object?))
            .collect::<Vec<Handle>>()
    };
    let (mut reads, mut writes) = (handles(Role::In), handles(Role::Out));
    if writes.is_empty() {
        // Only objects that a job lists as written show its end.
        reads.clear();
        writes = objects
            .iter()
            .filter_map(|&object| handle(object))
            .collect();
    }
    let Some(last) = objects
        .iter()
        .filter_map(|object| placed.bos.get(object))
        .find(|bo| writes.first() == Some(&bo.handle()))
    else {
        return Ok(JobOutcome::Unknown);
    };
    let raw = RawJob {
        tasks: &job.tasks,
        reads: &reads,
        writes: &writes,
    };
    // SAFETY: the NPU reaches only objects of this file, which all belong to
    // it. The file lives past the wait below, and no guard of any of them
    // exists here. If the end of the job is not seen, the whole file is
    // dropped, and the driver keeps the objects of a job until it has ended.
    if let Err(error) = unsafe { placed.device.submit_raw(&[raw]) } {
        return match error {
            Error::Refused { errno, .. } => Ok(JobOutcome::Refused(errno)),
            error => Err(error.into()),
        };
    }
    match last.read(Deadline::after(WAIT)) {
        Ok(_) => {}
        Err(Error::TimedOut { .. }) => return Ok(JobOutcome::Unknown),
        Err(error) => return Err(error.into()),
    }
    Ok(last.fence(BufferAccess::Read)?.status()?.into())
}
