// SPDX-License-Identifier: MIT OR Apache-2.0
//! A file whose jobs compute, or hang so that the driver kills them.

use std::thread;

use rocket_uapi::{PAGE_BYTES, SETTLE, sys};

use crate::busy::patience;
use crate::check::{Must, NotPassed, RowOutcome};
use crate::program::MatmulProgram;
use crate::raw::{File, Map};
use crate::submit::{IDLE_AT_ZERO, JobArgs, SubmitArgs, Task};

/// Number of sleeps in [`settle`].
const NAPS: u32 = 5;

/// Waits until the driver's workers have released the last job. Before that, today's
/// kernels must not close its file. The workers run while this sleeps. It sleeps
/// several times, as the machine may stop for as long as one sleep lasts.
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

    pub(crate) fn page(&mut self) -> Result<sys::CreateBo, NotPassed> {
        let page = self.file.create(PAGE_BYTES as u32).must("CREATE_BO")?;
        self.handles.push(page.handle);
        Ok(page)
    }

    /// A page for a job, and a CPU mapping of it.
    pub(crate) fn seen_page(&mut self) -> Result<(sys::CreateBo, Map), NotPassed> {
        let page = self.page()?;
        let map = self.file.map_shared(page.offset, PAGE_BYTES);
        Ok((page, map.must("mmap")?))
    }

    /// A program that writes its result to the address `to`.
    pub(crate) fn program(&mut self, value: u8, to: u32) -> Result<MatmulProgram, NotPassed> {
        let program = MatmulProgram::new(&self.file, value, Some(to))?;
        self.keep(program.bo.handle);
        Ok(program)
    }

    /// The handles so far, in order, without the file's first.
    pub(crate) fn pages(&self) -> &[u32] {
        &self.handles[1..]
    }

    /// Makes [`Self::close`] close this handle.
    pub(crate) fn keep(&mut self, handle: u32) {
        self.handles.push(handle);
    }

    /// Forgets a handle, which the row closes itself.
    pub(crate) fn leave(&mut self, handle: u32) {
        self.handles.retain(|&own| own != handle);
    }

    /// A task whose program is zeros, so it never starts the NPU.
    pub(crate) fn task(&self) -> Task {
        Task {
            regcmd: self.zeros.dma_address as u32,
            ..IDLE_AT_ZERO
        }
    }

    /// A job of [`Self::task`] that lists an object as its output.
    pub(crate) fn job(&self, writes: u32) -> JobArgs {
        JobArgs::of(self.task(), writes)
    }

    pub(crate) fn submit(&self, job: JobArgs) -> RowOutcome {
        SubmitArgs::of(vec![job]).submit(&self.file).must("SUBMIT")
    }

    /// Waits until the job that writes this object ends, or the driver has killed it.
    pub(crate) fn wait(&self, handle: u32) -> RowOutcome {
        let waited = self.file.prep(handle, patience().as_nanos());
        waited.must("PREP_BO until the job's end")
    }

    /// Closes all handles and waits until the driver has released the jobs, in the
    /// order that keeps today's kernels alive.
    pub(crate) fn close(self) -> RowOutcome {
        for handle in self.handles {
            self.file.close(handle).must("GEM_CLOSE")?;
        }
        settle();
        Ok(())
    }
}
