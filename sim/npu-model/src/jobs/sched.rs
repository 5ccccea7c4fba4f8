// SPDX-License-Identifier: MIT OR Apache-2.0
//! The scheduler decides when and on which core a job runs, like the DRM scheduler
//! as the rocket driver uses it. Each core has a worker thread.
//!
//! * One entity (queue) per file, one scheduler per core, one job in flight per
//!   core.
//! * A file's jobs run in order. While one of them is queued or running, the next
//!   goes to the same core. An idle file takes the core with the lowest score, the
//!   first of equals. The score counts the jobs given to the core and the files
//!   that used it last, so a lone file alternates between cores 0 and 1
//!   (drm_sched_entity_select_rq, drm_sched_pick_best; seen on Linux 7.2).
//! * A job waits for the writers' fences on its inputs, and for all fences on its
//!   outputs. Jobs leave no fence on their inputs, so nothing waits for readers
//!   unless a client imports a fence.
//! * A core takes the ready job that was pushed first.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rknpu_chip::{NpuCore, Stalls};
use rknpu_regcmd::timing::Machine;
use rustix::io::Errno;

use crate::base::lock::lock;
use crate::base::options::ModelOptions;
use crate::base::timeline::{DeviceTimeline, FenceName, TimelineJob, TimelineRecorder};
use crate::jobs::job::{AcceptedJob, JobCounts, JobRequest};
use crate::jobs::orphans::{self, Orphans};
use crate::objects::fence::{Fence, Maker, Watcher, new_contexts};
use crate::objects::health::Health;
use crate::objects::iommu::AddressSpace;
use crate::objects::resv::Usage;

/// Identifies one file's queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct EntityId(u64);

/// The schedulers of one device.
#[derive(Debug)]
pub(crate) struct Scheduler {
    shared: Arc<SchedulerShared>,
    threads: Mutex<Vec<Option<JoinHandle<()>>>>,
}

#[derive(Debug)]
pub(crate) struct SchedulerShared {
    pub(crate) options: ModelOptions,
    pub(crate) health: Arc<Health>,
    /// The jobs that never start, if the options ask for some.
    pub(crate) stalls: Option<Stalls>,
    /// Record of the jobs for modelled time, if the options ask for it.
    pub(crate) timeline: Option<TimelineRecorder>,
    pub(crate) cores: Vec<Mutex<Hardware>>,
    state: Mutex<State>,
    /// Notified when `state` or a fence changes.
    changed: Condvar,
}

/// A core, and the state of its power management.
#[derive(Debug)]
pub(crate) struct Hardware {
    pub(crate) core: Box<dyn NpuCore>,
    /// The end of its last job. `None` before the first job, and after a killed
    /// one, which keeps the core awake until the next job completes.
    pub(crate) idle_since: Option<Instant>,
}

#[derive(Debug, Default)]
struct State {
    entities: BTreeMap<EntityId, Entity>,
    orphans: Vec<Orphans>,
    /// Jobs queued for and running on each core.
    jobs_on: Vec<usize>,
    jobs_accepted: u64,
    /// How those ended. `unfinished` is not counted here.
    ended: JobCounts,
    entities_made: u64,
    stopping: bool,
}

#[derive(Debug, Default)]
struct Entity {
    queue: VecDeque<AcceptedJob>,
    core: usize,
    /// Whether the entity counts towards its core's score: from its first
    /// job on.
    attached: bool,
    last_scheduled: Option<Arc<Fence>>,
    /// The fence context of its jobs, and how many there were.
    context: u64,
    jobs: u64,
}

impl Entity {
    fn unfinished(&self) -> usize {
        let last = self.last_scheduled.as_ref();
        self.queue.len() + usize::from(last.is_some_and(|fence| fence.is_active()))
    }
}

/// Fence contexts of an entity: one for the starts of jobs, one for their ends.
/// Clients see only the second.
const CONTEXTS: u64 = 2;

/// How often a file that waits for its queue checks whether its process ends.
const EXIT_POLL: Duration = Duration::from_millis(10);

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
        if entity.unfinished() > 0 {
            return entity.core;
        }
        (0..self.jobs_on.len())
            .min_by_key(|&core| self.score(core))
            .unwrap_or_default()
    }

    /// Takes the first ready job for `core`.
    fn next_job(&mut self, core: usize) -> Option<AcceptedJob> {
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
    pub(crate) fn cores(&self) -> usize {
        self.shared.cores.len()
    }

    pub(crate) fn new(
        options: &ModelOptions,
        cores: Vec<Box<dyn NpuCore>>,
        health: Arc<Health>,
    ) -> Self {
        let count = cores.len();
        let hardware = |core| {
            Mutex::new(Hardware {
                core,
                idle_since: None,
            })
        };
        Self {
            shared: Arc::new(SchedulerShared {
                options: options.clone(),
                health,
                stalls: options.damage.stall.map(Stalls::new),
                timeline: options.timeline.then(TimelineRecorder::default),
                cores: cores.into_iter().map(hardware).collect(),
                state: Mutex::new(State {
                    jobs_on: vec![0; count],
                    ..State::default()
                }),
                changed: Condvar::new(),
            }),
            threads: Mutex::new((0..count).map(|_| None).collect()),
        }
    }

    pub(crate) fn add_entity(&self) -> EntityId {
        let mut state = lock(&self.shared.state);
        state.entities_made += 1;
        let id = EntityId(state.entities_made);
        let entity = Entity {
            context: new_contexts(CONTEXTS) + 1,
            ..Entity::default()
        };
        state.entities.insert(id, entity);
        id
    }

    /// Waits until all jobs of the file were handed to a core, then removes the
    /// file. The job in flight continues. A process that is `exiting` from the
    /// start waits as long as the profile says. If a process is killed meanwhile,
    /// the wait ends at once. Then the queued jobs are dropped: their fences fail
    /// with `ESRCH` after those before them are signalled
    /// (drm_sched_entity_destroy, _kill). Returns how many jobs were unfinished
    /// when the process ended, 0 if it lives.
    pub(crate) fn remove_entity(
        &self,
        id: EntityId,
        exiting: bool,
        is_ending: &dyn Fn() -> bool,
    ) -> usize {
        let start = Instant::now();
        let exit_wait = self.shared.options.driver.exit_wait;
        let mut state = lock(&self.shared.state);
        let unfinished = |state: &State| state.entities.get(&id).map_or(0, Entity::unfinished);
        let mut died_with = if exiting { unfinished(&state) } else { 0 };
        while state
            .entities
            .get(&id)
            .is_some_and(|entity| !entity.queue.is_empty())
        {
            if exiting {
                let left = exit_wait.saturating_sub(start.elapsed());
                if left.is_zero() {
                    break;
                }
                state = self.shared.wait_timeout(state, left);
            } else {
                drop(self.shared.wait_timeout(state, EXIT_POLL));
                let killed = is_ending();
                state = lock(&self.shared.state);
                if killed {
                    died_with = unfinished(&state);
                    break;
                }
            }
        }
        if let Some(entity) = state.entities.remove(&id)
            && !entity.queue.is_empty()
        {
            state.jobs_on[entity.core] -= entity.queue.len();
            state.ended.lost += entity.queue.len() as u64;
            state.orphans.push(Orphans {
                earlier: entity.last_scheduled,
                jobs: entity.queue.into(),
            });
        }
        drop(state);
        if let Some(timeline) = &self.shared.timeline {
            timeline.closed(id.0);
        }
        self.shared.end_orphans();
        died_with
    }

    /// Numbers of accepted jobs, by how they ended.
    pub(crate) fn jobs(&self) -> JobCounts {
        let state = lock(&self.shared.state);
        let ended = state.ended;
        JobCounts {
            unfinished: state.jobs_accepted - ended.completed - ended.killed - ended.lost,
            ..ended
        }
    }

    /// Waits until no job is queued or running, at most `at_most`.
    pub(crate) fn wait_until_idle(&self, at_most: Duration) {
        let is_busy = |state: &mut State| state.jobs_on.iter().any(|&jobs| jobs > 0);
        let state = lock(&self.shared.state);
        let changed = &self.shared.changed;
        drop(changed.wait_timeout_while(state, at_most, is_busy));
    }

    /// Accepts a job and queues it.
    ///
    /// # Errors
    /// `ENODEV` if the device has no cores, `EAGAIN` if the host gives no
    /// thread.
    pub(crate) fn push(
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
        let contexts: Vec<_> = state.entities.values().map(|own| own.context).collect();
        let entity = state.entities.get_mut(&id).ok_or(Errno::NODEV)?;
        entity.core = core;
        entity.attached = true;

        // Dependencies are taken and the fence is attached in one step, as
        // under the kernel's reservation locks.
        entity.jobs += 1;
        let fence = Arc::new(Fence::new(Maker::Core(core), entity.context, entity.jobs));
        let reads = request.reads.iter().map(|object| (object, false));
        let writes = request.writes.iter().map(|object| (object, true));
        let (mut dependencies, mut named) = (Vec::new(), Vec::new());
        for (object, writes) in reads.chain(writes) {
            let usage = Usage::to_wait_for(writes);
            dependencies.extend(object.reservation.active(usage));
            named.extend(object.reservation.named(usage));
        }
        // Fences of other devices do not wake this one's cores by themselves. The
        // state is locked, so a core looks at the fence before or after all of
        // this.
        let is_own = |fence: &Fence| contexts.contains(&fence.context());
        for foreign in dependencies.iter().filter(|fence| !is_own(fence)) {
            let shared: Weak<SchedulerShared> = Arc::downgrade(&self.shared);
            foreign.watch(shared);
        }
        for object in &request.writes {
            object.reservation.add(Usage::Write, &fence);
        }
        state.jobs_accepted += 1;
        state.jobs_on[core] += 1;
        if let Some(timeline) = &self.shared.timeline {
            let record = TimelineJob {
                job: state.jobs_accepted,
                file: id.0,
                ..TimelineJob::default()
            };
            timeline.submitted(record, request.tasks.len(), fence.name(), &named);
        }
        entity.queue.push_back(AcceptedJob {
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

    /// Records that the client of a file has waited for these fences.
    pub(crate) fn waited(&self, id: EntityId, fences: &[FenceName]) {
        if let Some(timeline) = &self.shared.timeline {
            timeline.waited(id.0, fences);
        }
    }

    /// Starts the thread of `core` if it does not run yet.
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

    /// The jobs that have ended, by modelled time, if that is recorded.
    pub(crate) fn timeline(&self, machine: Machine) -> Option<DeviceTimeline> {
        let recorder = self.shared.timeline.as_ref()?;
        Some(recorder.timeline(machine))
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

impl Watcher for SchedulerShared {
    fn signalled(&self) {
        // A thread that found the fence active while it held this lock is asleep by
        // now, and is woken.
        drop(lock(&self.state));
        self.changed.notify_all();
    }
}

impl SchedulerShared {
    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed
            .wait(state)
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_timeout<'a>(
        &self,
        state: MutexGuard<'a, State>,
        timeout: Duration,
    ) -> MutexGuard<'a, State> {
        self.changed
            .wait_timeout(state, timeout)
            .unwrap_or_else(PoisonError::into_inner)
            .0
    }

    /// Ends the orphaned jobs that no longer wait for a fence.
    fn end_orphans(&self) {
        let ending = orphans::take_ending(&mut lock(&self.state).orphans);
        if !ending.is_empty() {
            orphans::end(ending);
            self.signalled();
        }
    }

    /// Runs the jobs of one core, on its thread.
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
            // A close may wait for this queue to become empty.
            self.changed.notify_all();
            let (result, core_time) = self.run(core, &job);
            let AcceptedJob { fence, request, .. } = job;
            request.note_writes(core_time);
            request.note_end();
            // The kernel drops the references a little after it signals the fence.
            // The model drops them before, so that a client sees the same addresses
            // and offsets after a wait each time.
            drop(request);
            let mut state = lock(&self.state);
            state.jobs_on[core] -= 1;
            match result {
                Ok(()) => state.ended.completed += 1,
                Err(_) => state.ended.killed += 1,
            }
            drop(state);
            fence.signal(result);
            self.signalled();
            self.end_orphans();
        }
    }

    /// Whether another core has a job, or gets one within `patience`.
    pub(crate) fn is_shared(&self, core: usize, patience: Duration) -> bool {
        let start = Instant::now();
        let mut state = lock(&self.state);
        loop {
            let mut jobs_on = state.jobs_on.iter().enumerate();
            if jobs_on.any(|(other, jobs)| other != core && *jobs > 0) {
                return true;
            }
            let left = patience.saturating_sub(start.elapsed());
            if state.stopping || left.is_zero() {
                return false;
            }
            state = self.wait_timeout(state, left);
        }
    }

    /// Holds the core of a hung job until the driver's time limit. The
    /// `device_time` of its earlier tasks counts as passed.
    pub(crate) fn wait_for_the_time_limit(&self, device_time: Duration) {
        let patience = self.options.hang_timeout.saturating_sub(device_time);
        let start = Instant::now();
        let mut state = lock(&self.state);
        loop {
            let left = patience.saturating_sub(start.elapsed());
            if state.stopping || left.is_zero() {
                return;
            }
            state = self.wait_timeout(state, left);
        }
    }
}
