// SPDX-License-Identifier: MIT OR Apache-2.0
//! SUBMIT of jobs with any error that a test needs.

pub(crate) use rocket_uapi::sys::Task;
use rocket_uapi::{Errno, sys};
use zerocopy::IntoBytes;

use crate::raw::File;

/// Number of words of a program that does nothing, which are zeros. The PC fetches
/// two at a time.
const IDLE_WORDS: u32 = 2;

/// A task whose program is at address 0 and does nothing.
pub(crate) const IDLE_AT_ZERO: Task = Task {
    regcmd: 0,
    regcmd_count: IDLE_WORDS,
};

/// Minimum bytes of each array, so that a count or a stride that is too large reads
/// the same each time.
const ROOM: usize = 8192;

/// Bytes of the largest structure of a job or a task that any kernel might have.
const STRIDE: usize = 64;

/// The bytes between two jobs, which no kernel reads.
const FILLER: u8 = 0xee;

/// Index of one of a job's arrays.
pub(crate) const TASKS: usize = 0;
pub(crate) const READS: usize = 1;
pub(crate) const WRITES: usize = 2;

/// One job. `None` stands for the correct value.
#[derive(Clone, Debug, Default)]
pub(crate) struct JobArgs {
    pub(crate) tasks: Vec<Task>,
    pub(crate) reads: Vec<u32>,
    pub(crate) writes: Vec<u32>,
    pub(crate) task_struct_size: Option<u32>,
    /// Counts to pass, of tasks, reads and writes.
    pub(crate) counts: [Option<u32>; 3],
    /// Addresses to pass, which must be invalid.
    pub(crate) addresses: [Option<u64>; 3],
}

/// The arguments of a SUBMIT.
#[derive(Debug)]
pub(crate) struct SubmitArgs {
    pub(crate) jobs: Vec<JobArgs>,
    pub(crate) job_struct_size: u32,
    pub(crate) job_count: Option<u32>,
    /// Address to pass for the jobs, which must be invalid.
    pub(crate) address: Option<u64>,
    pub(crate) reserved: u64,
}

/// The arrays that a job's addresses point to.
type Arrays = [Vec<u8>; 3];

/// Structures that are `told` bytes apart, if any kernel might have them so large.
fn spread<T: IntoBytes + zerocopy::Immutable>(all: &[T], told: u32, filler: u8) -> Vec<u8> {
    let size = size_of::<T>();
    let stride = match told as usize {
        told @ ..=STRIDE => told.max(size),
        _ => size,
    };
    let mut bytes = Vec::new();
    for one in all {
        bytes.extend(one.as_bytes());
        bytes.resize(bytes.len().next_multiple_of(stride), filler);
    }
    room(bytes)
}

fn room(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.resize(bytes.len().max(ROOM), 0);
    bytes
}

fn address(bytes: &[u8]) -> u64 {
    bytes.as_ptr().expose_provenance() as u64
}

impl JobArgs {
    /// A job of one task, which lists an object as its output.
    pub(crate) fn of(task: Task, writes: u32) -> Self {
        Self {
            tasks: vec![task],
            writes: vec![writes],
            ..Self::default()
        }
    }

    fn task_struct_size(&self) -> u32 {
        self.task_struct_size.unwrap_or(size_of::<Task>() as u32)
    }

    fn arrays(&self) -> Arrays {
        let handles = |handles: &[u32]| room(handles.as_bytes().to_vec());
        [
            // Zeros between two tasks would be refused as a task.
            spread(&self.tasks, self.task_struct_size(), 0),
            handles(&self.reads),
            handles(&self.writes),
        ]
    }

    fn place(&self, arrays: &Arrays) -> sys::Job {
        let lens = [self.tasks.len(), self.reads.len(), self.writes.len()];
        let at = |index: usize| self.addresses[index].unwrap_or_else(|| address(&arrays[index]));
        let count = |index: usize| self.counts[index].unwrap_or(lens[index] as u32);
        sys::Job {
            tasks: at(TASKS),
            in_bo_handles: at(READS),
            out_bo_handles: at(WRITES),
            task_count: count(TASKS),
            task_struct_size: self.task_struct_size(),
            in_bo_handle_count: count(READS),
            out_bo_handle_count: count(WRITES),
        }
    }
}

impl SubmitArgs {
    /// A correct SUBMIT of `jobs`.
    pub(crate) fn of(jobs: Vec<JobArgs>) -> Self {
        Self {
            jobs,
            job_struct_size: size_of::<sys::Job>() as u32,
            job_count: None,
            address: None,
            reserved: 0,
        }
    }

    pub(crate) fn submit(&self, file: &File) -> Result<(), Errno> {
        let arrays: Vec<Arrays> = self.jobs.iter().map(JobArgs::arrays).collect();
        let placed = self.jobs.iter().zip(&arrays);
        let placed: Vec<_> = placed.map(|(job, arrays)| job.place(arrays)).collect();
        let jobs = spread(&placed, self.job_struct_size, FILLER);
        let mut arg = sys::Submit {
            jobs: self.address.unwrap_or_else(|| address(&jobs)),
            job_count: self.job_count.unwrap_or(self.jobs.len() as u32),
            job_struct_size: self.job_struct_size,
            reserved: self.reserved,
        };
        // SAFETY: SUBMIT only reads the data at its addresses, and each is that of an
        // array here, or invalid. If a count is too large, the kernel can read more
        // of this process, which changes nothing. Programs reach only objects of the
        // file, which have no references, only volatile accesses.
        unsafe { file.ioctl(sys::SUBMIT, Some(arg.as_mut_bytes())) }
    }
}
