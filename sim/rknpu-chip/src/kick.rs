// SPDX-License-Identifier: MIT OR Apache-2.0
//! A kick: what PC.OPERATION_ENABLE = 1 starts, as a thing of its own, so that
//! any thread can compute it while the core's registers stay at hand.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rknpu_regcmd::rules::program;
use rknpu_regcmd::timing::TaskWork;

use super::cbuf::Cbuf;
use super::dma::{Dma, MemoryPort};
use super::dpu::lut::Lut;
use super::pc::{KickEnd, KickRun, Segment};
use super::registers::RegisterGroups;
use super::time::DeviceClock;
use super::trap::{DiagnosisReport, Stop};
use super::{Bus, ChipOptions, Diagnosis, Effect, Fault};

/// What a core keeps from kick to kick beside its registers.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    pub(crate) cbuf: Cbuf,
    pub(crate) lut: Lut,
}

/// Tasks that a register write has started; see
/// [`Core::mmio_write`](super::Core::mmio_write). It owns all that it needs of
/// the core, and can be run on any thread.
///
/// One that is dropped is a task that never ends.
#[derive(Debug)]
#[must_use = "the core runs until it gets back what comes of this"]
pub struct Kick {
    pub(crate) options: ChipOptions,
    pub(crate) registers: RegisterGroups,
    pub(crate) kept: Box<Kept>,
    pub(crate) segment: Segment,
    /// PC.TASK_DMA_BASE_ADDR.
    pub(crate) dma_base: u32,
    /// Tasks to run.
    pub(crate) tasks: u32,
    /// An earlier kick hung, and the core was not reset since.
    pub(crate) wedged: bool,
    /// Set by a reset; which of them it is also tells one kick from another.
    pub(crate) aborted: Arc<AtomicBool>,
}

/// What came of a [`Kick`], for people and for clocks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KickOutcome {
    /// How long the tasks take on the device, by the timing model: as far as
    /// they came, or beyond the budget.
    pub device_time: Duration,
    /// What each task had to move and to compute, likewise.
    pub tasks: Vec<TaskWork>,
    /// What is wrong with the tasks (empty: nothing known).
    pub diagnosis: Vec<Diagnosis>,
}

/// A [`Kick`] that has run. Nobody sees it in the registers before
/// [`Core::complete`](super::Core::complete).
#[derive(Debug)]
#[must_use = "the core runs until it gets this back"]
pub struct FinishedKick {
    /// Times, work and diagnoses of the tasks.
    pub outcome: KickOutcome,
    pub(crate) registers: RegisterGroups,
    pub(crate) kept: Box<Kept>,
    pub(crate) end: Result<KickEnd, Stop>,
    pub(crate) aborted: Arc<AtomicBool>,
}

impl Kick {
    /// Runs the tasks.
    ///
    /// `budget` bounds the work of this machine: tasks that would take longer
    /// than so much modelled time on the device are not computed to their end,
    /// but hang. A program can ask for hours of it in a few registers.
    pub fn run(mut self, bus: &mut dyn Bus, budget: Duration) -> FinishedKick {
        let mut report = DiagnosisReport::new(self.options.level);
        let mut clock = DeviceClock::new(self.options.machine, budget);
        let end = self.execute(bus, &mut report, &mut clock);
        let device_time = clock.elapsed();
        if let Err(stop) = &end {
            explain(stop, &mut report, device_time, budget);
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
            registers: self.registers,
            kept: self.kept,
            end,
            aborted: self.aborted,
        }
    }

    fn execute(
        &mut self,
        bus: &mut dyn Bus,
        report: &mut DiagnosisReport,
        clock: &mut DeviceClock,
    ) -> Result<KickEnd, Stop> {
        if self.wedged {
            report.tell(&program::WEDGED, &[], "the core is wedged")?;
        }
        self.kept.cbuf.attach(bus.attachment());
        let port = UntilReset {
            bus: RefCell::new(bus),
            aborted: &self.aborted,
        };
        KickRun {
            registers: &mut self.registers,
            cbuf: &mut self.kept.cbuf,
            lut: &mut self.kept.lut,
            report,
            clock,
            dma: Dma::new(&port, self.dma_base).literally(self.options.literal),
            tasks: self.tasks,
            contested: &self.options.contested,
        }
        .run(self.segment)
    }
}

/// Notes why tasks stopped, where nobody has yet.
fn explain(stop: &Stop, report: &mut DiagnosisReport, device_time: Duration, budget: Duration) {
    let noted = match stop {
        Stop::Hang => Ok(()),
        Stop::Fault(fault) => report.tell(
            &program::IOMMU_FAULT,
            &[("address", u32::try_from(fault.address).unwrap_or(u32::MAX))],
            &fault.to_string(),
        ),
        Stop::TooLong => {
            let values =
                format!("{device_time:?} of modelled device time, where the limit is {budget:?}");
            report.tell(&program::TOO_LONG, &[], &values)
        }
        Stop::HostMemory => {
            let rule = &program::HOST_MEMORY;
            report.tell_with(rule, Effect::Hang, &[], "the host is out of memory")
        }
    };
    // Noting a hang says that the task hangs, which is known here.
    drop(noted);
}

/// The bus of a kick, which a reset of its core ends.
struct UntilReset<'a> {
    bus: RefCell<&'a mut dyn Bus>,
    aborted: &'a AtomicBool,
}

impl MemoryPort for UntilReset<'_> {
    fn access(
        &self,
        access: &mut dyn FnMut(&mut dyn Bus) -> Result<(), Fault>,
    ) -> Result<(), Stop> {
        if self.aborted.load(Ordering::Relaxed) {
            // Nobody will see how it ended.
            return Err(Stop::Hang);
        }
        access(&mut **self.bus.borrow_mut()).map_err(Stop::Fault)
    }
}
