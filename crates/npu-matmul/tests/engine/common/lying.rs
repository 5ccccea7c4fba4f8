// SPDX-License-Identifier: MIT OR Apache-2.0
//! A device that claims to be an NPU, and computes some elements wrong.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};

use npu_matmul::plan::TaskPlan;
use npu_matmul::{Engine, JobEvent, Observer, PlanOptions, emit, layout};
use npu_model::{Model, ModelOptions};
use rknpu_regcmd::Reuse;
use rocket_uapi::{
    Caller, ClientJob, Device, DeviceInfo, Errno, FileLayer, FileOperations, MappedMemory, sys,
};

use crate::common::engine_on;

/// For a task of a job, with what it reuses: row and column of its wrong element, if any.
type Lie = fn(&JobEvent<'_>, &TaskPlan, Reuse) -> Option<[usize; 2]>;

/// Results to corrupt.
#[derive(Debug, Default)]
struct Lies {
    /// For built jobs not yet submitted, in order: bytes of C to change.
    built: VecDeque<Vec<usize>>,
    /// For submitted jobs, by the handle of their output: bytes of C to change.
    submitted: HashMap<u32, Vec<usize>>,
    /// Address and length of each buffer.
    memory: HashMap<u32, (usize, usize)>,
}

#[derive(Debug)]
struct Lying {
    inner: Arc<dyn FileOperations>,
    lies: Arc<Mutex<Lies>>,
}

// SAFETY: everything except some bytes of outputs is the inner file's.
unsafe impl FileLayer for Lying {
    type Below = dyn FileOperations;

    fn below(&self) -> &Self::Below {
        &*self.inner
    }

    fn info(&self) -> DeviceInfo {
        DeviceInfo {
            is_model: false,
            ..self.inner.info()
        }
    }

    fn map_bo(&self, bo: &sys::CreateBo, len: usize) -> Result<Box<dyn MappedMemory>, Errno> {
        let memory = self.inner.map_bo(bo, len)?;
        let place = (memory.as_ptr().expose_provenance(), memory.len());
        self.lies.lock().unwrap().memory.insert(bo.handle, place);
        Ok(memory)
    }

    unsafe fn ioctl(
        &self,
        request: u32,
        arg: &mut [u8],
        caller: &dyn Caller,
    ) -> Result<i32, Errno> {
        match request {
            sys::SUBMIT => self.submitted(&ClientJob::read_all(arg, caller).unwrap()),
            sys::GEM_CLOSE => {
                let bo: sys::GemClose = sys::structure(arg);
                self.lies.lock().unwrap().memory.remove(&bo.handle);
            }
            _ => {}
        }
        // SAFETY: the caller's promise.
        let result = unsafe { self.inner.ioctl(request, arg, caller) }?;
        if request == sys::PREP_BO {
            let bo: sys::PrepBo = sys::structure(arg);
            self.ended(bo.handle);
        }
        Ok(result)
    }

    fn reopen(&self) -> Result<Arc<dyn FileOperations>, rocket_uapi::Error> {
        Ok(Arc::new(Self {
            inner: self.inner.reopen()?,
            lies: Arc::clone(&self.lies),
        }))
    }
}

impl Lying {
    fn submitted(&self, jobs: &[ClientJob]) {
        let mut lies = self.lies.lock().unwrap();
        for job in jobs {
            let wrong = lies.built.pop_front().unwrap();
            lies.submitted.insert(job.writes[0], wrong);
        }
    }

    /// Corrupts the output of a job that has ended.
    fn ended(&self, handle: u32) {
        let mut lies = self.lies.lock().unwrap();
        let Some(wrong) = lies.submitted.remove(&handle) else {
            return;
        };
        let (address, len) = lies.memory[&handle];
        for byte in wrong {
            assert!(byte < len);
            let at = std::ptr::with_exposed_provenance_mut::<u8>(address + byte);
            // SAFETY: within the mapping, whose address was exposed and which lives until
            // GEM_CLOSE. The job has ended, and the caller, who waits for this call, does not
            // access it yet.
            unsafe { *at ^= 0x40 };
        }
    }
}

/// Chooses the wrong elements of each job.
#[derive(Debug)]
struct Liar {
    lie: Lie,
    lies: Arc<Mutex<Lies>>,
}

impl Observer for Liar {
    fn submitting(&self, submission: &JobEvent<'_>) {
        let job = submission.job;
        let wrong = emit::with_previous(job).filter_map(|(task, before)| {
            let reuse = emit::reuse(job, task, before);
            let [row, column] = (self.lie)(submission, task, reuse)?;
            let element = layout::output(job.dtype, task.m_padded as usize, row, column);
            // The byte with the exponent, or the highest bits.
            Some(task.c as usize + element + job.dtype.output_bytes() - 1)
        });
        let mut lies = self.lies.lock().unwrap();
        lies.built.push_back(wrong.collect());
    }
}

/// An engine on a device that computes right except for `lie`.
pub(crate) fn lying_engine(options: PlanOptions, lie: Lie) -> Engine {
    let lies = Arc::new(Mutex::new(Lies::default()));
    let file = Arc::new(Lying {
        inner: Model::new(ModelOptions::default()).open(),
        lies: Arc::clone(&lies),
    });
    // SAFETY: nobody else has the file.
    let device = unsafe { Device::new(file) };
    // A single file submits jobs in the order in which they are built.
    let engine = engine_on(&device, 1, options);
    engine.observed_by(Arc::new(Liar { lie, lies }))
}
