// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs the jobs of a capture one after another, and compares each.

use std::collections::VecDeque;

use rocket_uapi::{Bo, BufferAccess, Deadline, Device, Error, Handle, RawJob};

use super::compare;
use super::error::ReplayError;
use super::place::{PlacedFile, WAIT, ranges};
use super::report::{ReplayReport, ReplayedJob};
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

impl Default for ReplayOptions {
    fn default() -> Self {
        Self {
            bytes_max: BYTES_MAX,
            work_max: WORK_MAX,
        }
    }
}

/// Checks the claims of the file: a replay takes memory and time by the lengths of
/// objects, and a small file may claim much.
fn check_limits(capture: &Capture, options: &ReplayOptions) -> Result<(), ReplayError> {
    let mut work = 0_u64;
    for (index, job) in capture.jobs().iter().enumerate() {
        let mut bytes = 0;
        for (_, range) in ranges(capture, job) {
            bytes = bytes.max(range.end);
            work = work.saturating_add(range.end - range.start);
        }
        if bytes > options.bytes_max {
            return Err(ReplayError::TooLarge {
                job: index,
                bytes,
                max: options.bytes_max,
            });
        }
    }
    if work > options.work_max {
        return Err(ReplayError::TooMuchWork {
            bytes: work,
            max: options.work_max,
        });
    }
    Ok(())
}

/// Runs all jobs of `capture` in order, each on a new file of `device`, and compares the
/// results.
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
    check_limits(capture, options)?;
    let mut before = Contents::new(capture);
    let mut after = Contents::new(capture);
    // The latest files stay open, without objects: the driver chooses the core that the
    // fewest files used last, so the jobs reach all cores.
    let mut open = VecDeque::new();
    let mut jobs = Vec::new();
    for (index, job) in capture.jobs().iter().enumerate() {
        before.go(Moment::Before(index));
        after.go(Moment::After(index));
        let mut placed = PlacedFile::new(capture, device, job)?;
        for (&object, bo) in &mut placed.bos {
            load(&before, object, bo)?;
        }
        let replayed = run(job, &placed)?;
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
        open.push_back(placed.device);
        if open.len() >= device.info().files() {
            open.pop_front();
        }
        jobs.push(ReplayedJob {
            recorded: job.outcome,
            replayed,
            comparison,
        });
    }
    Ok(ReplayReport { jobs })
}

/// Fills `bo`, which contains zeroes, with its bytes in `contents`.
fn load(contents: &Contents<'_>, object: usize, bo: &mut Bo) -> Result<(), ReplayError> {
    let mut bytes = bo.write(Deadline::after(WAIT))?;
    for range in contents.data_ranges(object) {
        let range = range.start as usize..range.end as usize;
        contents.read(object, range.start as u64, &mut bytes[range])?;
    }
    bytes.finish()?;
    Ok(())
}

/// Runs a job of a file, and waits for its end.
fn run(job: &CapturedJob, placed: &PlacedFile) -> Result<JobOutcome, ReplayError> {
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
        writes = placed.bos.values().map(Bo::handle).collect();
    }
    let mut bos = placed.bos.values();
    let Some(last) = bos.find(|bo| writes.first() == Some(&bo.handle())) else {
        return Ok(JobOutcome::Unknown);
    };
    let raw = RawJob {
        tasks: &job.tasks,
        reads: &reads,
        writes: &writes,
    };
    // SAFETY: the NPU reaches only objects of this file, which all belong to
    // it. The file lives past the wait below, and no guard of any of them
    // exists here. If the end of the job is not seen, the objects are dropped
    // without being read, and the driver keeps those of a job until it has ended.
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
