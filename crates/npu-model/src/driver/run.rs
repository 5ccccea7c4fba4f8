// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a core's thread does with one job: its tasks one after another, the
//! limits of the driver, and what is reported of them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use rustix::io::Errno;

use super::hardware::{Interrupt, NpuCore, TaskBus, run_task};
use super::iommu::AddressSpace;
use super::job::{Job, Task};
use super::lock;
use super::sched::Shared;
use crate::chip::Diagnosis;
use crate::event::{Event, KillCause, Place};
use crate::trace::TaskTrace;

/// Traces kept when nobody takes them.
const TRACES_KEPT: usize = 65_536;

/// How a task ended.
struct Outcome {
    /// Whether it raised its interrupt.
    completed: bool,
    device_time: Duration,
    diagnosis: Vec<Diagnosis>,
}

impl Shared {
    /// Runs the tasks of a job in order.
    pub(super) fn run(&self, core: usize, job: &Job) -> Result<(), Errno> {
        let mut hardware = lock(&self.cores[core]);
        hardware.begin_job();
        let mut device_time = Duration::ZERO;
        for (index, &task) in job.request.tasks.iter().enumerate() {
            let place = Place {
                job: job.id,
                core: core as u32,
                task: index,
            };
            // A panic of the model must not leave clients waiting for ever.
            let run = AssertUnwindSafe(|| self.run_task(place, &mut **hardware, task, &job.space));
            let Ok(outcome) = catch_unwind(run) else {
                self.kill(place, KillCause::ModelFailure, Vec::new(), &mut **hardware);
                return Err(Errno::CANCELED);
            };
            let Outcome {
                completed,
                diagnosis,
                ..
            } = outcome;
            if !completed {
                self.wait_for_the_time_limit(device_time);
                self.kill(place, KillCause::Hang, diagnosis, &mut **hardware);
                return Err(Errno::CANCELED);
            }
            device_time += outcome.device_time;
            if device_time > self.options.job_limit {
                let cause = KillCause::TooLong { device_time };
                self.kill(place, cause, diagnosis, &mut **hardware);
                return Err(Errno::CANCELED);
            }
            if !diagnosis.is_empty() {
                self.events.push(Event::Diagnosed { place, diagnosis });
            }
        }
        Ok(())
    }

    /// Runs one task.
    fn run_task(
        &self,
        place: Place,
        hardware: &mut dyn NpuCore,
        task: Task,
        space: &AddressSpace,
    ) -> Outcome {
        let bus = TaskBus::new(space, self.options.trace);
        let Interrupt {
            completed,
            dma_error,
        } = run_task(hardware, place.core, task, &bus);
        let (faults, recorder) = bus.into_parts();
        for fault in faults {
            self.events.push(Event::Fault { place, fault });
        }
        if let Some(raw_status) = dma_error {
            self.events
                .push(Event::DmaErrorInterrupt { place, raw_status });
        }
        if let Some(recorder) = recorder {
            let mut traces = lock(&self.traces);
            if traces.len() == TRACES_KEPT {
                traces.pop_front();
            }
            traces.push_back(TaskTrace {
                place,
                completed,
                accesses: recorder.finish(),
            });
        }
        Outcome {
            completed,
            device_time: hardware.device_time(),
            diagnosis: hardware.diagnosis(),
        }
    }

    /// The driver's timeout path: the core is reset, the job is gone.
    fn kill(
        &self,
        place: Place,
        cause: KillCause,
        diagnosis: Vec<Diagnosis>,
        hardware: &mut dyn NpuCore,
    ) {
        self.events.push(Event::JobKilled {
            place,
            cause,
            diagnosis,
        });
        if catch_unwind(AssertUnwindSafe(|| hardware.reset())).is_err() {
            tracing::error!(core = place.core, "the model failed in a reset");
        }
    }
}
