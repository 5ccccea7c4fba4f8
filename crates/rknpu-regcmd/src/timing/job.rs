// SPDX-License-Identifier: MIT OR Apache-2.0
//! Jobs as clients submit them, and when they and their tasks ran.

use alloc::vec::Vec;

use super::machine::Machine;
use super::spans::{Span, between};
use super::work::TaskWork;

/// A job as the client submits it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScheduledJob {
    /// The open file that submits it: a number that the caller chooses.
    pub file: u32,
    /// The work of its tasks, in order.
    pub tasks: Vec<TaskWork>,
    /// The jobs that the client waits for before it submits this one: indices below
    /// this job's own. The client submits the jobs of a file in their order.
    pub after: Vec<usize>,
    /// How long the client then works before it submits, picoseconds.
    pub host_ps: u64,
    /// Jobs that write data which this one reads or writes: the driver holds this job
    /// back until they are done. Indices below this job's own.
    pub fences: Vec<usize>,
    /// Whether its tasks run in one kick, linked by the words of their programs.
    /// Mainline Linux does not run them so.
    pub chained: bool,
    /// How long it keeps its core after its tasks, picoseconds: the rest of the
    /// driver's time limit, if a further task hung.
    pub hold_ps: u64,
}

/// When a job ran. Times are modelled, in picoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobTime {
    /// Number of the core that ran it.
    pub core: u32,
    /// Time of the SUBMIT call.
    pub submit_ps: u64,
    /// Time at which a core gets it.
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
    /// Start of the driver's work for it.
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

    /// When each engine worked. `work` is the work with which the task was scheduled.
    #[must_use]
    pub fn spans(&self, work: &TaskWork, machine: &Machine) -> Vec<Span> {
        between(work, machine, self.start_ps, self.ends_ps)
    }
}

/// The times at which jobs and tasks run, from [`schedule`](super::schedule()).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timeline {
    /// For each job, in the order given.
    pub jobs: Vec<JobTime>,
    /// For each task, in the order of their ends.
    pub tasks: Vec<TaskTime>,
    /// Modelled end of the last job, picoseconds.
    pub end_ps: u64,
}
