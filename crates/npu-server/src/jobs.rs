// SPDX-License-Identifier: MIT OR Apache-2.0
//! Jobs out of the client's memory, and one by one to the driver.

use npu_capture::JobToken;
use npu_model::driver::{Arena, Caller};
use rocket_uapi::{Iova, RawTask, sys};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

/// Most jobs of a SUBMIT, programs of a job and entries of its lists that are
/// read; a SUBMIT with more goes past a recorder.
const COUNT_MAX: u32 = 1 << 16;

/// Most programs and list entries of all jobs of a SUBMIT together: 32 MiB.
const ENTRIES_MAX: usize = 1 << 22;

/// Most bytes of a job structure that go to the driver: more than it knows.
const JOB_BYTES_MAX: usize = 256;

/// The jobs of a SUBMIT.
pub(crate) struct Jobs(pub(super) Vec<Job>);

/// A job as its client gave it.
pub(crate) struct Job {
    /// Its structure, with what the driver may know of it beyond our own.
    structure: Vec<u8>,
    pub(crate) tasks: Vec<RawTask>,
    pub(crate) reads: Vec<u32>,
    pub(crate) writes: Vec<u32>,
}

/// Why jobs are not read.
#[derive(Clone, Copy, Debug)]
pub(crate) enum NotRead {
    /// The driver looks at none: by the argument, which is this.
    Head(sys::Submit),
    /// They are more than are read.
    TooMany,
    /// Their memory cannot be read.
    Fault,
}

impl Jobs {
    /// Reads them.
    pub(crate) fn read(arg: &[u8], caller: &dyn Caller) -> Result<Self, NotRead> {
        let mut submit = sys::Submit::default();
        let len = arg.len().min(size_of::<sys::Submit>());
        submit.as_mut_bytes()[..len].copy_from_slice(&arg[..len]);
        let stride = submit.job_struct_size as usize;
        if submit.job_count == 0 || submit.reserved != 0 || stride < size_of::<sys::Job>() {
            return Err(NotRead::Head(submit));
        }
        if submit.job_count > COUNT_MAX {
            return Err(NotRead::TooMany);
        }
        let bytes = stride.min(JOB_BYTES_MAX);
        let at = |index: u32| submit.jobs.wrapping_add(u64::from(index) * stride as u64);
        let mut entries = 0;
        let jobs = (0..submit.job_count).map(|index| {
            let job = Job::read(at(index), bytes, caller)?;
            entries += job.tasks.len() + job.reads.len() + job.writes.len();
            if entries > ENTRIES_MAX {
                return Err(NotRead::TooMany);
            }
            Ok(job)
        });
        jobs.collect::<Result<Vec<_>, _>>().map(Self)
    }
}

impl Job {
    fn read(at: u64, bytes: usize, caller: &dyn Caller) -> Result<Self, NotRead> {
        let mut structure = vec![0; bytes];
        if caller.read(at, &mut structure).is_err() {
            // Its tail is not the driver's business.
            structure.truncate(size_of::<sys::Job>());
            let read = caller.read(at, &mut structure);
            read.map_err(|_| NotRead::Fault)?;
        }
        let (job, _) = sys::Job::read_from_prefix(&structure).map_err(|_| NotRead::Fault)?;
        let counts = [
            job.task_count,
            job.in_bo_handle_count,
            job.out_bo_handle_count,
        ];
        if counts.iter().any(|&count| count > COUNT_MAX) {
            return Err(NotRead::TooMany);
        }
        // What cannot be read makes the driver drop the job: as one without
        // tasks, which it drops too.
        let read = || {
            let tasks = tasks(&job, caller)?;
            let reads = handles(job.in_bo_handles, job.in_bo_handle_count, caller)?;
            let writes = handles(job.out_bo_handles, job.out_bo_handle_count, caller)?;
            Some((tasks, reads, writes))
        };
        let read = read();
        if caller.is_gone() {
            return Err(NotRead::Fault);
        }
        let (tasks, reads, writes) = read.unwrap_or_default();
        Ok(Self {
            structure,
            tasks,
            reads,
            writes,
        })
    }

    /// What it is waited for by: the driver attaches a job's fence to what it
    /// lists as written.
    pub(crate) fn waited(&self, token: &JobToken) -> Vec<u32> {
        if !self.writes.is_empty() {
            self.writes.clone()
        } else if !self.reads.is_empty() {
            self.reads.clone()
        } else {
            // What holds its programs.
            token.handles().into_iter().take(1).collect()
        }
    }

    /// A SUBMIT of this job alone, which lists `writes` as written.
    pub(crate) fn submit(&self, arena: &Arena, writes: &[u32]) -> sys::Submit {
        let tasks: Vec<_> = self.tasks.iter().map(structure).collect();
        let moved = self.writes.is_empty() && !writes.is_empty();
        let reads = if moved { &[][..] } else { &self.reads };
        let job = sys::Job {
            tasks: arena.push(tasks.as_bytes()),
            in_bo_handles: arena.push(reads.as_bytes()),
            out_bo_handles: arena.push(writes.as_bytes()),
            task_count: tasks.len() as u32,
            task_struct_size: size_of::<sys::Task>() as u32,
            in_bo_handle_count: reads.len() as u32,
            out_bo_handle_count: writes.len() as u32,
        };
        let mut structure = self.structure.clone();
        structure[..size_of::<sys::Job>()].copy_from_slice(job.as_bytes());
        sys::Submit {
            jobs: arena.push(&structure),
            job_count: 1,
            job_struct_size: structure.len() as u32,
            reserved: 0,
        }
    }
}

/// Bytes that are read of a client at a time.
const PIECE: usize = 64 << 10;

fn tasks(job: &sys::Job, caller: &dyn Caller) -> Option<Vec<RawTask>> {
    let stride = job.task_struct_size as usize;
    if stride < size_of::<sys::Task>() {
        return None;
    }
    if stride > size_of::<sys::Task>() {
        let at = |index: u32| job.tasks.wrapping_add(u64::from(index) * stride as u64);
        let read = |index| {
            let mut task = sys::Task::new_zeroed();
            caller.read(at(index), task.as_mut_bytes()).ok()?;
            Some(raw(&task))
        };
        return (0..job.task_count).map(read).collect();
    }
    let mut tasks = vec![sys::Task::new_zeroed(); job.task_count as usize];
    read_array(job.tasks, tasks.as_mut_bytes(), caller)?;
    Some(tasks.iter().map(raw).collect())
}

/// A program as the driver takes it.
pub(crate) fn structure(task: &RawTask) -> sys::Task {
    sys::Task {
        regcmd: task.regcmd.0,
        regcmd_count: task.words,
    }
}

fn raw(task: &sys::Task) -> RawTask {
    RawTask {
        regcmd: Iova(task.regcmd),
        words: task.regcmd_count,
    }
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
