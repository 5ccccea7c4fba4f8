// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs the jobs of a capture one after another, and compares each.

use std::collections::BTreeMap;

use rocket_uapi::{Bo, BufferAccess, Deadline, Device, Error, FenceStatus, Handle, RawJob};

use super::compare::{self, PIECE};
use super::error::ReplayError;
use super::options::ReplayOptions;
use super::place::{PlacedFile, bytes_needed};
use super::report::{ContentsComparison, ReplayReport, ReplayedJob};
use crate::capture::{Capture, CapturedJob, JobOutcome, Role};
use crate::contents::{Contents, Moment};
use crate::drops::why_dropped;

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
        let job = &self.capture.jobs()[index];
        // Close the older file of the same recorded file first, to free its
        // memory.
        self.files.remove(&job.file);
        let needed = bytes_needed(self.capture, job);
        let mut left = self.options.bytes_max;
        for placed in self.files.values() {
            left = left.saturating_sub(placed.bytes());
        }
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
        let ready = self.files.get(&job.file);
        let ready = ready.is_some_and(|placed| objects.iter().all(|&object| placed.has(object)));
        if !ready {
            let placed = self.place(index)?;
            self.files.insert(job.file, placed);
        }
        let Some(placed) = self.files.get_mut(&job.file) else {
            return Ok(ReplayedJob {
                recorded: job.outcome,
                replayed: JobOutcome::Unknown,
                comparison: None,
            });
        };
        self.before.go(Moment::Before(index));
        self.after.go(Moment::After(index));
        for &object in &objects {
            if let Some(bo) = placed.bo_mut(object) {
                load(&self.before, object, bo, &self.options)?;
            }
        }
        let replayed = run(job, placed, &objects, &self.options)?;
        // If the recorded end is unknown, there is nothing to compare with.
        // Objects of a job that may still run must not be read.
        let known = job.outcome != JobOutcome::Unknown && replayed != JobOutcome::Unknown;
        let comparison = if known && !self.capture.zero_data() {
            Some(self.compare(index, &objects)?)
        } else {
            None
        };
        if replayed == JobOutcome::Unknown {
            // The job may still change its objects.
            self.files.remove(&job.file);
        }
        Ok(ReplayedJob {
            recorded: job.outcome,
            replayed,
            comparison,
        })
    }

    fn compare(&self, index: usize, objects: &[usize]) -> Result<ContentsComparison, ReplayError> {
        let job = &self.capture.jobs()[index];
        let mut comparison = ContentsComparison::default();
        let Some(placed) = self.files.get(&job.file) else {
            return Ok(comparison);
        };
        for &object in objects {
            let Some(bo) = placed.bo(object) else {
                continue;
            };
            let now = bo.read(Deadline::after(self.options.wait))?;
            let start = bo.iova().0.into();
            let none_yet = comparison.first.is_none();
            compare::object(&mut comparison, &self.after, object, start, &now)?;
            if let Some(first) = comparison.first.as_mut().filter(|_| none_yet) {
                let place = compare::place(self.capture, job, &self.before, first);
                first.place =
                    place.and_then(|place| compare::valued(place, first, &self.after, &now));
            }
        }
        Ok(comparison)
    }
}

/// Fills `bo` with its bytes in `contents`.
fn load(
    contents: &Contents<'_>,
    object: usize,
    bo: &mut Bo,
    options: &ReplayOptions,
) -> Result<(), ReplayError> {
    let mut bytes = bo.write(Deadline::after(options.wait))?;
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
    options: &ReplayOptions,
) -> Result<JobOutcome, ReplayError> {
    let listed = |role| {
        let list = job.uses.iter().filter(move |used| used.role == role);
        list.map(|used| used.handle).collect::<Vec<u32>>()
    };
    let exists = |handle| {
        let mut list = job.uses.iter();
        list.any(|used| used.handle == handle && used.object.is_some())
    };
    if why_dropped(&job.tasks, &listed(Role::In), &listed(Role::Out), exists).is_some() {
        return Ok(JobOutcome::Dropped);
    }
    let handle = |object| placed.bo(object).map(Bo::handle);
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
        .filter_map(|&object| placed.bo(object))
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
    if let Err(error) = unsafe { placed.device().submit_raw(&[raw]) } {
        return match error {
            Error::Refused { errno, .. } => Ok(JobOutcome::Refused(errno)),
            error => Err(error.into()),
        };
    }
    match last.read(Deadline::after(options.wait)) {
        Ok(_) => {}
        Err(Error::TimedOut { .. }) => return Ok(JobOutcome::Unknown),
        Err(error) => return Err(error.into()),
    }
    Ok(match last.fence(BufferAccess::Read)?.status()? {
        FenceStatus::Signaled => JobOutcome::Completed,
        FenceStatus::Failed(errno) => JobOutcome::Killed(errno),
        FenceStatus::Active => JobOutcome::Unknown,
    })
}
