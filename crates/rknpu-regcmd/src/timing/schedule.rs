// SPDX-License-Identifier: MIT OR Apache-2.0
//! Several jobs of several files on the cores of one chip.
//!
//! The driver's rules, as observed on Linux 7.2:
//! - The jobs of a file run in order. While one of them is queued or running, the
//!   next goes to the same core.
//! - An idle file takes the core with the lowest score, the first of equals. The
//!   score counts the jobs given to the core and the files that used it last.
//! - A core takes the job submitted first among those whose fences have signalled.
//!   Its tasks run one after another.
//!
//! Cores share the memory bandwidth in equal parts: when a core starts or stops
//! moving data, the rates of all change. All arithmetic is on integers, so the same
//! jobs give the same picoseconds everywhere.

use alloc::vec;
use alloc::vec::Vec;

use thiserror::Error;

use super::job::{JobTime, ScheduledJob, Timeline};
use super::machine::Machine;
use super::queue::Queues;
use super::running::Running;

/// A job waits for itself or for one that comes later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("job {job} waits for job {waits_for}, which does not come before it")]
pub struct ScheduleError {
    /// Index of the job.
    pub job: usize,
    /// Index of the job that it waits for.
    pub waits_for: usize,
}

/// Computes when `jobs` run on the machine. The order of the list is that of the jobs
/// of each file; between files it has no effect. Of events at the same time, those of
/// the lower file, and the lower core, come first.
///
/// # Errors
/// [`ScheduleError`] where a job waits for one that does not come before it.
pub fn schedule(jobs: &[ScheduledJob], machine: &Machine) -> Result<Timeline, ScheduleError> {
    for (job, ScheduledJob { after, fences, .. }) in jobs.iter().enumerate() {
        let mut waits = after.iter().chain(fences).copied();
        if let Some(waits_for) = waits.find(|&other| other >= job) {
            return Err(ScheduleError { job, waits_for });
        }
    }
    let cores = machine.chip.cores.max(1) as usize;
    let mut simulation = Simulation {
        jobs,
        machine,
        now: 0,
        queues: Queues::new(jobs, cores, machine.driver),
        cores: vec![None; cores],
        timeline: Timeline {
            jobs: vec![JobTime::default(); jobs.len()],
            ..Timeline::default()
        },
    };
    while simulation.step() {}
    Ok(simulation.timeline)
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

impl Simulation<'_> {
    /// Goes on to the next event. Returns false if there is none.
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
        let run = Running::new(job, core as u32, &self.jobs[job], self.machine);
        self.cores[core] = Some(run);
    }

    fn advance(&mut self, core: usize, wait: u64, rate: u64) {
        let Some(run) = &mut self.cores[core] else {
            return;
        };
        run.pass(wait, rate);
        let job = run.time.job;
        while run.phase_is_over() {
            let done = run.next_phase(self.now, &self.jobs[job], self.machine);
            self.timeline.tasks.extend(done);
            if run.is_over() {
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
