// SPDX-License-Identifier: MIT OR Apache-2.0
//! The modelled time of a kick, and its limit. [`rknpu_regcmd::timing`]
//! predicts the time of a task.

use std::time::Duration;

use rknpu_regcmd::timing::{Machine, TaskWork};
use rknpu_regcmd::{EnableMask, RegisterFile};

use super::trap::Stop;

const PS_PER_NS: u64 = 1_000;

/// Modelled device time of the tasks of one kick, and its limit.
#[derive(Clone, Debug)]
pub(crate) struct DeviceClock {
    machine: Machine,
    budget: Duration,
    ps: u64,
    tasks: Vec<TaskWork>,
}

impl DeviceClock {
    pub(crate) fn new(machine: Machine, budget: Duration) -> Self {
        Self {
            machine,
            budget,
            ps: 0,
            tasks: Vec::new(),
        }
    }

    /// Begins a task: adds the time to fetch its `words` command words.
    ///
    /// # Errors
    /// [`Stop::TooLong`] if the time exceeds the budget.
    pub(crate) fn fetch(&mut self, words: usize) -> Result<(), Stop> {
        self.tasks.push(TaskWork::default());
        self.pass(&TaskWork::default().fetching(words as u64))
    }

    /// Adds the time of the work in `regs` for the blocks in `enable`.
    ///
    /// # Errors
    /// [`Stop::Hang`] if a block waits for one that does not run;
    /// [`Stop::TooLong`] if the time exceeds the budget.
    pub(crate) fn spend(&mut self, regs: &RegisterFile, enable: EnableMask) -> Result<(), Stop> {
        let work = TaskWork::of(regs, enable).map_err(|_| Stop::Hang)?;
        self.pass(&work)
    }

    fn pass(&mut self, work: &TaskWork) -> Result<(), Stop> {
        if let Some(task) = self.tasks.last_mut() {
            task.add(work);
        }
        self.ps = self.ps.saturating_add(work.duration_ps(&self.machine));
        if self.elapsed() > self.budget {
            return Err(Stop::TooLong);
        }
        Ok(())
    }

    pub(crate) fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.ps / PS_PER_NS)
    }

    /// The work of each task of the kick.
    pub(crate) fn into_tasks(self) -> Vec<TaskWork> {
        self.tasks
    }
}
