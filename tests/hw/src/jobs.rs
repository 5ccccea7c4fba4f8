// SPDX-License-Identifier: MIT OR Apache-2.0
//! Raw SUBMITs, of jobs that hang if they run at all: good and bad ones.

use std::thread;

use rocket_uapi::{Deadline, Errno, PAGE_BYTES, SETTLE, sys};
use zerocopy::IntoBytes;

use crate::busy::PATIENCE;
use crate::check::{Must, Outcome, Reason};
use crate::raw::File;

/// Words of a program that does nothing. Two are fetched at once.
const IDLE_WORDS: u32 = 2;

/// One of a job's arrays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Array {
    Tasks,
    Reads,
    Writes,
}

/// A job whose program is zeros, as a row wants it.
#[derive(Clone, Debug)]
pub(crate) struct RawJob {
    /// Words of each task's program.
    pub(crate) words: Vec<u32>,
    /// How many tasks it says that it has, if not as many.
    pub(crate) task_count: Option<u32>,
    pub(crate) task_struct_size: usize,
    pub(crate) reads: Vec<u32>,
    pub(crate) writes: Vec<u32>,
    /// An array that is said to be at NULL.
    pub(crate) null: Option<Array>,
}

impl RawJob {
    /// One that runs.
    pub(crate) fn writing(handle: u32) -> Self {
        Self {
            words: vec![IDLE_WORDS],
            task_count: None,
            task_struct_size: size_of::<sys::Task>(),
            reads: Vec::new(),
            writes: vec![handle],
            null: None,
        }
    }

    fn tasks(&self, regcmd: u32) -> Vec<u8> {
        let room = self.task_struct_size.max(size_of::<sys::Task>());
        let mut bytes = Vec::new();
        for &regcmd_count in &self.words {
            let task = sys::Task {
                regcmd,
                regcmd_count,
            };
            bytes.extend(task.as_bytes());
            // As a task of its own it would be refused.
            bytes.resize(bytes.len().next_multiple_of(room), 0);
        }
        bytes
    }

    /// As the kernel reads it; the arrays must stay where they are.
    fn place(&self, tasks: &[u8]) -> sys::Job {
        let at = |array, start: *const u8| match self.null == Some(array) {
            true => 0,
            false => start.expose_provenance() as u64,
        };
        sys::Job {
            tasks: at(Array::Tasks, tasks.as_ptr()),
            in_bo_handles: at(Array::Reads, self.reads.as_ptr().cast()),
            out_bo_handles: at(Array::Writes, self.writes.as_ptr().cast()),
            task_count: self.task_count.unwrap_or(self.words.len() as u32),
            task_struct_size: self.task_struct_size as u32,
            in_bo_handle_count: self.reads.len() as u32,
            out_bo_handle_count: self.writes.len() as u32,
        }
    }
}

/// A file with jobs that hang, and pages that they write.
#[derive(Debug)]
pub(crate) struct Hanging {
    pub(crate) file: File,
    zeros: sys::CreateBo,
    handles: Vec<u32>,
}

impl Hanging {
    pub(crate) fn new(file: File) -> Result<Self, Reason> {
        let zeros = file.create(PAGE_BYTES as u32).must("CREATE_BO")?;
        Ok(Self {
            file,
            zeros,
            handles: vec![zeros.handle],
        })
    }

    /// A page for a job.
    pub(crate) fn page(&mut self) -> Result<sys::CreateBo, Reason> {
        let page = self.file.create(PAGE_BYTES as u32).must("CREATE_BO")?;
        self.handles.push(page.handle);
        Ok(page)
    }

    /// The handles of the pages so far, in order.
    pub(crate) fn pages(&self) -> &[u32] {
        &self.handles[1..]
    }

    /// Forgets a handle, which the row closes itself.
    pub(crate) fn leave(&mut self, handle: u32) {
        self.handles.retain(|&own| own != handle);
    }

    /// SUBMIT with a job structure of so many bytes.
    pub(crate) fn submit(&self, jobs: &[RawJob], job_struct_size: usize) -> Result<i32, Errno> {
        let regcmd = self.zeros.dma_address as u32;
        let tasks: Vec<_> = jobs.iter().map(|job| job.tasks(regcmd)).collect();
        let mut array = Vec::new();
        for (job, tasks) in jobs.iter().zip(&tasks) {
            array.extend(job.place(tasks).as_bytes());
            array.resize(array.len().next_multiple_of(job_struct_size), 0xee);
        }
        let mut arg = sys::Submit {
            jobs: array.as_ptr().expose_provenance() as u64,
            job_count: jobs.len() as u32,
            job_struct_size: job_struct_size as u32,
            reserved: 0,
        };
        // SAFETY: each address is that of an array here, of as many entries as
        // its count says and of the stride that is told, or NULL, where nothing
        // is; where it says more, the kernel can read more of this process, which
        // changes nothing. What runs are words of zeros, which address no block of the NPU.
        unsafe {
            self.file
                .raw()?
                .ioctl(sys::SUBMIT, Some(arg.as_mut_bytes()))
        }
    }

    /// SUBMIT of a job whose structure is at NULL.
    pub(crate) fn submit_null(&self) -> Result<i32, Errno> {
        let mut arg = sys::Submit {
            jobs: 0,
            job_count: 1,
            job_struct_size: size_of::<sys::Job>() as u32,
            reserved: 0,
        };
        // SAFETY: nothing can be read at NULL.
        unsafe {
            self.file
                .raw()?
                .ioctl(sys::SUBMIT, Some(arg.as_mut_bytes()))
        }
    }

    /// Waits until the driver has killed the job that writes this.
    pub(crate) fn wait(&self, handle: u32) -> Outcome {
        let until = Deadline::after(PATIENCE).as_nanos();
        let waited = self.file.prep(handle, until).map(drop);
        waited.must("PREP_BO until the job is killed")
    }

    /// Closes all handles and waits until the driver has let go of the jobs, in
    /// the way that keeps today's kernels alive.
    pub(crate) fn close(self) -> Outcome {
        for handle in self.handles {
            self.file.close(handle).must("GEM_CLOSE")?;
        }
        thread::sleep(SETTLE);
        Ok(())
    }
}
