// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measures the time of equal tasks in sequence.

use std::time::{Duration, Instant};

use anyhow::Context;
use npu_matmul::{Dtype, Profile};
use npu_model::Opened;
use rknpu_regcmd::timing::{Machine, ScheduledJob, TaskWork, schedule};
use rknpu_regcmd::{Binding, Program, TaskType, tasks};
use rocket_uapi::{
    Bo, ByteLen, Deadline, Device, DevicePool, FrozenBo, Job, PAGE_BYTES, PendingJob, ProgramBo,
    witness_program,
};

use crate::experiment::matmul::{ExperimentMatmul, matmul};
use crate::experiment::{OUT, input};

/// Number of runs on an NPU. The shortest counts, since other work of the machine only
/// lengthens runs.
const REPEAT: usize = 15;

const PS_PER_NS: u128 = 1000;

/// Time limit of a job: the kernel kills jobs after half a second.
const JOB_WAIT: Duration = Duration::from_secs(10);

/// One job on each device. Its tasks multiply the same rows by different weights, all zeros, and
/// write fp16 results as binary16.
#[derive(Clone, Copy, Debug)]
pub(super) struct TimedTasks {
    pub(super) dtype: Dtype,
    /// Rows, K and columns of a task: a tile that has run on silicon.
    pub(super) tile: [usize; 3],
    /// Tasks of a job.
    pub(super) count: usize,
    pub(super) devices: usize,
}

impl TimedTasks {
    /// Runs them with operands in place: nothing is packed or read. Returns the picoseconds
    /// from the client's SUBMIT until the client continues; modelled on the software model.
    pub(super) fn run(&self, opened: &Opened) -> anyhow::Result<u64> {
        let pool = DevicePool::open(&opened.device, self.devices)
            .context("cannot open the device again")?;
        let jobs = pool.devices().iter().map(|device| self.prepare(device));
        let mut jobs = jobs.collect::<anyhow::Result<Vec<_>>>()?;
        let mut shortest = run_all(&mut jobs)?;
        if let Some(model) = &opened.model {
            let machine = model.machine();
            let end = self.predicted_ps(machine)?;
            return Ok(end.saturating_add(machine.driver.wake_ps));
        }
        for _ in 0..REPEAT {
            shortest = shortest.min(run_all(&mut jobs)?);
        }
        Ok(u64::try_from(shortest.as_nanos() * PS_PER_NS).unwrap_or(u64::MAX))
    }

    /// Picoseconds by which the first run after `pause` is longer than one right after another. The
    /// middle one of `times` pauses counts.
    pub(super) fn resume_ps(
        &self,
        opened: &Opened,
        times: usize,
        pause: impl Fn(),
    ) -> anyhow::Result<u64> {
        let mut jobs = [self.prepare(&opened.device)?];
        run_all(&mut jobs)?;
        let mut busy = Duration::MAX;
        let mut paused = Vec::new();
        for _ in 0..times {
            pause();
            paused.push(run_all(&mut jobs)?);
            busy = busy.min(run_all(&mut jobs)?);
        }
        paused.sort_unstable();
        let middle = paused.get(times / 2).copied().unwrap_or(busy);
        let longer = middle.saturating_sub(busy).as_nanos() * PS_PER_NS;
        Ok(u64::try_from(longer).unwrap_or(u64::MAX))
    }

    /// Picoseconds that `machine` predicts for the tasks and the witnesses of their jobs.
    pub(super) fn predicted_ps(&self, machine: &Machine) -> anyhow::Result<u64> {
        let witness = witness_program(self.ty()).context("there is no witness program")?;
        let (programs, _) = self.matmul().programs()?;
        let works = programs.iter().chain([&witness]).map(work_of);
        let works = works.collect::<anyhow::Result<Vec<_>>>()?;
        let jobs = (0..self.devices as u32).map(|file| ScheduledJob {
            file,
            tasks: works.clone(),
            ..ScheduledJob::default()
        });
        Ok(schedule(&jobs.collect::<Vec<_>>(), machine)?.end_ps)
    }

    /// The type of its register programs. Results of binary16 are half the bytes, so that memory
    /// does not limit tasks that measure the clock.
    pub(super) const fn ty(&self) -> TaskType {
        match self.dtype {
            Dtype::Fp16 => TaskType::Fp16ToFp16,
            Dtype::Int8 | Dtype::Int4 => self.dtype.matmul_type(),
        }
    }

    /// The tasks of a device: the same A, consecutive parts of B, and a separate C each.
    fn matmul(&self) -> ExperimentMatmul {
        let [m, k, n] = self.tile.map(|size| size as u32);
        let mut matmul = matmul(self.ty(), m, k, &vec![n; self.count]);
        matmul.options = Profile::built_in().choices.program(self.dtype);
        matmul
    }

    /// Buffers of zeros on one file of the device, and programs that use them.
    fn prepare(&self, device: &Device) -> anyhow::Result<PreparedJob> {
        let alloc = |bytes| anyhow::Ok(device.alloc(ByteLen::new(bytes)?)?);
        let guard = alloc(PAGE_BYTES)?;
        let (programs, [a, b, c]) = self.matmul().programs()?;
        let slack = Profile::built_in().choices.slack_bytes.value;
        let (a, b, c) = (alloc(a + slack)?, alloc(b + slack)?, alloc(c)?);
        let bindings = [(input(0), &a), (input(1), &b), (OUT, &c)].map(|(id, bo)| Binding {
            id,
            iova: bo.iova(),
            len: bo.len() as u32,
        });
        let linked = programs.iter().map(|program| program.link(&bindings));
        Ok(PreparedJob {
            device: device.clone(),
            programs: ProgramBo::new(device, &linked.collect::<Result<Vec<_>, _>>()?)?,
            reads: [a.freeze(), b.freeze()],
            writes: Some(c),
            _guard: guard,
        })
    }
}

/// A job of one file, ready to be submitted again and again.
struct PreparedJob {
    device: Device,
    programs: ProgramBo,
    reads: [FrozenBo; 2],
    /// `None` while the job runs, and if it did not end.
    writes: Option<Bo>,
    /// The page at address 0.
    _guard: Bo,
}

impl PreparedJob {
    fn submit(&mut self) -> anyhow::Result<PendingJob> {
        let writes = self.writes.take().context("an earlier job did not end")?;
        let [a, b] = &self.reads;
        let builder = Job::builder(&self.device).program(&self.programs);
        let job = builder.reads(a).reads(b).writes(writes).build();
        let job = job.map_err(|error| error.refusal)?;
        let mut submitted = self.device.submit(vec![job])?;
        submitted.pop().context("the driver accepted no job")
    }
}

/// Runs all jobs at the same time. Returns how long the client waited.
fn run_all(jobs: &mut [PreparedJob]) -> anyhow::Result<Duration> {
    let start = Instant::now();
    let pending = jobs.iter_mut().map(PreparedJob::submit);
    let pending = pending.collect::<anyhow::Result<Vec<_>>>()?;
    let wait = |job: PendingJob| job.wait(Deadline::after(JOB_WAIT));
    let ended = pending.into_iter().map(wait);
    let ended = ended.collect::<Result<Vec<_>, _>>()?;
    let time = start.elapsed();
    for (job, mut ended) in jobs.iter_mut().zip(ended) {
        job.writes = ended.writes.pop();
    }
    Ok(time)
}

fn work_of(program: &Program) -> anyhow::Result<TaskWork> {
    let words = program.words();
    let task = tasks(words).next().context("a program without a task")?;
    Ok(TaskWork::of(&task.regs, task.enable)?.fetching(words.len() as u64))
}

#[cfg(test)]
mod tests {
    use rocket_uapi::Selector;

    use super::*;
    use crate::measure::calibrate::machine::NOTHING;

    const TASKS: TimedTasks = TimedTasks {
        count: 3,
        devices: 2,
        ..NOTHING
    };

    fn model() -> Opened {
        npu_model::open_with(&Selector::Model, |options| options.timeline = true).unwrap()
    }

    /// Without a model the time is the elapsed time.
    #[test]
    fn devices_other_than_the_model_are_timed() {
        let mut opened = model();
        opened.model = None;
        assert!(TASKS.run(&opened).unwrap() > 0);
    }

    #[test]
    fn jobs_take_what_the_models_timeline_shows() {
        let opened = model();
        let time = TASKS.run(&opened).unwrap();
        let timeline = opened.model.unwrap().timeline().unwrap();
        assert_eq!(timeline.jobs().len(), TASKS.devices);
        assert_eq!(time, timeline.end_ps() + timeline.machine().driver.wake_ps);
    }

    #[test]
    fn a_task_that_is_not_legal_is_an_error() {
        let tasks = TimedTasks {
            tile: [4, 33, 32],
            ..TASKS
        };
        assert!(tasks.run(&model()).is_err());
    }
}
