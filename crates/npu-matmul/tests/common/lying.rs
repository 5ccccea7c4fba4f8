// SPDX-License-Identifier: MIT OR Apache-2.0
//! A device that says it is an NPU, and computes some elements wrong.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use npu_matmul::plan::TaskPlan;
use npu_matmul::{Engine, Observer, PlanOptions, SubmittedJob, emit, layout};
use npu_model::{Model, ModelOptions};
use rknpu_regcmd::Reuse;
use rocket_uapi::{
    Backend, ByteLen, Deadline, Device, DeviceInfo, DevicePool, Handle, RawBo, RawJob,
};

/// The element of a task's tile that is wrong, if any is: of a job, a task, and what it reuses.
type Lie = fn(&SubmittedJob<'_>, &TaskPlan, Reuse) -> Option<[usize; 2]>;

/// What is to be made wrong.
#[derive(Default)]
struct Lies {
    /// Of jobs that were built and not submitted, in their order: bytes of C.
    built: VecDeque<Vec<usize>>,
    /// Of jobs that were submitted, by their output.
    submitted: HashMap<Handle, Vec<usize>>,
    /// Address and length of each buffer.
    memory: HashMap<Handle, (usize, usize)>,
}

struct Lying {
    inner: Arc<dyn Backend>,
    lies: Arc<Mutex<Lies>>,
}

impl fmt::Debug for Lying {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

// SAFETY: all but some bytes of outputs is the inner backend's.
unsafe impl Backend for Lying {
    fn info(&self) -> DeviceInfo {
        DeviceInfo {
            is_model: false,
            ..self.inner.info()
        }
    }

    fn create_bo(&self, len: ByteLen) -> Result<RawBo, rocket_uapi::Error> {
        let bo = self.inner.create_bo(len)?;
        let place = (bo.memory.as_ptr().addr(), bo.memory.len());
        bo.memory.as_ptr().expose_provenance();
        self.lies.lock().unwrap().memory.insert(bo.handle, place);
        Ok(bo)
    }

    fn close_bo(&self, handle: Handle) -> Result<(), rocket_uapi::Error> {
        self.lies.lock().unwrap().memory.remove(&handle);
        self.inner.close_bo(handle)
    }

    fn prep_bo(&self, handle: Handle, until: Deadline) -> Result<(), rocket_uapi::Error> {
        self.inner.prep_bo(handle, until)?;
        let mut lies = self.lies.lock().unwrap();
        let Some(wrong) = lies.submitted.remove(&handle) else {
            return Ok(());
        };
        let (address, len) = lies.memory[&handle];
        for byte in wrong {
            assert!(byte < len);
            let at = std::ptr::with_exposed_provenance_mut::<u8>(address + byte);
            // SAFETY: within the mapping, whose address was exposed and which lives until
            // `close_bo`; its job has ended, and the caller, who waits for this call, does
            // not look at it yet.
            unsafe { *at ^= 0x40 };
        }
        Ok(())
    }

    fn fini_bo(&self, handle: Handle) -> Result<(), rocket_uapi::Error> {
        self.inner.fini_bo(handle)
    }

    unsafe fn submit(&self, jobs: &[RawJob<'_>]) -> Result<(), rocket_uapi::Error> {
        let mut lies = self.lies.lock().unwrap();
        for job in jobs {
            let wrong = lies.built.pop_front().unwrap();
            lies.submitted.insert(job.writes[0], wrong);
        }
        drop(lies);
        // SAFETY: what the caller promises.
        unsafe { self.inner.submit(jobs) }
    }

    fn export_bo(&self, handle: Handle) -> Result<OwnedFd, rocket_uapi::Error> {
        self.inner.export_bo(handle)
    }

    fn was_accepted(&self, handle: Handle) -> Result<bool, rocket_uapi::Error> {
        self.inner.was_accepted(handle)
    }

    fn was_killed(&self, handle: Handle, since: Instant) -> Option<bool> {
        self.inner.was_killed(handle, since)
    }

    fn reopen(&self) -> Result<Arc<dyn Backend>, rocket_uapi::Error> {
        Ok(Arc::new(Self {
            inner: self.inner.reopen()?,
            lies: Arc::clone(&self.lies),
        }))
    }

    fn settle(&self) -> Duration {
        self.inner.settle()
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
    let device = Device::from_backend(Arc::new(Lying {
        inner: Model::new(ModelOptions::default()).open(),
        lies: Arc::clone(&lies),
    }));
    // One file: its jobs are submitted in the order in which they are built.
    let pool = DevicePool::open(&device, 1).unwrap();
    let engine = Engine::with_options(pool, options).unwrap();
    engine.observed_by(Arc::new(Liar { lie, lies }))
}
