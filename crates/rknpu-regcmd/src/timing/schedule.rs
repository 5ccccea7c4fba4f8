// SPDX-License-Identifier: MIT OR Apache-2.0
//! Several jobs of several files on the cores of one chip.
//!
//! The driver's rules, as observed on Linux 7.2: the jobs of a file run in
//! order, and while one of them is queued or running the next goes to the same
//! core; an idle file takes the core with the lowest score, the first of
//! equals, where the score counts the jobs given to the core and the files
//! that used it last; a core takes the job submitted first among those whose
//! fences have signalled; its tasks run one after another.
//!
//! Memory is shared in equal parts: whenever a core starts or stops to move
//! data the rates of all change. All arithmetic is on integers, so that the
//! same jobs give the same picoseconds everywhere.

use alloc::vec::Vec;

use thiserror::Error;

use super::machine::Machine;
use super::queue::Queues;
use super::running::Running;
use super::spans::{Span, between};
use super::work::TaskWork;

/// A job as the client submits it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScheduledJob {
    /// The file descriptor that submits it, by a number of the caller's choice.
    pub file: u32,
    /// The work of its tasks, in order.
    pub tasks: Vec<TaskWork>,
    /// The jobs that the client waits for before it submits this one: indices
    /// below this job's own. It submits the jobs of a file in their order.
    pub after: Vec<usize>,
    /// How long the client then works before it submits, picoseconds.
    pub host_ps: u64,
    /// Jobs that write what this one reads or writes: the driver holds it
    /// back until they are done. Indices below this job's own.
    pub fences: Vec<usize>,
    /// Whether its tasks run in one kick, linked by the words of their
    /// programs. Not so in mainline Linux.
    pub chained: bool,
    /// How long it keeps its core after its tasks, picoseconds: the rest of
    /// the driver's time limit, if the task after them hung.
    pub hold_ps: u64,
}

/// What is wrong with a list of jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ScheduleError {
    /// A job waits for itself or for one that comes later.
    #[error("job {job} waits for job {waits_for}, which does not come before it")]
    Order {
        /// Index of the job.
        job: usize,
        /// Index of the job that it waits for.
        waits_for: usize,
    },
}

/// When a job ran. Times are modelled, in picoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobTime {
    /// Number of the core that ran it.
    pub core: u32,
    /// Time of the SUBMIT call.
    pub submit_ps: u64,
    /// Time at which the hardware gets it.
    pub start_ps: u64,
    /// Time of its completion.
    pub end_ps: u64,
}

/// When a task ran. Times are modelled, in picoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskTime {
    /// Index of its job.
    pub job: usize,
    /// Index of the task in the job.
    pub task: usize,
    /// Number of the core that ran it.
    pub core: u32,
    /// Start of what the driver does for it.
    pub kick_ps: u64,
    /// Start of the fetch.
    pub start_ps: u64,
    /// Ends of fetch, fill, flow and drain.
    pub(super) ends_ps: [u64; 4],
}

impl TaskTime {
    /// Time of its completion.
    #[must_use]
    pub fn end_ps(&self) -> u64 {
        self.ends_ps[3]
    }

    /// When each engine worked. `work` is what the task was scheduled with.
    #[must_use]
    pub fn spans(&self, work: &TaskWork, machine: &Machine) -> Vec<Span> {
        between(work, machine, self.start_ps, self.ends_ps)
    }
}

/// When jobs and tasks run, by [`schedule`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timeline {
    /// For each job, in the order given.
    pub jobs: Vec<JobTime>,
    /// For each task, in the order of their ends.
    pub tasks: Vec<TaskTime>,
    /// Modelled end of the last job, picoseconds.
    pub end_ps: u64,
}

/// Runs `jobs` on the machine. Of things that happen at the same time those of
/// the lower file, and the lower core, come first; else the order of the list
/// is that of the jobs of a file, and means nothing between files.
///
/// # Errors
/// [`ScheduleError`] where a job waits for one that does not come before it.
pub fn schedule(jobs: &[ScheduledJob], machine: &Machine) -> Result<Timeline, ScheduleError> {
    check(jobs)?;
    let mut simulation = Simulation::new(jobs, machine);
    while simulation.step() {}
    Ok(simulation.timeline)
}

fn check(jobs: &[ScheduledJob]) -> Result<(), ScheduleError> {
    for (job, ScheduledJob { after, fences, .. }) in jobs.iter().enumerate() {
        let mut waits = after.iter().chain(fences).copied();
        if let Some(waits_for) = waits.find(|&other| other >= job) {
            return Err(ScheduleError::Order { job, waits_for });
        }
    }
    Ok(())
}

/// The state between two events.
struct Simulation<'a> {
    jobs: &'a [ScheduledJob],
    machine: &'a Machine,
    now: u64,
    queues: Queues<'a>,
    cores: Vec<Option<Running>>,
    timeline: Timeline,
}

impl<'a> Simulation<'a> {
    fn new(jobs: &'a [ScheduledJob], machine: &'a Machine) -> Self {
        let cores = machine.chip.cores.max(1) as usize;
        Self {
            jobs,
            machine,
            now: 0,
            queues: Queues::new(jobs, cores, machine.driver),
            cores: (0..cores).map(|_| None).collect(),
            timeline: Timeline {
                jobs: jobs.iter().map(|_| JobTime::default()).collect(),
                ..Timeline::default()
            },
        }
    }

    /// Goes on to the next event. False when there is none.
    fn step(&mut self) -> bool {
        self.queues.accept(self.now);
        for core in 0..self.cores.len() {
            self.start(core);
        }
        let rate = self.rate();
        let events = self.cores.iter().flatten().map(|run| run.left_ps(rate));
        let arrival = self
            .queues
            .next_arrival()
            .map(|at| at.saturating_sub(self.now));
        let Some(wait) = events.chain(arrival).min() else {
            return false;
        };
        self.now = self.now.saturating_add(wait);
        for core in 0..self.cores.len() {
            self.advance(core, wait, rate);
        }
        true
    }

    /// Bytes per second of each core that moves data.
    fn rate(&self) -> u64 {
        let moving = self.cores.iter().flatten().filter(|run| run.moves());
        self.machine.rate(moving.count() as u64)
    }

    fn start(&mut self, core: usize) {
        if self.cores[core].is_some() {
            return;
        }
        let Some(job) = self.queues.take(core) else {
            return;
        };
        let time = &mut self.timeline.jobs[job];
        time.core = core as u32;
        time.submit_ps = self.queues.submitted(job);
        time.start_ps = self.now;
        let run = Running::new(job, &self.jobs[job], self.machine);
        self.cores[core] = Some(run);
    }

    fn advance(&mut self, core: usize, wait: u64, rate: u64) {
        let Some(run) = &mut self.cores[core] else {
            return;
        };
        run.pass(wait, rate);
        let job = &self.jobs[run.job];
        while run.phase_is_over() {
            if let Some(mut done) = run.next_phase(self.now, job, self.machine) {
                done.core = core as u32;
                self.timeline.tasks.push(done);
            }
            if run.is_over() {
                let job = run.job;
                self.timeline.jobs[job].end_ps = self.now;
                self.timeline.end_ps = self.timeline.end_ps.max(self.now);
                self.queues.finished(job, self.now);
                self.cores[core] = None;
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests;
