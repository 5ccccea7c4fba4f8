// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which job runs when and on which core: the DRM scheduler as the rocket
//! driver uses it, and the worker thread that plays each core.
//!
//! * One entity (queue) per file, one scheduler per core, one job in flight
//!   per core.
//! * A file's jobs run in order. While one of them is queued or running the
//!   next goes to the same core; an idle file picks the core with the lowest
//!   score, the first of equals. The score counts the jobs given to the core
//!   and the files that used it last, so that a lone file alternates between
//!   cores 0 and 1 (drm_sched_entity_select_rq, drm_sched_pick_best; seen on
//!   Linux 7.2).
//! * A job waits for the fences of earlier jobs that write what it reads or
//!   writes. Nothing waits for readers.
//! * A core takes the job that was pushed first among those ready.

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::fence::Fence;
use super::hardware::{Interrupt, NpuCore, TaskBus, run_task};
use super::iommu::AddressSpace;
use super::job::{Job, JobRequest, Task};
use super::{DriverOptions, lock};
use crate::chip::Diagnosis;
use crate::event::{Event, EventLog, KillCause, Place};
use crate::trace::TaskTrace;

/// One file's queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct EntityId(u64);

/// The schedulers of one device.
#[derive(Debug)]
pub(super) struct Scheduler {
    shared: Arc<Shared>,
    threads: Mutex<Vec<Option<JoinHandle<()>>>>,
}

#[derive(Debug)]
struct Shared {
    options: DriverOptions,
    events: Arc<EventLog>,
    traces: Mutex<VecDeque<TaskTrace>>,
    cores: Vec<Mutex<Box<dyn NpuCore>>>,
    state: Mutex<State>,
    /// Something in `state` or a fence changed.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    entities: BTreeMap<EntityId, Entity>,
    /// Jobs queued for and running on each core.
    jobs_on: Vec<usize>,
    jobs_accepted: u64,
    entities_made: u64,
    stopping: bool,
}

#[derive(Debug, Default)]
struct Entity {
    queue: VecDeque<Job>,
    core: usize,
    /// Whether the entity counts towards its core's score: from its first
    /// job on.
    attached: bool,
    last_scheduled: Option<Arc<Fence>>,
}

/// How a task ended.
struct Outcome {
    /// Whether it raised its interrupt.
    completed: bool,
    device_time: Duration,
    diagnosis: Vec<Diagnosis>,
}

/// Traces kept when nobody takes them.
const TRACES_KEPT: usize = 65_536;

impl State {
    fn score(&self, core: usize) -> usize {
        let attached = self
            .entities
            .values()
            .filter(|entity| entity.attached && entity.core == core)
            .count();
        self.jobs_on[core] + attached
    }

    /// The core on which the next job of `entity` runs.
    fn select_core(&self, entity: &Entity) -> usize {
        let busy = !entity.queue.is_empty()
            || entity
                .last_scheduled
                .as_ref()
                .is_some_and(|f| f.is_active());
        if busy {
            return entity.core;
        }
        (0..self.jobs_on.len())
            .min_by_key(|&core| self.score(core))
            .unwrap_or_default()
    }

    /// Takes the first ready job for `core`.
    fn next_job(&mut self, core: usize) -> Option<Job> {
        let entity = self
            .entities
            .values_mut()
            .filter(|entity| entity.core == core)
            .filter(|entity| {
                let head = entity.queue.front();
                head.is_some_and(|job| job.dependencies.iter().all(|f| !f.is_active()))
            })
            .min_by_key(|entity| entity.queue.front().map(|job| job.id))?;
        let job = entity.queue.pop_front()?;
        entity.last_scheduled = Some(Arc::clone(&job.fence));
        Some(job)
    }
}

impl Scheduler {
    pub(super) fn new(
        options: &DriverOptions,
        cores: Vec<Box<dyn NpuCore>>,
        events: Arc<EventLog>,
    ) -> Self {
        let count = cores.len();
        Self {
            shared: Arc::new(Shared {
                options: options.clone(),
                events,
                traces: Mutex::default(),
                cores: cores.into_iter().map(Mutex::new).collect(),
                state: Mutex::new(State {
                    jobs_on: vec![0; count],
                    ..State::default()
                }),
                changed: Condvar::new(),
            }),
            threads: Mutex::new((0..count).map(|_| None).collect()),
        }
    }

    pub(super) fn add_entity(&self) -> EntityId {
        let mut state = lock(&self.shared.state);
        state.entities_made += 1;
        let id = EntityId(state.entities_made);
        state.entities.insert(id, Entity::default());
        id
    }

    /// Waits until all jobs of the file were handed to a core, then forgets
    /// the file. The one in flight goes on.
    pub(super) fn remove_entity(&self, id: EntityId) {
        let mut state = lock(&self.shared.state);
        while state
            .entities
            .get(&id)
            .is_some_and(|entity| !entity.queue.is_empty())
        {
            state = self.shared.wait(state);
        }
        state.entities.remove(&id);
    }

    /// Accepts a job: from here on it runs.
    ///
    /// # Errors
    /// `ENODEV` if the device has no cores, `EAGAIN` if the host gives no
    /// thread.
    pub(super) fn push(
        &self,
        id: EntityId,
        request: JobRequest,
        space: &Arc<AddressSpace>,
    ) -> Result<(), Errno> {
        let mut guard = lock(&self.shared.state);
        let state = &mut *guard;
        let core = match state.entities.get(&id) {
            Some(entity) => state.select_core(entity),
            None => return Err(Errno::NODEV),
        };
        self.start(core)?;
        let entity = state.entities.get_mut(&id).ok_or(Errno::NODEV)?;
        entity.core = core;
        entity.attached = true;

        // Dependencies are taken and the fence is attached in one step, as
        // under the kernel's reservation locks.
        let fence = Arc::new(Fence::default());
        let objects = request.reads.iter().chain(&request.writes);
        let dependencies = objects.flat_map(|object| object.active_writers()).collect();
        for object in &request.writes {
            object.add_writer(&fence);
        }
        state.jobs_accepted += 1;
        state.jobs_on[core] += 1;
        entity.queue.push_back(Job {
            id: state.jobs_accepted,
            request,
            space: Arc::clone(space),
            dependencies,
            fence,
        });
        drop(guard);
        self.shared.changed.notify_all();
        Ok(())
    }

    /// Starts the thread of `core`, once.
    fn start(&self, core: usize) -> Result<(), Errno> {
        let mut threads = lock(&self.threads);
        let slot = threads.get_mut(core).ok_or(Errno::NODEV)?;
        if slot.is_none() {
            let shared = Arc::clone(&self.shared);
            let thread = std::thread::Builder::new()
                .name(format!("npu-core{core}"))
                .spawn(move || shared.work(core))
                .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::AGAIN))?;
            *slot = Some(thread);
        }
        Ok(())
    }

    /// Takes the recorded tasks.
    pub(super) fn take_traces(&self) -> Vec<TaskTrace> {
        std::mem::take(&mut *lock(&self.shared.traces)).into()
    }
}

impl Drop for Scheduler {
    fn drop(&mut self) {
        lock(&self.shared.state).stopping = true;
        self.shared.changed.notify_all();
        for thread in lock(&self.threads).drain(..).flatten() {
            if thread.join().is_err() {
                tracing::error!("a core's thread has panicked");
            }
        }
    }
}

impl Shared {
    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed
            .wait(state)
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The life of one core.
    fn work(&self, core: usize) {
        loop {
            let mut state = lock(&self.state);
            let job = loop {
                if state.stopping {
                    return;
                }
                if let Some(job) = state.next_job(core) {
                    break job;
                }
                state = self.wait(state);
            };
            drop(state);
            // Whoever closes the file waits for its queue to become empty.
            self.changed.notify_all();
            self.finish(core, job);
        }
    }

    /// Runs a job and ends it.
    fn finish(&self, core: usize, job: Job) {
        let result = self.run(core, &job);
        let Job { fence, request, .. } = job;
        // The kernel drops the references a little after it signals the
        // fence. The model does it before, so that what a client sees after
        // a wait (addresses, offsets) does not depend on luck.
        drop(request);
        lock(&self.state).jobs_on[core] -= 1;
        fence.signal(result);
        // Whoever found the fence active while holding this lock sleeps by
        // now, and is woken.
        drop(lock(&self.state));
        self.changed.notify_all();
    }

    /// Runs the tasks of a job in order.
    fn run(&self, core: usize, job: &Job) -> Result<(), Errno> {
        let mut hardware = lock(&self.cores[core]);
        let mut device_time = Duration::ZERO;
        for (index, &task) in job.request.tasks.iter().enumerate() {
            let place = Place {
                job: job.id,
                core: core as u32,
                task: index,
            };
            // A panic of the model must not leave clients waiting for ever.
            let run = AssertUnwindSafe(|| self.run_task(place, &mut **hardware, task, &job.space));
            let Ok(outcome) = catch_unwind(run) else {
                self.kill(place, KillCause::ModelFailure, Vec::new(), &mut **hardware);
                return Err(Errno::CANCELED);
            };
            let Outcome {
                completed,
                diagnosis,
                ..
            } = outcome;
            if !completed {
                self.wait_for_the_time_limit(device_time);
                self.kill(place, KillCause::Hang, diagnosis, &mut **hardware);
                return Err(Errno::CANCELED);
            }
            device_time += outcome.device_time;
            if device_time > self.options.job_limit {
                let cause = KillCause::TooLong { device_time };
                self.kill(place, cause, diagnosis, &mut **hardware);
                return Err(Errno::CANCELED);
            }
            if !diagnosis.is_empty() {
                self.events.push(Event::Diagnosed { place, diagnosis });
            }
        }
        Ok(())
    }

    /// Runs one task.
    fn run_task(
        &self,
        place: Place,
        hardware: &mut dyn NpuCore,
        task: Task,
        space: &AddressSpace,
    ) -> Outcome {
        let bus = TaskBus::new(space, self.options.trace);
        let Interrupt {
            completed,
            dma_error,
        } = run_task(hardware, place.core, task, &bus);
        let (faults, recorder) = bus.into_parts();
        for fault in faults {
            self.events.push(Event::Fault { place, fault });
        }
        if let Some(raw_status) = dma_error {
            self.events
                .push(Event::DmaErrorInterrupt { place, raw_status });
        }
        if let Some(recorder) = recorder {
            let mut traces = lock(&self.traces);
            if traces.len() == TRACES_KEPT {
                traces.pop_front();
            }
            traces.push_back(TaskTrace {
                place,
                completed,
                accesses: recorder.finish(),
            });
        }
        Outcome {
            completed,
            device_time: hardware.device_time(),
            diagnosis: hardware.diagnosis(),
        }
    }

    /// A job that hangs keeps its core until the driver loses patience. What
    /// its earlier tasks took on the device has passed already.
    fn wait_for_the_time_limit(&self, device_time: Duration) {
        let end = Instant::now() + self.options.hang_timeout.saturating_sub(device_time);
        let mut state = lock(&self.state);
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if state.stopping || left.is_zero() {
                return;
            }
            state = self
                .changed
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    /// The driver's timeout path: the core is reset, the job is gone.
    fn kill(
        &self,
        place: Place,
        cause: KillCause,
        diagnosis: Vec<Diagnosis>,
        hardware: &mut dyn NpuCore,
    ) {
        self.events.push(Event::JobKilled {
            place,
            cause,
            diagnosis,
        });
        if catch_unwind(AssertUnwindSafe(|| hardware.reset())).is_err() {
            tracing::error!(core = place.core, "the model failed in a reset");
        }
    }
}
