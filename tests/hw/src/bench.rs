// SPDX-License-Identifier: MIT OR Apache-2.0
//! A file with jobs that compute, and jobs that hang if they run at all, so that
//! the driver kills them.

use std::thread;

use rocket_uapi::{Deadline, PAGE_BYTES, SETTLE, sys};

use crate::busy::PATIENCE;
use crate::check::{Must, NotPassed, RowOutcome};
use crate::program::ProductProgram;
use crate::raw::{File, Map};
use crate::submit::{IDLE_WORDS, JobArgs, SubmitArgs, Task};

/// Parts of the wait below.
const NAPS: u32 = 5;

/// Waits until the driver's workers have let go of the last job, before which today's
/// kernels must not close its file. The workers run while this sleeps, in one nap if not
/// in the other: a machine may stop for as long as one lasts.
pub(crate) fn settle() {
    for _ in 0..NAPS {
        thread::sleep(SETTLE / NAPS);
    }
}

/// A file, and the handles that are closed with it.
#[derive(Debug)]
pub(crate) struct RowBench {
    pub(crate) file: File,
    zeros: sys::CreateBo,
    handles: Vec<u32>,
}

impl RowBench {
    pub(crate) fn new(file: File) -> Result<Self, NotPassed> {
        let zeros = file.create(PAGE_BYTES as u32).must("CREATE_BO")?;
        Ok(Self {
            file,
            zeros,
            handles: vec![zeros.handle],
        })
    }

    /// A page for a job.
    pub(crate) fn page(&mut self) -> Result<sys::CreateBo, NotPassed> {
        let page = self.file.create(PAGE_BYTES as u32).must("CREATE_BO")?;
        self.handles.push(page.handle);
        Ok(page)
    }

    /// A page for a job, and the CPU's view of it.
    pub(crate) fn seen_page(&mut self) -> Result<(sys::CreateBo, Map), NotPassed> {
        let page = self.page()?;
        let map = self.file.map_shared(page.offset, PAGE_BYTES);
        Ok((page, map.must("mmap")?))
    }

    /// A program that writes its product to the address `to`.
    pub(crate) fn program(&mut self, value: u8, to: u32) -> Result<ProductProgram, NotPassed> {
        let program = ProductProgram::writing(&self.file, value, to)?;
        self.keep(program.bo.handle);
        Ok(program)
    }

    /// The handles so far, in order, but for the file's first.
    pub(crate) fn pages(&self) -> &[u32] {
        &self.handles[1..]
    }

    /// Closes a handle in the end.
    pub(crate) fn keep(&mut self, handle: u32) {
        self.handles.push(handle);
    }

    /// Forgets a handle, which the row closes itself.
    pub(crate) fn leave(&mut self, handle: u32) {
        self.handles.retain(|&own| own != handle);
    }

    /// A task whose program, which is zeros, never starts the NPU.
    pub(crate) fn task(&self) -> Task {
        Task {
            regcmd: self.zeros.dma_address as u32,
            regcmd_count: IDLE_WORDS,
        }
    }

    /// A job of it that is said to write an object.
    pub(crate) fn job(&self, writes: u32) -> JobArgs {
        JobArgs {
            tasks: vec![self.task()],
            writes: vec![writes],
            ..JobArgs::default()
        }
    }

    /// Submits a job.
    pub(crate) fn submit(&self, job: JobArgs) -> RowOutcome {
        SubmitArgs::of(vec![job]).submit(&self.file).must("SUBMIT")
    }

    /// Waits for the end of the job that writes this, which may be that the driver
    /// kills it.
    pub(crate) fn wait(&self, handle: u32) -> RowOutcome {
        let until = Deadline::after(PATIENCE).as_nanos();
        let waited = self.file.prep(handle, until).map(drop);
        waited.must("PREP_BO until the job's end")
    }

    /// Closes all handles and waits until the driver has let go of the jobs, in
    /// the way that keeps today's kernels alive.
    pub(crate) fn close(self) -> RowOutcome {
        for handle in self.handles {
            self.file.close(handle).must("GEM_CLOSE")?;
        }
        settle();
        Ok(())
    }
}
