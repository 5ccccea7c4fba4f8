// SPDX-License-Identifier: MIT OR Apache-2.0
//! Conversion of jobs to the structures of SUBMIT, and from a client's memory.

use zerocopy::{FromBytes, FromZeros, IntoBytes};

use crate::arena::Arena;
use crate::caller::Caller;
use crate::error::Error;
use crate::units::Handle;
use crate::{Errno, sys};

/// Maximum number of jobs of a SUBMIT, of programs of a job, and of entries of a list that
/// are read.
const COUNT_MAX: u32 = 1 << 16;

/// Maximum sum of programs and list entries over all jobs of a SUBMIT: 32 MiB.
const ENTRIES_MAX: usize = 1 << 22;

/// Maximum size of a job structure that is passed on, bytes: more than the driver knows.
const JOB_BYTES_MAX: usize = 256;

/// Bytes per read of the client's memory.
const PIECE: usize = 64 << 10;

/// Programs that run one after another on one core, with one fence.
#[derive(Clone, Copy, Debug)]
pub struct RawJob<'a> {
    /// The programs, in the order in which they run.
    pub tasks: &'a [sys::Task],
    /// BOs that the job only reads, each once.
    pub reads: &'a [Handle],
    /// BOs that the job writes (and may read), each once, none also in
    /// `reads`.
    pub writes: &'a [Handle],
}

impl RawJob<'_> {
    /// Checks that the driver will queue the job with the index `job`. Its first version
    /// (before Linux 7.2) takes the kernel down at such an error.
    pub(crate) fn check(&self, job: usize, exists: impl Fn(Handle) -> bool) -> Result<(), Error> {
        if let Some(task) = self.tasks.iter().position(|task| task.regcmd_count == 0) {
            return Err(Error::EmptyTask { job, task });
        }
        let mut listed = self.reads.iter().chain(self.writes);
        match listed.find(|&&handle| !exists(handle)) {
            Some(&handle) => Err(Error::UnknownHandle { job, handle }),
            None => Ok(()),
        }
    }
}

/// Builds SUBMIT's argument. All that it points to lies in `arena`.
pub(crate) fn place(jobs: &[RawJob<'_>], arena: &Arena) -> Result<sys::Submit, Errno> {
    let numbers =
        |handles: &[Handle]| -> Vec<u32> { handles.iter().map(|&one| one.into()).collect() };
    let place =
        |job: &RawJob<'_>| place_job(job.tasks, &numbers(job.reads), &numbers(job.writes), arena);
    place_jobs(jobs.iter().map(place), arena)
}

fn count(len: usize) -> Result<u32, Errno> {
    u32::try_from(len).map_err(|_| Errno::INVAL)
}

/// Builds a job's structure, with its arrays in `arena`.
fn place_job(
    tasks: &[sys::Task],
    reads: &[u32],
    writes: &[u32],
    arena: &Arena,
) -> Result<sys::Job, Errno> {
    Ok(sys::Job {
        tasks: arena.push(tasks.as_bytes()),
        in_bo_handles: arena.push(reads.as_bytes()),
        out_bo_handles: arena.push(writes.as_bytes()),
        task_count: count(tasks.len())?,
        task_struct_size: size_of::<sys::Task>() as u32,
        in_bo_handle_count: count(reads.len())?,
        out_bo_handle_count: count(writes.len())?,
    })
}

/// Builds SUBMIT's argument for `jobs`.
fn place_jobs(
    jobs: impl Iterator<Item = Result<sys::Job, Errno>>,
    arena: &Arena,
) -> Result<sys::Submit, Errno> {
    let jobs: Vec<_> = jobs.collect::<Result<_, _>>()?;
    Ok(sys::Submit {
        jobs: arena.push(jobs.as_bytes()),
        job_count: count(jobs.len())?,
        job_struct_size: size_of::<sys::Job>() as u32,
        reserved: 0,
    })
}

/// A job of a client's SUBMIT.
#[derive(Debug)]
pub struct ClientJob {
    /// Its structure, with fields of a newer driver that this crate does not know.
    structure: Vec<u8>,
    /// Its register programs.
    pub tasks: Vec<sys::Task>,
    /// Handles of BOs that the job only reads.
    pub reads: Vec<u32>,
    /// Handles of BOs that the job writes.
    pub writes: Vec<u32>,
}

/// Why the jobs of a SUBMIT cannot be read.
#[derive(Clone, Copy, Debug)]
pub enum ReadJobsError {
    /// The driver reads no jobs because of the argument, which this holds.
    BadArgument(sys::Submit),
    /// The jobs exceed the limits of this module.
    TooMany,
    /// The client's memory cannot be read.
    Fault,
}

impl ClientJob {
    /// Reads the jobs of a SUBMIT with the argument `arg`.
    ///
    /// # Errors
    /// Those of [`ReadJobsError`].
    pub fn read_all(arg: &[u8], caller: &dyn Caller) -> Result<Vec<Self>, ReadJobsError> {
        let submit: sys::Submit = sys::structure(arg);
        let stride = submit.job_struct_size as usize;
        if submit.job_count == 0 || submit.reserved != 0 || stride < size_of::<sys::Job>() {
            return Err(ReadJobsError::BadArgument(submit));
        }
        if submit.job_count > COUNT_MAX {
            return Err(ReadJobsError::TooMany);
        }
        let bytes = stride.min(JOB_BYTES_MAX);
        let at = |index: u32| submit.jobs.wrapping_add(u64::from(index) * stride as u64);
        let mut entries = 0;
        let jobs = (0..submit.job_count).map(|index| {
            let job = Self::read(at(index), bytes, caller)?;
            entries += job.tasks.len() + job.reads.len() + job.writes.len();
            if entries > ENTRIES_MAX {
                return Err(ReadJobsError::TooMany);
            }
            Ok(job)
        });
        jobs.collect()
    }

    /// Whether the driver drops the job before it is queued, although SUBMIT returns 0: it
    /// has a task without words, or lists a handle for which `exists` is false. The
    /// driver's first version (before Linux 7.2) takes the kernel down instead, so nobody
    /// should pass such a job on.
    #[must_use]
    pub fn cannot_be_queued(&self, exists: impl Fn(u32) -> bool) -> bool {
        let mut listed = self.reads.iter().chain(&self.writes);
        self.tasks.iter().any(|task| task.regcmd_count == 0)
            || listed.any(|&handle| !exists(handle))
    }

    fn read(at: u64, bytes: usize, caller: &dyn Caller) -> Result<Self, ReadJobsError> {
        let mut structure = vec![0; bytes];
        if caller.read(at, &mut structure).is_err() {
            // Read again without the tail, which the driver may not know.
            structure.truncate(size_of::<sys::Job>());
            let read = caller.read(at, &mut structure);
            read.map_err(|_| ReadJobsError::Fault)?;
        }
        let (job, _) = sys::Job::read_from_prefix(&structure).map_err(|_| ReadJobsError::Fault)?;
        let counts = [
            job.task_count,
            job.in_bo_handle_count,
            job.out_bo_handle_count,
        ];
        if counts.iter().any(|&count| count > COUNT_MAX) {
            return Err(ReadJobsError::TooMany);
        }
        // The driver drops a job whose arrays cannot be read. It also drops a job without
        // tasks, so return one without tasks.
        let read = || {
            let tasks = tasks(&job, caller)?;
            let reads = handles(job.in_bo_handles, job.in_bo_handle_count, caller)?;
            let writes = handles(job.out_bo_handles, job.out_bo_handle_count, caller)?;
            Some((tasks, reads, writes))
        };
        let read = read();
        if caller.is_gone() {
            return Err(ReadJobsError::Fault);
        }
        let (tasks, reads, writes) = read.unwrap_or_default();
        Ok(Self {
            structure,
            tasks,
            reads,
            writes,
        })
    }

    /// Builds a SUBMIT of the known fields of the jobs: unknown fields may be addresses of
    /// the client's memory.
    ///
    /// # Errors
    /// `EINVAL` if a count exceeds SUBMIT's range.
    pub fn submit_all<'a>(
        jobs: impl IntoIterator<Item = &'a Self>,
        arena: &Arena,
    ) -> Result<sys::Submit, Errno> {
        let place = |job: &Self| place_job(&job.tasks, &job.reads, &job.writes, arena);
        place_jobs(jobs.into_iter().map(place), arena)
    }

    /// Builds a SUBMIT of this job alone with its whole structure, which lists `writes` as
    /// written.
    ///
    /// # Errors
    /// As [`ClientJob::submit_all`].
    pub fn submit_alone(&self, writes: &[u32], arena: &Arena) -> Result<sys::Submit, Errno> {
        let moved = self.writes.is_empty() && !writes.is_empty();
        let reads = if moved { &[][..] } else { &self.reads };
        let job = place_job(&self.tasks, reads, writes, arena)?;
        let mut structure = self.structure.clone();
        structure[..size_of::<sys::Job>()].copy_from_slice(job.as_bytes());
        Ok(sys::Submit {
            jobs: arena.push(&structure),
            job_count: 1,
            job_struct_size: count(structure.len())?,
            reserved: 0,
        })
    }
}

fn tasks(job: &sys::Job, caller: &dyn Caller) -> Option<Vec<sys::Task>> {
    let stride = job.task_struct_size as usize;
    if stride < size_of::<sys::Task>() {
        return None;
    }
    if stride > size_of::<sys::Task>() {
        let at = |index: u32| job.tasks.wrapping_add(u64::from(index) * stride as u64);
        let read = |index| {
            let mut task = sys::Task::new_zeroed();
            caller.read(at(index), task.as_mut_bytes()).ok()?;
            Some(task)
        };
        return (0..job.task_count).map(read).collect();
    }
    let mut tasks = vec![sys::Task::new_zeroed(); job.task_count as usize];
    read_array(job.tasks, tasks.as_mut_bytes(), caller)?;
    Some(tasks)
}

fn handles(at: u64, count: u32, caller: &dyn Caller) -> Option<Vec<u32>> {
    let mut handles = vec![0_u32; count as usize];
    read_array(at, handles.as_mut_bytes(), caller)?;
    Some(handles)
}

fn read_array(at: u64, bytes: &mut [u8], caller: &dyn Caller) -> Option<()> {
    for (index, piece) in bytes.chunks_mut(PIECE).enumerate() {
        let at = at.wrapping_add((index * PIECE) as u64);
        caller.read(at, piece).ok()?;
    }
    Some(())
}
