// SPDX-License-Identifier: MIT OR Apache-2.0
//! A file whose jobs compute, or hang so that the driver kills them.

use std::thread;

use rocket_uapi::{Errno, PAGE_BYTES, SETTLE, sys};

use crate::busy::patience;
use crate::check::{Must, NotPassed, RowOutcome, refused};
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

/// Closes the handles below `end` that are open, once the jobs that write their objects have
/// ended: today's kernels may free the objects of a job after its file. Fails if `end` is
/// open too.
pub(crate) fn close_handles(file: &File, end: u32) -> RowOutcome {
    for handle in 1..end {
        match file.prep(handle, patience().as_nanos()) {
            Err(Errno::NOENT) => continue,
            waited => waited.must("PREP_BO before GEM_CLOSE")?,
        }
        file.close(handle).must("GEM_CLOSE")?;
    }
    let what = format!("GEM_CLOSE of handle {end}, which should be unused");
    refused(&what, file.close(end), Errno::INVAL)
}

/// A file with a page of zeros, its first object.
#[derive(Debug)]
pub(crate) struct RowBench {
    pub(crate) file: File,
    zeros: sys::CreateBo,
}

impl RowBench {
    pub(crate) fn new(file: File) -> Result<Self, NotPassed> {
        let zeros = file.create(PAGE_BYTES as u32).must("CREATE_BO")?;
        Ok(Self { file, zeros })
    }

    pub(crate) fn page(&self) -> Result<sys::CreateBo, NotPassed> {
        self.file.create(PAGE_BYTES as u32).must("CREATE_BO")
    }

    /// A page for a job, and a CPU mapping of it.
    pub(crate) fn seen_page(&self) -> Result<(sys::CreateBo, Map), NotPassed> {
        let page = self.page()?;
        let map = self.file.map_shared(page.offset, PAGE_BYTES);
        Ok((page, map.must("mmap")?))
    }

    /// A program that writes its result to the address `to`.
    pub(crate) fn program(&self, value: u8, to: u32) -> Result<MatmulProgram, NotPassed> {
        MatmulProgram::new(&self.file, value, Some(to))
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
}
