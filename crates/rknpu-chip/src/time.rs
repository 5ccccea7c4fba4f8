// SPDX-License-Identifier: MIT OR Apache-2.0
//! The modelled time of a kick, and the bound on it. How long a task takes is
//! the timing model's business: [`rknpu_regcmd::timing`].

use std::time::Duration;

use rknpu_regcmd::timing::{Machine, TaskWork};
use rknpu_regcmd::{EnableMask, RegisterFile};

use super::trap::Stop;

/// Picoseconds of a nanosecond.
const PS_PER_NS: u64 = 1_000;

/// Modelled device time of the tasks of one kick, and the bound on it.
#[derive(Clone, Debug)]
pub(crate) struct Clock {
    machine: Machine,
    budget: Duration,
    ps: u64,
    tasks: Vec<TaskWork>,
}

impl Clock {
    pub(crate) fn new(machine: Machine, budget: Duration) -> Self {
        Self {
            machine,
            budget,
            ps: 0,
            tasks: Vec::new(),
        }
    }

    /// Begins a task: lets the time for the fetch of its `words` command words
    /// pass.
    ///
    /// # Errors
    /// [`Stop::TooLong`] when the budget is passed.
    pub(crate) fn fetch(&mut self, words: usize) -> Result<(), Stop> {
        self.tasks.push(TaskWork::default());
        self.pass(&TaskWork::default().fetching(words as u64))
    }

    /// Lets the time pass for what `regs` ask of the blocks in `enable`.
    ///
    /// # Errors
    /// [`Stop::TooLong`] when the budget is passed.
    pub(crate) fn spend(&mut self, regs: &RegisterFile, enable: EnableMask) -> Result<(), Stop> {
        // Blocks that wait for one that does not run.
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

    /// What each task of the kick had to do.
    pub(crate) fn into_tasks(self) -> Vec<TaskWork> {
        self.tasks
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rknpu_regcmd::regs::{cna, core, dpu};

    /// A convolution of as many pixels as registers can count.
    fn endless() -> RegisterFile {
        let mut regs = RegisterFile::new();
        regs.set(cna::DataSize1::OFFSET, 0xffff);
        regs.set(cna::DataSize3::OFFSET, 0x3f_ffff);
        regs.set(cna::WeightSize2::OFFSET, 0x1f1f_0010);
        regs.set(core::MiscCfg::OFFSET, 0);
        regs.set(dpu::WdmaSize0::OFFSET, 0x1fff);
        regs
    }

    #[test]
    fn the_limit_stops_a_task_and_is_told() {
        let mut clock = Clock::new(Machine::RK3588, Duration::from_millis(500));
        assert!(clock.fetch(112).is_ok());
        assert!(clock.elapsed() < Duration::from_micros(1));
        let blocks = EnableMask::CNA | EnableMask::CORE | EnableMask::DPU;
        assert_eq!(clock.spend(&endless(), blocks), Err(Stop::TooLong));
        assert!(clock.elapsed() > Duration::from_secs(1));
        let tasks = clock.into_tasks();
        assert_eq!(tasks.len(), 1);
        assert_eq!(tasks[0].command_bytes, 112 * 8);
    }
}
