// SPDX-License-Identifier: MIT OR Apache-2.0
//! A device on which a job ends only when a thread waits for it. A log has the order of events, so
//! tests do not depend on a clock.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use npu_matmul::{Activity, Done, Engine, Observer, PlanOptions};
use npu_model::{Model, ModelOptions};
use rocket_uapi::{
    Caller, ClientJob, Deadline, Device, Errno, Error, FileLayer, FileOperations, sys,
};

use crate::common::engine_on;

/// An event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    Quantised,
    Packed,
    /// This number of jobs was submitted.
    Submitted(usize),
    Ended,
    /// The results of a job were read.
    Unpacked,
}

/// Events on all files of a device, in order.
#[derive(Debug, Default)]
pub(crate) struct Log(Mutex<Vec<Entry>>);

impl Log {
    fn push(&self, entry: Entry) {
        self.0.lock().unwrap().push(entry);
    }

    /// Returns the events since the last call.
    pub(crate) fn take(&self) -> Vec<Entry> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

impl Observer for Log {
    fn done(&self, done: &Done) {
        match done.activity {
            Activity::Quantise { .. } => self.push(Entry::Quantised),
            Activity::Pack { .. } => self.push(Entry::Packed),
            Activity::Unpack { .. } => self.push(Entry::Unpacked),
            _ => {}
        }
    }
}

/// Jobs that have not ended: for each output handle, the job's number in the file.
type Running = Arc<Mutex<HashMap<u32, u64>>>;

/// An open file of a slow device.
#[derive(Debug)]
struct Slow {
    inner: Arc<dyn FileOperations>,
    log: Arc<Log>,
    running: Running,
    /// Jobs so far.
    jobs: Mutex<u64>,
}

/// A slow device in place of `inner`.
pub(crate) fn slow(inner: Arc<dyn FileOperations>, log: &Arc<Log>) -> Device {
    // SAFETY: nobody else has the file; callers give theirs away.
    unsafe { Device::new(Arc::new(Slow::new(inner, log))) }
}

/// An engine on one slow device, where a wave is one SUBMIT.
pub(crate) fn slow_engine(options: PlanOptions) -> (Engine, Arc<Log>) {
    let log = Arc::new(Log::default());
    let device = slow(Model::new(ModelOptions::default()).open(), &log);
    let engine = engine_on(&device, 1, options);
    (engine.observed_by(Arc::clone(&log) as _), log)
}

impl Slow {
    fn new(inner: Arc<dyn FileOperations>, log: &Arc<Log>) -> Self {
        Self {
            inner,
            log: Arc::clone(log),
            running: Running::default(),
            jobs: Mutex::default(),
        }
    }
}

// SAFETY: everything is the inner file's, and no PREP_BO reports an end that the inner file does
// not report.
unsafe impl FileLayer for Slow {
    type Below = dyn FileOperations;

    fn below(&self) -> &Self::Below {
        &*self.inner
    }

    unsafe fn ioctl(
        &self,
        request: u32,
        arg: &mut [u8],
        caller: &dyn Caller,
    ) -> Result<i32, Errno> {
        let prep: sys::PrepBo = sys::structure(arg);
        let job = match request {
            sys::PREP_BO => self.running.lock().unwrap().get(&prep.handle).copied(),
            _ => None,
        };
        if job.is_some() && Deadline::from_nanos(prep.timeout_ns).has_passed() {
            return Err(Errno::BUSY);
        }
        // SAFETY: the caller's promise.
        let result = unsafe { self.inner.ioctl(request, arg, caller) }?;
        if let Some(job) = job {
            // Jobs of a file run one after another.
            self.running.lock().unwrap().retain(|_, other| *other > job);
            self.log.push(Entry::Ended);
        }
        if request == sys::SUBMIT {
            let jobs = ClientJob::read_all(arg, caller).unwrap_or_default();
            let mut number = self.jobs.lock().unwrap();
            for job in &jobs {
                *number += 1;
                let writes = job.writes.iter().map(|&handle| (handle, *number));
                self.running.lock().unwrap().extend(writes);
            }
            self.log.push(Entry::Submitted(jobs.len()));
        }
        Ok(result)
    }

    fn reopen(&self) -> Result<Arc<dyn FileOperations>, Error> {
        Ok(Arc::new(Self::new(self.inner.reopen()?, &self.log)))
    }
}
