// SPDX-License-Identifier: MIT OR Apache-2.0
//! A job that has not ended, so its buffers are busy.
//!
//! It is harmless, one matmul, so rows about busy buffers can run on any board. Where
//! jobs can be held ([`Hold`]), it waits until the row releases it. On other kernels
//! it repeats the matmul for longer than a row needs to look; the number of
//! repetitions is measured first.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rknpu_regcmd::{Binding, BufferId, ChipProfile, MatmulTask, TaskType};
use rocket_uapi::{
    Bo, ByteLen, Deadline, Device, FenceStatus, FrozenBo, Job, JobBuilder, PendingJob, ProgramBo,
    SyncFile,
};

use crate::check::{Must, NotPassed, RowOutcome, ensure, expect};
use crate::hold::Hold;

/// How long a job runs that cannot be held: much longer than a row needs to
/// look, and well below the 500 ms after which the driver kills it.
const DURATION: Duration = Duration::from_millis(200);

/// Number of measurements of the last sample. The fastest counts: a sample that had
/// to wait for a processor would make the job too short.
const SAMPLES: usize = 4;

/// Tasks of the first job that is timed; each next one has twice as many.
const SAMPLE_TASKS: usize = 4;

/// Minimum duration of a timed job, so that the cost of submitting it hardly counts.
const SAMPLE: Duration = Duration::from_millis(20);

/// Maximum number of tasks of a job here: no device needs more.
const MAX_TASKS: usize = 8192;

/// How long to wait for any of these jobs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The end of a wait that begins now, after [`PATIENCE`].
pub(crate) fn patience() -> Deadline {
    Deadline::after(PATIENCE)
}

/// A wait that ends before a job of [`Busy`] does.
pub(crate) const SHORT: Duration = Duration::from_millis(20);

/// Fails if the jobs of a fence have ended: else earlier checks prove nothing.
pub(crate) fn active(what: &str, fence: &SyncFile) -> RowOutcome {
    expect(what, fence.status()?, FenceStatus::Active)
}

/// A job that is ready to start.
pub(crate) struct Ready {
    matmul: RepeatableMatmul,
    output: Bo,
    tasks: usize,
    hold: Option<Hold>,
}

/// A job on the device that has not ended.
#[derive(Debug)]
pub(crate) struct Busy {
    // Dropped first, so that the job ends before it is waited for.
    hold: Option<Hold>,
    pending: PendingJob,
    /// Handle of the buffer that it writes.
    pub(crate) output: u32,
    /// Handle of a buffer that it only reads.
    pub(crate) input: u32,
}

/// Submits a job of one matmul, to which `add` may add something.
pub(crate) fn quick(
    device: &Device,
    add: impl FnOnce(JobBuilder) -> JobBuilder,
) -> Result<PendingJob, NotPassed> {
    let (matmul, output) = RepeatableMatmul::new(device)?;
    matmul.submit(output, 1, add)
}

/// A matmul that can be computed repeatedly.
pub(crate) struct RepeatableMatmul {
    device: Device,
    programs: ProgramBo,
    input: FrozenBo,
    weights: FrozenBo,
}

impl Ready {
    /// Does everything that takes time, so that several jobs can be started right
    /// after each other.
    pub(crate) fn new(device: &Device) -> Result<Self, NotPassed> {
        let (matmul, output) = RepeatableMatmul::new(device)?;
        let hold = Hold::new(device)?;
        let (tasks, output) = match &hold {
            Some(_) => (1, output),
            None => matmul.tasks_for(DURATION, output)?,
        };
        Ok(Self {
            matmul,
            output,
            tasks,
            hold,
        })
    }

    /// Starts the job, to which `add` may add something.
    pub(crate) fn start(
        self,
        add: impl FnOnce(JobBuilder) -> JobBuilder,
    ) -> Result<Busy, NotPassed> {
        let (output, input) = (self.output.handle(), self.matmul.input.handle());
        let hold = self.hold;
        let gated = |builder: JobBuilder| match &hold {
            Some(hold) => builder.reads_shared(&hold.gate),
            None => builder,
        };
        let both = |builder| gated(add(builder));
        let pending = self.matmul.submit(self.output, self.tasks, both)?;
        Ok(Busy {
            hold,
            pending,
            output: output.into(),
            input: input.into(),
        })
    }
}

impl Busy {
    pub(crate) fn start(device: &Device) -> Result<Self, NotPassed> {
        Ready::new(device)?.start(|builder| builder)
    }

    /// Whether the job runs until it is released, and not just for a while.
    pub(crate) fn is_held(&self) -> bool {
        self.hold.is_some()
    }

    /// Releases the job, which then runs to its end.
    pub(crate) fn let_go(&self) -> Result<(), NotPassed> {
        self.hold.as_ref().map_or(Ok(()), Hold::release)
    }

    /// Releases the job while `call` waits for its end. Fails if `call` does not
    /// wait.
    pub(crate) fn let_go_during<T>(&self, call: impl FnOnce() -> T) -> Result<T, NotPassed> {
        let released = AtomicBool::new(!self.is_held());
        let (value, waited, let_go) = thread::scope(|scope| {
            let releaser = scope.spawn(|| {
                // Gives a call that does not wait the time to return.
                thread::sleep(SHORT);
                released.store(true, Ordering::SeqCst);
                self.let_go()
            });
            let value = call();
            let waited = released.load(Ordering::SeqCst);
            (value, waited, releaser.join())
        });
        let_go.map_err(|_| NotPassed::Fail("a thread panicked".to_owned()))??;
        ensure("the call waits for the job's end", waited)?;
        Ok(value)
    }

    pub(crate) fn fence(&self) -> Result<SyncFile, NotPassed> {
        Ok(self.pending.fence()?)
    }

    /// Waits for its end.
    pub(crate) fn finish(self) -> Result<(), NotPassed> {
        self.let_go()?;
        self.pending.wait(patience())?;
        Ok(())
    }
}

impl RepeatableMatmul {
    /// The matmul, and its output.
    pub(crate) fn new(device: &Device) -> Result<(Self, Bo), NotPassed> {
        let [a, b, c] = [0, 1, 2].map(BufferId);
        let task = MatmulTask {
            ty: TaskType::Int8ToInt32,
            m: 64,
            k: 512,
            n: 256,
            a: a.at(0),
            b: b.at(0),
            c: c.at(0),
        };
        let alloc = |bytes: u64| -> Result<Bo, NotPassed> {
            let len = ByteLen::new(bytes as usize).must("a buffer's length")?;
            Ok(device.alloc(len)?)
        };
        let (input, weights, output) = (
            alloc(task.a_bytes())?,
            alloc(task.b_bytes())?,
            alloc(task.c_bytes())?,
        );
        let bind = |id, bo: &Bo| Binding {
            id,
            iova: bo.iova(),
            len: bo.len() as u32,
        };
        let program = task
            .program(&ChipProfile::RK3588)
            .must("a register program")?
            .link(&[bind(a, &input), bind(b, &weights), bind(c, &output)])
            .must("linking")?;
        let matmul = Self {
            device: device.clone(),
            programs: ProgramBo::new(device, &[program])?,
            input: input.freeze(),
            weights: weights.freeze(),
        };
        Ok((matmul, output))
    }

    fn submit(
        &self,
        output: Bo,
        tasks: usize,
        add: impl FnOnce(JobBuilder) -> JobBuilder,
    ) -> Result<PendingJob, NotPassed> {
        let builder = Job::builder(&self.device)
            .reads(&self.input)
            .reads(&self.weights)
            .writes(output);
        let builder = add(builder);
        let job = (0..tasks)
            .fold(builder, |builder, _| builder.task(&self.programs, 0))
            .build()?;
        let pending = self.device.submit(vec![job])?.pop();
        pending.ok_or_else(|| NotPassed::Fail("SUBMIT of a job returned no job".to_owned()))
    }

    /// Number of tasks that take at least `duration`.
    fn tasks_for(&self, duration: Duration, mut output: Bo) -> Result<(usize, Bo), NotPassed> {
        let mut count = SAMPLE_TASKS;
        let mut samples = 0;
        let mut fastest = Duration::MAX;
        while samples < SAMPLES {
            let start = Instant::now();
            output = self.run(output, count, patience())?;
            fastest = fastest.min(start.elapsed());
            if fastest >= SAMPLE || count >= MAX_TASKS {
                samples += 1;
            } else {
                (count, samples, fastest) = (count * 2, 0, Duration::MAX);
            }
        }
        let each = fastest.max(Duration::from_nanos(1)).as_secs_f64() / count as f64;
        let tasks = (duration.as_secs_f64() / each).ceil() as usize;
        Ok((tasks.clamp(1, MAX_TASKS), output))
    }

    /// Runs the matmul `tasks` times in one job, and waits.
    pub(crate) fn run(&self, output: Bo, tasks: usize, until: Deadline) -> Result<Bo, NotPassed> {
        let pending = self.submit(output, tasks, |builder| builder)?;
        let output = pending.wait(until)?.writes.pop();
        output
            .ok_or_else(|| NotPassed::Fail("a job that ended did not return its output".to_owned()))
    }
}
