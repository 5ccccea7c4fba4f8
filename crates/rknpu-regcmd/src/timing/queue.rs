// SPDX-License-Identifier: MIT OR Apache-2.0
//! The clients and the driver's scheduler: which job a core takes next.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec;
use alloc::vec::Vec;

use super::job::ScheduledJob;
use super::machine::DriverCosts;

#[derive(Clone, Debug, Default)]
struct State {
    /// Number of jobs that its client still waits for.
    waits_for: usize,
    /// When the last of those jobs to end woke the client.
    awake_ps: u64,
    /// The jobs whose client waits for it.
    waiters: Vec<usize>,
    submit_ps: u64,
    /// Its place in the order in which jobs were queued; `core` is its core.
    position: usize,
    core: usize,
    done: bool,
}

/// An open file and its jobs.
#[derive(Debug, Default)]
struct File {
    /// Jobs that are not submitted yet, in order.
    held: VecDeque<usize>,
    queue: VecDeque<usize>,
    core: usize,
    /// Its jobs that are queued or running.
    active: usize,
    /// Whether it counts towards its core's score: from its first job on.
    attached: bool,
    /// The client submits nothing before this time: it submits one job after the
    /// other.
    submitting_ps: u64,
}

/// All jobs, and the order in which cores take them.
#[derive(Debug)]
pub(super) struct Queues<'a> {
    jobs: &'a [ScheduledJob],
    costs: DriverCosts,
    states: Vec<State>,
    /// Jobs that arrive later: time, file and index. At the same time the lower file
    /// comes first, so the order of the list between files has no effect.
    arrivals: BTreeSet<(u64, u32, usize)>,
    files: BTreeMap<u32, File>,
    queued: usize,
    /// Jobs given to each core that have not ended.
    jobs_on: Vec<usize>,
}

impl<'a> Queues<'a> {
    pub(super) fn new(jobs: &'a [ScheduledJob], cores: usize, costs: DriverCosts) -> Self {
        let mut queues = Self {
            jobs,
            costs,
            states: vec![State::default(); jobs.len()],
            arrivals: BTreeSet::new(),
            files: BTreeMap::new(),
            queued: 0,
            jobs_on: vec![0; cores],
        };
        for (index, job) in jobs.iter().enumerate() {
            for &other in &job.after {
                queues.states[other].waiters.push(index);
            }
            queues.states[index].waits_for = job.after.len();
            let file = queues.files.entry(job.file).or_default();
            file.held.push_back(index);
        }
        let files: Vec<u32> = queues.files.keys().copied().collect();
        for file in files {
            queues.submit_held(file);
        }
        queues
    }

    /// Submits the jobs of file `id` whose client waits for nothing any more, in order:
    /// no job overtakes another one of the same file.
    fn submit_held(&mut self, id: u32) {
        while let Some(file) = self.files.get_mut(&id)
            && let Some(&job) = file.held.front()
            && self.states[job].waits_for == 0
        {
            file.held.pop_front();
            let state = &mut self.states[job];
            let free = file.submitting_ps.max(state.awake_ps);
            state.submit_ps = free.saturating_add(self.jobs[job].host_ps);
            file.submitting_ps = state.submit_ps.saturating_add(self.costs.submit_ps);
            self.arrivals.insert((file.submitting_ps, id, job));
        }
    }

    pub(super) fn submitted(&self, job: usize) -> u64 {
        self.states[job].submit_ps
    }

    /// When the next job is queued.
    pub(super) fn next_arrival(&self) -> Option<u64> {
        self.arrivals.first().map(|&(at, _, _)| at)
    }

    /// Queues every job whose time has come.
    pub(super) fn accept(&mut self, now: u64) {
        while let Some(&(at, _, job)) = self.arrivals.first()
            && at <= now
        {
            self.arrivals.pop_first();
            let core = self.choose(job);
            let file = self.files.entry(self.jobs[job].file).or_default();
            file.core = core;
            file.attached = true;
            file.active += 1;
            file.queue.push_back(job);
            self.states[job].position = self.queued;
            self.states[job].core = core;
            self.queued += 1;
            self.jobs_on[core] += 1;
        }
    }

    fn choose(&self, job: usize) -> usize {
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
        let fences = |job: usize| self.jobs[job].fences.iter();
        let ready = |job: usize| fences(job).all(|&other| self.states[other].done);
        let heads = self.files.iter();
        let (file, job) = heads
            .filter_map(|(&id, file)| Some((id, *file.queue.front()?)))
            .filter(|&(_, job)| self.states[job].core == core && ready(job))
            .min_by_key(|&(_, job)| self.states[job].position)?;
        if let Some(file) = self.files.get_mut(&file) {
            file.queue.pop_front();
        }
        Some(job)
    }

    /// Ends `job` at `now`, and wakes the clients that wait for it.
    pub(super) fn finished(&mut self, job: usize, now: u64) {
        self.states[job].done = true;
        if let Some(file) = self.files.get_mut(&self.jobs[job].file) {
            file.active = file.active.saturating_sub(1);
        }
        let on = &mut self.jobs_on[self.states[job].core];
        *on = on.saturating_sub(1);
        let awake = now.saturating_add(self.costs.wake_ps);
        for waiter in core::mem::take(&mut self.states[job].waiters) {
            let state = &mut self.states[waiter];
            state.waits_for = state.waits_for.saturating_sub(1);
            state.awake_ps = state.awake_ps.max(awake);
            self.submit_held(self.jobs[waiter].file);
        }
    }
}
