// SPDX-License-Identifier: MIT OR Apache-2.0
//! SUBMIT with anything wrong that can be.

use rocket_uapi::{Errno, sys};
use zerocopy::IntoBytes;

use crate::raw::File;

/// Bytes that each array has at least, so that a count or a stride that is too
/// large reads the same each time.
const ROOM: usize = 8192;

/// The largest structure of a job that any kernel might have.
const STRIDE: usize = 64;

pub(super) type Task = sys::Task;

/// One job. What is `None` is as it should be.
#[derive(Debug, Default)]
pub(super) struct Job {
    pub(super) tasks: Vec<Task>,
    pub(super) reads: Vec<u32>,
    pub(super) writes: Vec<u32>,
    pub(super) task_struct_size: Option<u32>,
    /// Counts that are told, of tasks, reads and writes.
    pub(super) counts: [Option<u32>; 3],
    /// Addresses that are told, which must be invalid ones.
    pub(super) addresses: [Option<u64>; 3],
}

/// All of a SUBMIT.
#[derive(Debug)]
pub(super) struct Submission {
    pub(super) jobs: Vec<Job>,
    pub(super) job_struct_size: u32,
    pub(super) job_count: Option<u32>,
    pub(super) address: Option<u64>,
    pub(super) reserved: u64,
}

/// What a job's addresses lead to.
struct Arrays([Vec<u8>; 3]);

fn room(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.resize(bytes.len().max(ROOM), 0);
    bytes
}

fn address(bytes: &[u8]) -> u64 {
    bytes.as_ptr().expose_provenance() as u64
}

impl Job {
    fn arrays(&self) -> Arrays {
        let tasks = self.tasks.as_bytes();
        let arrays = [tasks, self.reads.as_bytes(), self.writes.as_bytes()];
        Arrays(arrays.map(|bytes| room(bytes.to_vec())))
    }

    fn place(&self, Arrays(arrays): &Arrays) -> sys::Job {
        let lens = [self.tasks.len(), self.reads.len(), self.writes.len()];
        let at = |index: usize| self.addresses[index].unwrap_or_else(|| address(&arrays[index]));
        let count = |index: usize| self.counts[index].unwrap_or(lens[index] as u32);
        sys::Job {
            tasks: at(0),
            in_bo_handles: at(1),
            out_bo_handles: at(2),
            task_count: count(0),
            task_struct_size: self.task_struct_size.unwrap_or(size_of::<Task>() as u32),
            in_bo_handle_count: count(1),
            out_bo_handle_count: count(2),
        }
    }
}

impl Submission {
    /// One that is right.
    pub(super) fn of(jobs: Vec<Job>) -> Self {
        Self {
            jobs,
            job_struct_size: size_of::<sys::Job>() as u32,
            job_count: None,
            address: None,
            reserved: 0,
        }
    }

    pub(super) fn submit(&self, file: &File) -> Result<(), Errno> {
        let arrays: Vec<Arrays> = self.jobs.iter().map(Job::arrays).collect();
        let placed = self.jobs.iter().zip(&arrays);
        // As far apart as is told: what is read across two jobs has absurd counts.
        let stride = match self.job_struct_size as usize {
            told @ ..=STRIDE => told.max(size_of::<sys::Job>()),
            _ => size_of::<sys::Job>(),
        };
        let mut jobs = Vec::new();
        for (job, arrays) in placed {
            jobs.extend(job.place(arrays).as_bytes());
            jobs.resize(jobs.len().next_multiple_of(stride), 0);
        }
        let jobs = room(jobs);
        let mut arg = sys::Submit {
            jobs: self.address.unwrap_or_else(|| address(&jobs)),
            job_count: self.job_count.unwrap_or(self.jobs.len() as u32),
            job_struct_size: self.job_struct_size,
            reserved: self.reserved,
        };
        // SAFETY: SUBMIT only reads what addresses lead to, and each is that of an
        // array here, or invalid; where a count says more, the kernel can read more
        // of this process, which changes nothing. Programs reach objects of the
        // file alone, of which there are no references, but volatile accesses.
        let submitted = unsafe { file.raw()?.ioctl(sys::SUBMIT, Some(arg.as_mut_bytes())) };
        submitted.map(drop)
    }
}
