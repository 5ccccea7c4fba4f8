// SPDX-License-Identifier: MIT OR Apache-2.0
//! A job on a core: its phase, and what is left of it.

use super::job::{ScheduledJob, TaskTime};
use super::machine::{Machine, PS_PER_SECOND};
use super::spans::Phase;

/// The progress of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// The driver attaches the address space.
    Attach,
    /// The driver kicks the task.
    Kick,
    Phase(usize),
    /// The core waits for a task that hangs.
    Hold,
    Over,
}

/// A job that runs on a core.
#[derive(Clone, Debug)]
pub(super) struct Running {
    at: At,
    /// Times of the current task so far.
    pub(super) time: TaskTime,
    phases: [Phase; 4],
    /// Data left to move in this phase, in bytes times picoseconds per second.
    data: u128,
    /// Time left to compute or to wait in this phase.
    fixed_ps: u64,
}

impl Running {
    /// Job number `index` when the driver starts it on `core`.
    pub(super) fn new(index: usize, core: u32, job: &ScheduledJob, machine: &Machine) -> Self {
        let first = job.tasks.first().copied().unwrap_or_default();
        Self {
            at: At::Attach,
            time: TaskTime {
                job: index,
                task: 0,
                core,
                kick_ps: 0,
                start_ps: 0,
                ends_ps: [0; 4],
            },
            phases: first.phases(machine),
            data: 0,
            fixed_ps: machine.driver.attach_ps,
        }
    }

    pub(super) fn moves(&self) -> bool {
        self.data > 0
    }

    /// Time to the end of the phase if data move at `rate` bytes per second.
    pub(super) fn left_ps(&self, rate: u64) -> u64 {
        let moving = u64::try_from(self.data.div_ceil(rate.max(1).into())).unwrap_or(u64::MAX);
        moving.max(self.fixed_ps)
    }

    /// Lets `ps` picoseconds pass. `u64::MAX` ends the phase.
    pub(super) fn pass(&mut self, ps: u64, rate: u64) {
        if ps == u64::MAX {
            (self.data, self.fixed_ps) = (0, 0);
            return;
        }
        let moved = u128::from(ps) * u128::from(rate.max(1));
        self.data = self.data.saturating_sub(moved);
        self.fixed_ps = self.fixed_ps.saturating_sub(ps);
    }

    pub(super) fn phase_is_over(&self) -> bool {
        self.data == 0 && self.fixed_ps == 0
    }

    pub(super) fn is_over(&self) -> bool {
        self.at == At::Over
    }

    /// Goes on to the next phase. Returns the task that has ended, if one has.
    pub(super) fn next_phase(
        &mut self,
        now: u64,
        job: &ScheduledJob,
        machine: &Machine,
    ) -> Option<TaskTime> {
        let mut done = None;
        let tasks = &job.tasks;
        self.at = match self.at {
            At::Attach if tasks.is_empty() => At::Hold,
            At::Attach => At::Kick,
            At::Kick => {
                self.time.start_ps = now;
                At::Phase(0)
            }
            At::Phase(index) => {
                self.time.ends_ps[index] = now;
                if index + 1 < self.phases.len() {
                    At::Phase(index + 1)
                } else {
                    done = Some(self.time);
                    self.time.task += 1;
                    match tasks.get(self.time.task) {
                        Some(work) => {
                            self.phases = work.phases(machine);
                            At::Kick
                        }
                        None => At::Hold,
                    }
                }
            }
            At::Hold | At::Over => At::Over,
        };
        let (bytes, fixed_ps) = match self.at {
            At::Kick => {
                self.time.kick_ps = now;
                let linked = job.chained && self.time.task > 0;
                (0, if linked { 0 } else { machine.driver.kick_ps })
            }
            At::Phase(index) => (self.phases[index].bytes, self.phases[index].compute_ps),
            At::Hold => (0, job.hold_ps),
            At::Attach | At::Over => (0, 0),
        };
        self.data = u128::from(bytes) * PS_PER_SECOND;
        self.fixed_ps = fixed_ps;
        done
    }
}
