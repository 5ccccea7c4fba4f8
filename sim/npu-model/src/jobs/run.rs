// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs one job on a core's thread: its tasks in order, the driver's limits,
//! and the events.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use rknpu_regcmd::timing::TaskWork;
use rknpu_regcmd::{ATOM_BYTES, Program, TaskRegisters, Word, tasks};
use rocket_uapi::sys;
use rustix::io::Errno;

use crate::base::event::{Event, KillCause, TaskPlace};
use crate::base::job_fault::{FaultEffect, FaultyTask, JobSoFar, result};
use crate::base::lock::lock;
use crate::jobs::hardware::{AddressSpaceBus, Kicked, kick};
use crate::jobs::job::AcceptedJob;
use crate::jobs::sched::{Hardware, SchedulerShared};
use crate::objects::iommu::AddressSpace;
use rknpu_chip::{Diagnosis, KickOutcome, NpuCore};

/// Results of the tasks of a job that have run.
#[derive(Default)]
struct Done {
    device_time: Duration,
    tasks: Vec<TaskWork>,
    /// How long the core had no job before this one.
    idle: Duration,
    so_far: JobSoFar,
}

impl SchedulerShared {
    /// Runs the tasks of a job in order. Returns the result, and how long the job held the
    /// core in modelled time.
    pub(crate) fn run(&self, core: usize, job: &AcceptedJob) -> (Result<(), Errno>, Duration) {
        let mut guard = lock(&self.cores[core]);
        let Hardware {
            core: hardware,
            idle_since,
        } = &mut *guard;
        let last_end = idle_since.take();
        self.resume(core, &mut **hardware, last_end);
        let mut done = Done {
            idle: last_end.map(|at| at.elapsed()).unwrap_or_default(),
            ..Done::default()
        };
        let result = if self.stalls(job) {
            Err(self.stall(core, &mut **hardware, job))
        } else {
            self.run_tasks(core, &mut **hardware, job, &mut done)
        };
        if result.is_ok() {
            *idle_since = Some(Instant::now());
        }
        let limit = self.options.driver.job_limit;
        let waited = result.is_err();
        let waited = waited.then(|| limit.saturating_sub(done.device_time));
        if let Some(timeline) = &self.timeline {
            timeline.ended(job.id, done.tasks, waited);
        }
        (result, done.device_time + waited.unwrap_or_default())
    }

    /// Resumes a core that had no job since `idle_since`. It may lose its
    /// registers.
    fn resume(&self, core: usize, hardware: &mut dyn NpuCore, idle_since: Option<Instant>) {
        let options = &self.options;
        let suspended = idle_since.is_some_and(|at| at.elapsed() >= options.driver.autosuspend);
        if options.registers_lost && suspended {
            let core = core as u32;
            self.health.events.push(Event::RegistersLost { core });
            self.reset(core, hardware);
        }
    }

    /// Whether the job is one of those that never start.
    fn stalls(&self, job: &AcceptedJob) -> bool {
        let first = job.request.tasks.first();
        let stalls = self.stalls.as_ref().zip(first);
        stalls.is_some_and(|(stalls, task)| stalls.strikes(job.space.serial, task.regcmd))
    }

    /// Lets a job that never starts reach the driver's limit. Returns the error of its fence.
    fn stall(&self, core: usize, hardware: &mut dyn NpuCore, job: &AcceptedJob) -> Errno {
        self.wait_for_the_time_limit(Duration::ZERO);
        let cause = if job.space.life.has_died() {
            KillCause::ClientDied
        } else {
            KillCause::NeverStarted
        };
        let place = TaskPlace {
            job: job.id,
            core: core as u32,
            task: 0,
        };
        self.kill(place, cause, Vec::new(), hardware)
    }

    fn run_tasks(
        &self,
        core: usize,
        hardware: &mut dyn NpuCore,
        job: &AcceptedJob,
        done: &mut Done,
    ) -> Result<(), Errno> {
        for (index, &task) in job.request.tasks.iter().enumerate() {
            let place = TaskPlace {
                job: job.id,
                core: core as u32,
                task: index,
            };
            // A panic of the model must not leave clients waiting for ever.
            let effect = self.strikes(place, job, task, done);
            let run = AssertUnwindSafe(|| {
                if effect == Some(FaultEffect::Hang) {
                    Kicked::hung()
                } else {
                    self.run_task(place, hardware, task, &job.space)
                }
            });
            let Ok(kicked) = catch_unwind(run) else {
                return Err(self.kill(place, KillCause::ModelFailure, Vec::new(), hardware));
            };
            let completed = kicked.is_completed();
            let KickOutcome {
                device_time,
                tasks,
                mut diagnosis,
            } = kicked.outcome;
            if !completed {
                self.wait_for_the_time_limit(done.device_time);
            }
            let has_died = job.space.life.has_died();
            if has_died {
                diagnosis.clear();
            }
            let device_time = done.device_time + device_time;
            let cause = if completed {
                let is_too_long = device_time > self.options.driver.job_limit;
                is_too_long.then_some(KillCause::TooLong { device_time })
            } else if has_died {
                Some(KillCause::ClientDied)
            } else {
                Some(KillCause::Hang)
            };
            if let Some(cause) = cause {
                return Err(self.kill(place, cause, diagnosis, hardware));
            }
            if effect == Some(FaultEffect::Wrong) {
                spoil(task, &job.space);
            }
            done.device_time = device_time;
            if self.timeline.is_some() {
                done.tasks.extend(tasks);
            }
            if !diagnosis.is_empty() {
                self.health
                    .events
                    .push(Event::Diagnosed { place, diagnosis });
            }
        }
        Ok(())
    }

    /// What the board's fault does to this task of a job.
    fn strikes(
        &self,
        place: TaskPlace,
        job: &AcceptedJob,
        task: sys::Task,
        done: &mut Done,
    ) -> Option<FaultEffect> {
        /// How long a job waits for one on another core, where the fault is of jobs at once.
        const PATIENCE: Duration = Duration::from_millis(100);
        let fault = self.options.damage.fault?;
        let registers = registers(task, &job.space)?;
        let core = place.core as usize;
        let seen = FaultyTask {
            core,
            job: place.job,
            index: place.task,
            idle: done.idle,
            task: &registers,
        };
        let object = |address: u32| {
            let objects = job.request.reads.iter().chain(&job.request.writes);
            let starts = objects.map(|object| object.iova);
            let before = starts.filter(|start| *start <= address.into());
            before.max().unwrap_or_default()
        };
        let is_shared = || self.is_shared(core, PATIENCE);
        fault.strikes(&mut done.so_far, &seen, object, is_shared)
    }

    fn run_task(
        &self,
        place: TaskPlace,
        hardware: &mut dyn NpuCore,
        task: sys::Task,
        space: &AddressSpace,
    ) -> Kicked {
        let mut bus = AddressSpaceBus::new(space, place.job);
        let kicked = kick(
            hardware,
            place.core,
            (task.regcmd, task.regcmd_count),
            &mut bus,
            // A longer task is killed, so it need not be computed.
            self.options.driver.job_limit,
        );
        self.options.damage.note(place.core, hardware);
        let events = &self.health.events;
        let has_died = space.life.has_died();
        for fault in bus.faults.into_iter().filter(|_| !has_died) {
            events.push(Event::Fault { place, fault });
        }
        if kicked.has_dma_error() {
            if !has_died {
                let raw_status = kicked.raw_status;
                events.push(Event::DmaErrorInterrupt { place, raw_status });
            }
            self.health.dma_error(place);
        }
        kicked
    }

    /// The driver's timeout path: the core is reset, the job is gone. Returns the error of
    /// its fence.
    fn kill(
        &self,
        place: TaskPlace,
        cause: KillCause,
        diagnosis: Vec<Diagnosis>,
        hardware: &mut dyn NpuCore,
    ) -> Errno {
        self.health.events.push(Event::JobKilled {
            place,
            cause,
            diagnosis,
        });
        self.reset(place.core, hardware);
        Errno::CANCELED
    }

    fn reset(&self, core: u32, hardware: &mut dyn NpuCore) {
        if catch_unwind(AssertUnwindSafe(|| hardware.reset())).is_err() {
            tracing::error!(core, "the model failed in a reset");
        }
    }
}

/// The registers that a task's program writes, if it can be read.
fn registers(task: sys::Task, space: &AddressSpace) -> Option<TaskRegisters> {
    let mut bytes =
        vec![0; (task.regcmd_count as usize).min(Program::WORDS_MAX) * size_of::<u64>()];
    space.read(task.regcmd, &mut bytes).ok()?;
    let (words, _) = bytes.as_chunks();
    let words = words
        .iter()
        .map(|word| Word::from_bits(u64::from_le_bytes(*word)));
    tasks(&words.collect::<Vec<_>>()).next()
}

/// Makes the first atom of a task's result another one.
fn spoil(task: sys::Task, space: &AddressSpace) {
    const OTHER: [u8; ATOM_BYTES as usize] = [0x5a; ATOM_BYTES as usize];
    if let Some(registers) = registers(task, space) {
        // A task without a result stays as it is.
        let _ = space.write(result(&registers), &OTHER);
    }
}
