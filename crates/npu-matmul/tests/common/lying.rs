// SPDX-License-Identifier: MIT OR Apache-2.0
//! A device that says it is an NPU, and computes some elements wrong.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex};

use npu_matmul::plan::TaskPlan;
use npu_matmul::{Engine, Observer, PlanOptions, SubmittedJob, emit, layout};
use npu_model::{Model, ModelOptions};
use rknpu_regcmd::Reuse;
use rocket_uapi::{
    Caller, ClientJob, Device, DeviceInfo, DevicePool, Errno, FileLayer, FileOperations,
    MappedMemory, sys,
};

/// The element of a task's tile that is wrong, if any is: of a job, a task, and what it reuses.
type Lie = fn(&SubmittedJob<'_>, &TaskPlan, Reuse) -> Option<[usize; 2]>;

/// What is to be made wrong.
#[derive(Default)]
struct Lies {
    /// Of jobs that were built and not submitted, in their order: bytes of C.
    built: VecDeque<Vec<usize>>,
    /// Of jobs that were submitted, by their output.
    submitted: HashMap<u32, Vec<usize>>,
    /// Address and length of each buffer.
    memory: HashMap<u32, (usize, usize)>,
}

struct Lying {
    inner: Arc<dyn FileOperations>,
    lies: Arc<Mutex<Lies>>,
}

impl fmt::Debug for Lying {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

// SAFETY: all but some bytes of outputs is the inner file's.
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
        // SAFETY: what the caller promises.
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

    /// A job that writes the object has ended.
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
            // GEM_CLOSE; its job has ended, and the caller, who waits for this call, does
            // not look at it yet.
            unsafe { *at ^= 0x40 };
        }
    }
}

/// Decides of each job what will be wrong of it.
struct Liar {
    lie: Lie,
    lies: Arc<Mutex<Lies>>,
}

impl fmt::Debug for Liar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Liar")
    }
}

impl Observer for Liar {
    fn submitting(&self, submission: &SubmittedJob<'_>) {
        let job = submission.job;
        let before = std::iter::once(None).chain(job.tasks.iter().map(Some));
        let tasks = job.tasks.iter().zip(before);
        let wrong = tasks.filter_map(|(task, before)| {
            let reuse = |before| emit::reuse(job.ty, task, before, &job.program);
            let reuse = before.map(reuse).unwrap_or_default();
            let [row, column] = (self.lie)(submission, task, reuse)?;
            let element = layout::output(job.ty, task.m_padded as usize, row, column);
            // The byte that has the exponent, or the highest bits.
            Some(task.c as usize + element + job.ty.out_bytes() as usize - 1)
        });
        let mut lies = self.lies.lock().unwrap();
        lies.built.push_back(wrong.collect());
    }
}

/// An engine on a device that computes right but for `lie`.
pub(crate) fn lying_engine(options: PlanOptions, lie: Lie) -> Engine {
    let lies = Arc::new(Mutex::new(Lies::default()));
    let device = Device::new(Arc::new(Lying {
        inner: Model::new(ModelOptions::default()).open(),
        lies: Arc::clone(&lies),
    }));
    // One file: its jobs are submitted in the order in which they are built.
    let pool = DevicePool::open(&device, 1).unwrap();
    let engine = Engine::with_options(pool, options).unwrap();
    engine.observed_by(Arc::new(Liar { lie, lies }))
}
