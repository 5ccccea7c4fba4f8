// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which job a core takes next: the clients, and the driver's scheduler.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use super::machine::DriverCosts;
use super::schedule::Job;

/// How far a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Its client waits for another job.
    Held,
    /// Its client works, or calls SUBMIT.
    Submitted,
    /// The driver has it.
    Queued,
    Done,
}

/// A file's queue.
#[derive(Debug, Default)]
struct File {
    queue: VecDeque<usize>,
    core: usize,
    /// Its jobs that are queued or running.
    active: usize,
    /// Whether it counts towards its core's score: from its first job on.
    attached: bool,
    /// Its client submits nothing before: it submits one job after the other.
    submitting_ps: u64,
}

/// All jobs that do not run.
#[derive(Debug)]
pub(super) struct Queues<'a> {
    jobs: &'a [Job],
    costs: DriverCosts,
    state: Vec<State>,
    submit_ps: Vec<u64>,
    /// For each job, those whose client waits for it.
    waiters: Vec<Vec<usize>>,
    /// When it is queued, and which job.
    arrivals: BTreeSet<(u64, usize)>,
    files: BTreeMap<u32, File>,
    /// Order in which jobs were queued.
    position: Vec<usize>,
    /// The core of each job that was queued.
    core: Vec<usize>,
    queued: usize,
    /// Jobs given to each core that have not ended.
    jobs_on: Vec<usize>,
}

impl<'a> Queues<'a> {
    pub(super) fn new(jobs: &'a [Job], cores: usize, costs: DriverCosts) -> Self {
        let mut queues = Self {
            jobs,
            costs,
            state: jobs.iter().map(|_| State::Held).collect(),
            submit_ps: jobs.iter().map(|_| 0).collect(),
            waiters: jobs.iter().map(|_| Vec::new()).collect(),
            arrivals: BTreeSet::new(),
            files: BTreeMap::new(),
            position: jobs.iter().map(|_| 0).collect(),
            core: jobs.iter().map(|_| 0).collect(),
            queued: 0,
            jobs_on: (0..cores).map(|_| 0).collect(),
        };
        for (index, job) in jobs.iter().enumerate() {
            match job.after {
                None => queues.submit(index, 0),
                Some(other) => queues.waiters[other].push(index),
            }
        }
        queues
    }

    /// The client of `job` begins to prepare it at `now`.
    fn submit(&mut self, job: usize, now: u64) {
        let file = self.files.entry(self.jobs[job].file).or_default();
        let free = file.submitting_ps.max(now);
        let at = free.saturating_add(self.jobs[job].host_ps);
        let queued = at.saturating_add(self.costs.submit_ps);
        file.submitting_ps = queued;
        self.state[job] = State::Submitted;
        self.submit_ps[job] = at;
        self.arrivals.insert((queued, job));
    }

    /// When `job` was submitted.
    pub(super) fn submitted(&self, job: usize) -> u64 {
        self.submit_ps[job]
    }

    /// When the next job is queued.
    pub(super) fn next_arrival(&self) -> Option<u64> {
        self.arrivals.first().map(|&(at, _)| at)
    }

    /// Queues every job whose time has come.
    pub(super) fn accept(&mut self, now: u64) {
        while let Some(&(at, job)) = self.arrivals.first() {
            if at > now {
                return;
            }
            self.arrivals.pop_first();
            let core = self.choose(job);
            let file = self.files.entry(self.jobs[job].file).or_default();
            file.core = core;
            file.attached = true;
            file.active += 1;
            file.queue.push_back(job);
            self.state[job] = State::Queued;
            self.position[job] = self.queued;
            self.core[job] = core;
            self.queued += 1;
            self.jobs_on[core] += 1;
        }
    }

    /// The core for `job`.
    fn choose(&self, job: usize) -> usize {
        if let Some(core) = self.jobs[job].core {
            return core as usize;
        }
        if let Some(file) = self.files.get(&self.jobs[job].file)
            && file.active > 0
        {
            return file.core;
        }
        let score = |core: usize| {
            let files = self.files.values();
            let attached = files.filter(|file| file.attached && file.core == core);
            self.jobs_on[core] + attached.count()
        };
        (0..self.jobs_on.len())
            .min_by_key(|&core| score(core))
            .unwrap_or_default()
    }

    /// Takes the first ready job for `core`.
    pub(super) fn take(&mut self, core: usize) -> Option<usize> {
        // A job that was not there when this one came left no fence.
        let waits_for = |fence: usize, job: usize| {
            self.state[fence] == State::Queued && self.position[fence] < self.position[job]
        };
        let ready = |job: usize| {
            let fences = &self.jobs[job].fences;
            !fences.iter().any(|&fence| waits_for(fence, job))
        };
        let heads = self.files.iter();
        let (file, job) = heads
            .filter_map(|(&id, file)| Some((id, *file.queue.front()?)))
            .filter(|&(_, job)| self.core[job] == core && ready(job))
            .min_by_key(|&(_, job)| self.position[job])?;
        if let Some(file) = self.files.get_mut(&file) {
            file.queue.pop_front();
        }
        Some(job)
    }

    /// `job` has ended at `now`: its client wakes.
    pub(super) fn finished(&mut self, job: usize, now: u64) {
        self.state[job] = State::Done;
        if let Some(file) = self.files.get_mut(&self.jobs[job].file) {
            file.active = file.active.saturating_sub(1);
        }
        let on = &mut self.jobs_on[self.core[job]];
        *on = on.saturating_sub(1);
        let awake = now.saturating_add(self.costs.wake_ps);
        for waiter in core::mem::take(&mut self.waiters[job]) {
            self.submit(waiter, awake);
        }
    }
}
