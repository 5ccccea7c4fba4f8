// SPDX-License-Identifier: MIT OR Apache-2.0
//! Jobs and when they ran, by modelled time.

use rknpu_regcmd::timing::{
    JobTime, Machine, ScheduledJob, TaskTime, TaskWork, Timeline, schedule,
};

/// A job that ran.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TimelineJob {
    /// Number of the job, as in [`TaskPlace`](crate::base::event::TaskPlace).
    pub job: u64,
    /// Number of the file: its scheduling context, in the order of opening.
    pub file: u64,
    /// The jobs that the file's client had waited for when it submitted this
    /// one; only the latest of each file.
    pub after: Vec<u64>,
    /// Jobs that it has to wait for in the driver.
    pub fences: Vec<u64>,
    /// The work of its tasks that ran.
    pub tasks: Vec<TaskWork>,
    /// Whether it completed; else the driver killed it.
    pub completed: bool,
    /// How long the killed job kept its core after its last whole task:
    /// modelled picoseconds.
    pub hold_ps: u64,
}

/// Jobs and when they ran. All times are modelled, in picoseconds from the
/// first submit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceTimeline {
    machine: Machine,
    jobs: Vec<TimelineJob>,
    timeline: Timeline,
    left_out: u64,
}

impl DeviceTimeline {
    pub(crate) fn new(machine: Machine, jobs: Vec<TimelineJob>, left_out: u64) -> Self {
        let indices = |numbers: &[u64]| -> Vec<usize> {
            let index = |number| {
                jobs.binary_search_by_key(number, |job: &TimelineJob| job.job)
                    .ok()
            };
            numbers.iter().filter_map(index).collect()
        };
        let scheduled: Vec<ScheduledJob> = jobs
            .iter()
            .map(|job| ScheduledJob {
                file: u32::try_from(job.file).unwrap_or(u32::MAX),
                tasks: job.tasks.clone(),
                after: indices(&job.after),
                host_ps: 0,
                fences: indices(&job.fences),
                // The driver kicks each task separately.
                chained: false,
                hold_ps: job.hold_ps,
            })
            .collect();
        // A job waits only for jobs that were accepted before it.
        let timeline = schedule(&scheduled, &machine).unwrap_or_default();
        Self {
            machine,
            jobs,
            timeline,
            left_out,
        }
    }

    /// The clocks, rates and costs that the times depend on.
    #[must_use]
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// The jobs in the order of their SUBMITs here, and when each ran.
    pub fn jobs(&self) -> impl ExactSizeIterator<Item = (&TimelineJob, &JobTime)> {
        self.jobs.iter().zip(&self.timeline.jobs)
    }

    /// The tasks in the order of their ends, each with its job and its work.
    pub fn tasks(&self) -> impl Iterator<Item = (&TimelineJob, &TaskWork, &TaskTime)> {
        self.timeline.tasks.iter().filter_map(|time| {
            let job = self.jobs.get(time.job)?;
            Some((job, job.tasks.get(time.task)?, time))
        })
    }

    /// Modelled end of the last job, picoseconds.
    #[must_use]
    pub fn end_ps(&self) -> u64 {
        self.timeline.end_ps
    }

    /// Number of jobs that were not recorded, because enough tasks were
    /// recorded.
    #[must_use]
    pub fn left_out(&self) -> u64 {
        self.left_out
    }
}
