// SPDX-License-Identifier: MIT OR Apache-2.0
//! A kick: the tasks that PC.OPERATION_ENABLE = 1 starts. It is a separate
//! value, so that any thread can compute it while the core still answers.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rknpu_regcmd::rules::program;
use rknpu_regcmd::timing::TaskWork;

use super::cbuf::Cbuf;
use super::core_parts::CoreParts;
use super::dma::Dma;
use super::dpu::lut::Lut;
use super::pc::{KickEnd, Segment};
use super::registers::RegisterGroups;
use super::time::DeviceClock;
use super::trap::{DiagnosisReport, Stop};
use super::{Bus, ChipOptions, Diagnosis, Effect};

/// State that a core keeps from kick to kick, besides its registers.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    pub(crate) cbuf: Cbuf,
    pub(crate) lut: Lut,
}

type Tasks = dyn FnOnce(&mut dyn Bus, Duration) -> FinishedKick + Send;

/// Tasks that a register write has started; see
/// [`NpuCore::mmio_write`](super::NpuCore::mmio_write). It owns the parts of the
/// core that it needs, so any thread can run it.
///
/// A dropped kick is a task that never ends.
#[must_use = "the core stays busy until `complete` gets the result"]
pub struct Kick(Box<Tasks>);

impl fmt::Debug for Kick {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Kick")
    }
}

/// Times, work and diagnoses of the tasks of a [`Kick`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KickOutcome {
    /// Modelled time of the tasks on the device, up to where they stopped. It
    /// exceeds the budget if a task did.
    pub device_time: Duration,
    /// Data and arithmetic of each of these tasks.
    pub tasks: Vec<TaskWork>,
    /// Faults of the tasks; empty if none is known.
    pub diagnosis: Vec<Diagnosis>,
}

/// A [`Kick`] that has run. The registers show its end only after
/// [`NpuCore::complete`](super::NpuCore::complete).
#[derive(Debug)]
#[must_use = "the core stays busy until `complete` gets this"]
pub struct FinishedKick {
    /// Times, work and diagnoses of the tasks.
    pub outcome: KickOutcome,
    /// The tasks with the parts that a [`Core`](super::Core) gets back, and how
    /// they ended; `None` for other cores.
    pub(crate) end: Option<(ChipTasks, Result<KickEnd, Stop>)>,
}

impl Kick {
    /// Makes a kick for another implementation of [`NpuCore`](super::NpuCore).
    /// `tasks` runs it within a budget of modelled time.
    pub fn new(tasks: impl FnOnce(&mut dyn Bus, Duration) -> KickOutcome + Send + 'static) -> Self {
        Self(Box::new(|bus, budget| FinishedKick {
            outcome: tasks(bus, budget),
            end: None,
        }))
    }

    /// Runs the tasks.
    ///
    /// `budget` bounds the work of this machine: tasks that would exceed this
    /// modelled device time hang instead of being computed to their end. A few
    /// registers can ask for hours of work.
    pub fn run(self, bus: &mut dyn Bus, budget: Duration) -> FinishedKick {
        (self.0)(bus, budget)
    }
}

/// The tasks of a kick of a [`Core`](super::Core).
#[derive(Debug)]
pub(crate) struct ChipTasks {
    pub(crate) options: ChipOptions,
    pub(crate) registers: RegisterGroups,
    pub(crate) kept: Box<Kept>,
    pub(crate) segment: Segment,
    /// PC.TASK_DMA_BASE_ADDR.
    pub(crate) dma_base: u32,
    /// Number of tasks to run.
    pub(crate) tasks: u32,
    /// Whether an earlier kick hung and the core was not reset since.
    pub(crate) wedged: bool,
    /// Set by a reset. Each kick has a separate one, which identifies it.
    pub(crate) aborted: Arc<AtomicBool>,
}

impl ChipTasks {
    pub(crate) fn into_kick(self) -> Kick {
        Kick(Box::new(|bus, budget| self.run(bus, budget)))
    }

    fn run(mut self, bus: &mut dyn Bus, budget: Duration) -> FinishedKick {
        let report = DiagnosisReport::new(self.options.level);
        let mut clock = DeviceClock::new(self.options.machine, budget);
        self.kept.cbuf.attach(bus.attachment());
        let end = CoreParts {
            registers: &mut self.registers,
            dma: Dma::new(bus, &self.aborted, self.dma_base),
            cbuf: &mut self.kept.cbuf,
            lut: &mut self.kept.lut,
            report: &report,
            clock: &mut clock,
            contested: self.options.contested,
        }
        .run(self.segment, self.tasks, self.wedged);
        let device_time = clock.elapsed();
        if let Err(stop) = &end {
            explain(stop, &report, device_time, budget);
        }
        let mut diagnosis = report.into_diagnoses();
        if self.aborted.load(Ordering::Relaxed) {
            diagnosis.clear();
        }
        FinishedKick {
            outcome: KickOutcome {
                device_time,
                tasks: clock.into_tasks(),
                diagnosis,
            },
            end: Some((self, end)),
        }
    }
}

/// Reports why tasks stopped, unless that was reported before.
fn explain(stop: &Stop, report: &DiagnosisReport, device_time: Duration, budget: Duration) {
    let noted = match stop {
        Stop::Hang => Ok(()),
        Stop::Fault(fault) => report.record(
            &program::IOMMU_FAULT,
            &[("address", u32::try_from(fault.address).unwrap_or(u32::MAX))],
            &fault.to_string(),
        ),
        Stop::TooLong => {
            let values =
                format!("modelled device time {device_time:?} exceeds the limit of {budget:?}");
            report.record(&program::TOO_LONG, &[], &values)
        }
        Stop::HostMemory => {
            let rule = &program::HOST_MEMORY;
            report.record_with(rule, Effect::Hang, &[], "the host is out of memory")
        }
    };
    // The error means that the task hangs, which is known here.
    drop(noted);
}
