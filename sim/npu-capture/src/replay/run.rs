// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs the jobs of a capture one after another, and compares each.

use std::mem;
use std::ops::Range;

use rocket_uapi::{Bo, BufferAccess, Deadline, Device, Error, Handle, RawJob};

use super::change::{ChangedJob, ProgramChange};
use super::compare;
use super::error::ReplayError;
use super::place::{ObjectRanges, OpenFiles, PlacedFile, WAIT, bytes_kept, bytes_placed};
use super::report::{ReplayReport, ReplayedJob};
use crate::capture::{Capture, CapturedJob, JobOutcome, Role, is_dropped};
use crate::contents::{Contents, Moment};

/// Options of a replay.
#[derive(Clone, Copy, Debug)]
pub struct ReplayOptions {
    /// Maximum bytes of buffer objects at a time. The gaps between the addresses of
    /// a job's objects count too, since they are allocated for a moment.
    pub bytes_max: u64,
    /// Maximum bytes that all jobs together load and compare. For a job that needs a new
    /// file, the gaps before and between its objects count too.
    pub work_max: u64,
}

/// Enough for all but large language models. A board has 4 GiB and more.
const BYTES_MAX: u64 = 1 << 30;
/// About ten seconds of a fast CPU.
const WORK_MAX: u64 = 64 << 30;

impl Default for ReplayOptions {
    fn default() -> Self {
        Self {
            bytes_max: BYTES_MAX,
            work_max: WORK_MAX,
        }
    }
}

/// Checks the claims of the file: a replay takes memory and time by the lengths of
/// objects and the gaps between them, and a small file may claim much.
fn check_limits(
    capture: &Capture,
    jobs: Range<usize>,
    device: &Device,
    options: &ReplayOptions,
) -> Result<(), ReplayError> {
    let mut work = 0_u64;
    let mut files = OpenFiles::new(device, options.bytes_max);
    for (index, job) in jobs.clone().zip(&capture.jobs()[jobs]) {
        let ranges: ObjectRanges = capture.ranges(job).collect();
        let bytes = bytes_placed(&ranges);
        if bytes > options.bytes_max {
            return Err(ReplayError::TooLarge {
                job: index,
                bytes,
                max: options.bytes_max,
            });
        }
        let needed = match files.take(&ranges) {
            Some(()) => bytes_kept(&ranges),
            None => bytes,
        };
        work = work.saturating_add(needed);
        files.put(ranges, ());
    }
    if work > options.work_max {
        return Err(ReplayError::TooMuchWork {
            bytes: work,
            max: options.work_max,
        });
    }
    Ok(())
}

/// Runs all jobs of `capture` in order on new files of `device`, and compares the results.
///
/// The programs run as they were recorded. On a board that is as safe as the recorded
/// program: the NPU reaches only the file's own objects, but a program may hang a core
/// until the driver resets it.
///
/// # Errors
/// [`ReplayError`] if the capture needs more than `options` allow, which is checked
/// before the device is used; if the capture cannot be read; or if the device cannot be
/// brought into the recorded state. A job that ends otherwise than recorded is not an
/// error: the report shows it.
pub fn replay(
    capture: &Capture,
    device: &Device,
    options: &ReplayOptions,
) -> Result<ReplayReport, ReplayError> {
    let jobs = replay_jobs(capture, 0..capture.jobs().len(), None, device, options)?;
    Ok(ReplayReport { jobs })
}

/// Runs one job of `capture` with another program, and compares its results with the recorded
/// ones.
///
/// The program lies in a separate buffer object, so the recorded one stays in memory as it
/// was. The job ends with a witness: a job that the driver dropped is not taken for
/// completed. On a board the NPU reaches only the file's own objects, but any program may
/// hang a core until the driver resets it, or leave register values that disturb the next job.
///
/// # Errors
/// As [`replay`]; and if there is no such program, or `change` has too many words.
pub fn replay_changed(
    capture: &Capture,
    change: &ProgramChange<'_>,
    device: &Device,
    options: &ReplayOptions,
) -> Result<ReplayReport, ReplayError> {
    change.check(capture)?;
    let jobs = change.job..change.job + 1;
    let jobs = replay_jobs(capture, jobs, Some(change), device, options)?;
    Ok(ReplayReport { jobs })
}

fn replay_jobs(
    capture: &Capture,
    range: Range<usize>,
    change: Option<&ProgramChange<'_>>,
    device: &Device,
    options: &ReplayOptions,
) -> Result<Vec<ReplayedJob>, ReplayError> {
    check_limits(capture, range.clone(), device, options)?;
    let mut before = Contents::new(capture);
    let mut after = Contents::new(capture);
    let mut files = OpenFiles::new(device, options.bytes_max);
    let mut jobs = Vec::new();
    for (index, job) in range.clone().zip(&capture.jobs()[range]) {
        before.go(Moment::Before(index));
        after.go(Moment::After(index));
        let ranges: ObjectRanges = capture.ranges(job).collect();
        let mut placed = match files.take(&ranges) {
            Some(placed) => placed,
            None => PlacedFile::new(capture, device, &ranges)?,
        };
        for (&object, bo) in &mut placed.bos {
            load(&before, object, bo)?;
        }
        let replayed = run(job, change, &mut placed)?;
        // If the recorded end is unknown, there is nothing to compare with.
        // Objects of a job that may still run must not be read.
        let known = job.outcome != JobOutcome::Unknown && replayed != JobOutcome::Unknown;
        let comparison = if known && !capture.zero_data() {
            Some(compare::contents(
                capture,
                job,
                [&before, &after],
                &placed.bos,
            )?)
        } else {
            None
        };
        // The file of a job that may still run has lost its objects.
        if placed.bos.len() == ranges.len() {
            files.put(ranges, placed);
        }
        jobs.push(ReplayedJob {
            recorded: job.outcome,
            replayed,
            comparison,
        });
    }
    Ok(jobs)
}

/// Fills `bo` with its bytes in `contents`.
fn load(contents: &Contents<'_>, object: usize, bo: &mut Bo) -> Result<(), ReplayError> {
    let mut bytes = bo.write(Deadline::after(WAIT))?;
    contents.read(object, 0, &mut bytes)?;
    bytes.finish()?;
    Ok(())
}

/// Runs a job of a file, and waits for its end. If the end is not seen, the file loses its
/// objects.
fn run(
    job: &CapturedJob,
    change: Option<&ProgramChange<'_>>,
    placed: &mut PlacedFile,
) -> Result<JobOutcome, ReplayError> {
    let exists = |handle| {
        let mut list = job.uses.iter();
        list.any(|used| used.handle == handle && used.object.is_some())
    };
    let (reads, writes) = (job.handles(Role::In), job.handles(Role::Out));
    let mut tasks = job.tasks.clone();
    let changed = change.map(|change| ChangedJob::new(&placed.device, change, &mut tasks));
    let changed = changed.transpose()?;
    if is_dropped(&tasks, &reads, &writes, exists) {
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
    let added = changed.as_ref().map(|changed| changed.bo.handle());
    writes.extend(added);
    if writes.is_empty() {
        // Only objects that a job lists as written show its end.
        reads.clear();
        writes = placed.bos.values().map(Bo::handle).collect();
    }
    let mut bos = changed
        .iter()
        .map(|changed| &changed.bo)
        .chain(placed.bos.values());
    let Some(last) = bos.find(|bo| writes.last() == Some(&bo.handle())) else {
        return Ok(JobOutcome::Unknown);
    };
    let raw = RawJob {
        tasks: &tasks,
        reads: &reads,
        writes: &writes,
    };
    // SAFETY: the NPU reaches only objects of this file, which are those in `placed` and
    // `changed`: they live, or are leaked, until the job has ended. No guard of any of them
    // exists here.
    if let Err(error) = unsafe { placed.device.submit_raw(&[raw]) } {
        return match error {
            Error::Refused { errno, .. } => Ok(JobOutcome::Refused(errno)),
            error => Err(error.into()),
        };
    }
    if let Err(error) = last.read(Deadline::after(WAIT)).map(drop) {
        // The NPU may still access the objects.
        mem::forget((mem::take(&mut placed.bos), changed));
        return match error {
            Error::TimedOut { .. } => Ok(JobOutcome::Unknown),
            error => Err(error.into()),
        };
    }
    let outcome = last.fence(BufferAccess::Read)?.status()?.into();
    match changed {
        Some(changed) if outcome == JobOutcome::Completed && !changed.has_run()? => {
            Ok(JobOutcome::Dropped)
        }
        _ => Ok(outcome),
    }
}
