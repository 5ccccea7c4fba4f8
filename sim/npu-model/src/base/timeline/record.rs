// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records the jobs of the driver half while they run.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use rknpu_regcmd::timing::{Machine, TaskWork};

use super::jobs::{DeviceTimeline, TimelineJob};
use crate::base::lock::lock;

/// Maximum number of recorded tasks: the work of each takes some 100 bytes.
const TASKS_KEPT: usize = 65_536;

const PS_PER_NS: u128 = 1_000;

/// Context of a fence, which is its timeline, and its number there.
pub(crate) type FenceName = (u64, u64);

#[derive(Debug, Default)]
pub(crate) struct TimelineRecorder(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    submitted: BTreeMap<u64, TimelineJob>,
    ran: BTreeMap<u64, TimelineJob>,
    /// Numbers of the jobs, by their fences.
    jobs: BTreeMap<FenceName, u64>,
    /// For each file, the timelines of fences that its client has waited for, with
    /// the latest number of each.
    waited: BTreeMap<u64, BTreeMap<u64, u64>>,
    tasks: usize,
    left_out: u64,
}

impl TimelineRecorder {
    /// Records an accepted job with `tasks` tasks. `name` is its fence, `fences`
    /// are those that it has to wait for, signalled or not.
    pub(crate) fn submitted(
        &self,
        mut record: TimelineJob,
        tasks: usize,
        name: FenceName,
        fences: &[FenceName],
    ) {
        let mut guard = lock(&self.0);
        let inner = &mut *guard;
        if inner.tasks >= TASKS_KEPT {
            inner.left_out += 1;
            return;
        }
        let job = |fence: FenceName| inner.jobs.get(&fence).copied();
        record.fences = fences.iter().copied().filter_map(job).collect();
        let waited = inner.waited.get(&record.file).into_iter().flatten();
        let waited = waited.map(|(&timeline, &number)| (timeline, number));
        record.after = waited.filter_map(job).collect();
        inner.tasks = inner.tasks.saturating_add(tasks);
        inner.jobs.insert(name, record.job);
        inner.submitted.insert(record.job, record);
    }

    /// Records that a file's client has waited for these fences, signalled or not.
    pub(crate) fn waited(&self, file: u64, fences: &[FenceName]) {
        let mut inner = lock(&self.0);
        let waited = inner.waited.entry(file).or_default();
        for &(timeline, number) in fences {
            let latest = waited.entry(timeline).or_default();
            *latest = number.max(*latest);
        }
    }

    /// Forgets the waits of a closed file.
    pub(crate) fn closed(&self, file: u64) {
        lock(&self.0).waited.remove(&file);
    }

    /// Records the end of a job: the work of its completed tasks. `killed` is how
    /// long the driver waited for the next task before it killed the job.
    pub(crate) fn ended(&self, job: u64, tasks: Vec<TaskWork>, killed: Option<Duration>) {
        let mut guard = lock(&self.0);
        let inner = &mut *guard;
        let Some(mut record) = inner.submitted.remove(&job) else {
            return;
        };
        record.tasks = tasks;
        record.completed = killed.is_none();
        let hold_ps = killed.unwrap_or_default().as_nanos() * PS_PER_NS;
        record.hold_ps = u64::try_from(hold_ps).unwrap_or(u64::MAX);
        inner.ran.insert(job, record);
    }

    pub(crate) fn timeline(&self, machine: Machine) -> DeviceTimeline {
        let inner = lock(&self.0);
        let jobs = inner.ran.values().cloned().collect();
        DeviceTimeline::new(machine, jobs, inner.left_out)
    }
}
