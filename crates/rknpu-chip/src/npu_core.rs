// SPDX-License-Identifier: MIT OR Apache-2.0
//! One NPU core as its register window shows it.

use std::time::Duration;

use rknpu_regcmd::Register;
use rknpu_regcmd::regs::pc;
use rknpu_regcmd::timing::TaskWork;

use super::cbuf::Cbuf;
use super::dma::Dma;
use super::dpu::lut::Lut;
use super::pc::{Finished, Kick, Segment};
use super::registers::Registers;
use super::time::Clock;
use super::trap::{Report, Stop};
use super::{Bus, ChipOptions, Diagnosis, Direction, Effect, PoolingInterrupt, Wedge};

/// Interrupts that can be cleared.
const INTERRUPT_BITS: u32 = 0x1_ffff;

/// One core: registers, convolution buffer, tables.
#[derive(Debug)]
pub struct Core {
    options: ChipOptions,
    registers: Registers,
    cbuf: Cbuf,
    lut: Lut,
    /// The PC's own registers.
    segment: Segment,
    task_con: pc::TaskCon,
    dma_base: pc::TaskDmaBaseAddr,
    interrupt_mask: u32,
    interrupts: pc::InterruptRawStatus,
    tasks_done: u32,
    diagnosis: Vec<Diagnosis>,
    device_time: Duration,
    /// A kick hung: the blocks still wait for what never comes.
    wedged: bool,
    tasks: Vec<TaskWork>,
}

impl Core {
    pub(super) fn new(options: &ChipOptions) -> Self {
        Self {
            options: options.clone(),
            registers: Registers::new(options.contested.fresh_stages),
            cbuf: Cbuf::default(),
            lut: Lut::default(),
            segment: Segment::default(),
            task_con: pc::TaskCon::new(),
            dma_base: pc::TaskDmaBaseAddr::new(),
            interrupt_mask: 0,
            interrupts: pc::InterruptRawStatus::new(),
            tasks_done: 0,
            diagnosis: Vec::new(),
            device_time: Duration::ZERO,
            wedged: false,
            tasks: Vec::new(),
        }
    }

    /// A register write by the CPU, at `offset` bytes from the core's base.
    ///
    /// When a write starts the task (PC.OPERATION_ENABLE = 1) the task has
    /// run when this returns. It completed if PC.INTERRUPT_RAW_STATUS has a
    /// DPU or PPU bit set; if not, the core hangs, as on silicon. A failed
    /// access of the DMA sets its error bit.
    ///
    /// A task that would take longer than [`ChipOptions::task_limit`] on the
    /// device is not computed: it hangs, and [`Self::device_time`] tells how
    /// long it would have taken.
    pub fn mmio_write(&mut self, offset: u32, value: u32, bus: &dyn Bus) {
        let Ok(offset) = u16::try_from(offset) else {
            return;
        };
        match offset {
            pc::OperationEnable::OFFSET => {
                if pc::OperationEnable::from_bits(value).op_en() == 1 {
                    self.kick(bus);
                }
            }
            pc::BaseAddress::OFFSET => self.segment.base = pc::BaseAddress::from_bits(value),
            pc::RegisterAmounts::OFFSET => {
                self.segment.amounts = pc::RegisterAmounts::from_bits(value);
            }
            pc::InterruptMask::OFFSET => self.interrupt_mask = value & INTERRUPT_BITS,
            pc::InterruptClear::OFFSET => {
                self.interrupts =
                    pc::InterruptRawStatus::from_bits(self.interrupts.bits() & !value);
            }
            pc::TaskCon::OFFSET => {
                self.task_con = pc::TaskCon::from_bits(value);
                if self.task_con.task_count_clear() == 1 {
                    self.tasks_done = 0;
                }
            }
            pc::TaskDmaBaseAddr::OFFSET => {
                self.dma_base = pc::TaskDmaBaseAddr::from_bits(value);
            }
            _ => super::pc::write(&mut self.registers, &mut self.lut, offset, value),
        }
    }

    /// A register read by the CPU. Places without a register read as 0; on
    /// silicon a read of page 0x2000 locks the SoC.
    pub fn mmio_read(&mut self, offset: u32) -> u32 {
        let Ok(offset) = u16::try_from(offset) else {
            return 0;
        };
        match offset {
            pc::BaseAddress::OFFSET => self.segment.base.bits(),
            pc::RegisterAmounts::OFFSET => self.segment.amounts.bits(),
            pc::InterruptMask::OFFSET => self.interrupt_mask,
            pc::InterruptStatus::OFFSET => self.interrupts.bits() & self.interrupt_mask,
            pc::InterruptRawStatus::OFFSET => self.interrupts.bits(),
            pc::TaskCon::OFFSET => self.task_con.bits(),
            pc::TaskDmaBaseAddr::OFFSET => self.dma_base.bits(),
            pc::TaskStatus::OFFSET => self.tasks_done,
            _ => self.registers.read(offset),
        }
    }

    /// What is wrong with the last task (empty: nothing known).
    #[must_use]
    pub fn diagnosis(&self) -> Vec<Diagnosis> {
        self.diagnosis.clone()
    }

    /// How long the last task takes on the device, by the timing model.
    #[must_use]
    pub fn device_time(&self) -> Duration {
        self.device_time
    }

    /// What the tasks of the last kick had to move and to compute, as far as
    /// they came.
    #[must_use]
    pub fn tasks(&self) -> &[TaskWork] {
        &self.tasks
    }

    /// The reset pulse: every register returns to its value after power-up.
    pub fn reset(&mut self) {
        let wedged = self.wedged && self.options.contested.wedge == Wedge::UntilPowerCycle;
        *self = Self {
            wedged,
            ..Self::new(&self.options)
        };
    }

    /// Tells that the next task belongs to another job. Silicon knows no jobs;
    /// what a task may rely on to be in CBUF does.
    pub fn begin_job(&mut self) {
        self.cbuf.begin_job();
    }

    /// PC.OPERATION_ENABLE = 1.
    fn kick(&mut self, bus: &dyn Bus) {
        let mut report = Report::new(self.options.level);
        let mut clock = Clock::new(self.options.machine, self.options.task_limit);
        if self.wedged {
            self.device_time = Duration::ZERO;
            self.tasks.clear();
            // A hang, which is the end of the kick already.
            drop(report.note(
                "T12-wedged",
                Effect::Hang,
                &[],
                "an earlier task hung, and the core was not reset since: nothing starts",
                "reset the core; the mainline driver does so after its time limit",
            ));
            self.diagnosis = report.into_diagnoses();
            return;
        }
        let result = Kick {
            registers: &mut self.registers,
            cbuf: &mut self.cbuf,
            lut: &mut self.lut,
            report: &mut report,
            clock: &mut clock,
            dma: Dma::new(bus, self.dma_base.bits()).literally(self.options.literal),
            tasks: self.task_con.task_number(),
            contested: &self.options.contested,
            sums: Vec::new(),
        }
        .run(self.segment);
        self.device_time = clock.elapsed();
        self.tasks = clock.into_tasks();
        match result {
            Ok(finished) => self.complete(finished),
            Err(stop) => self.stop(&stop, &mut report),
        }
        self.diagnosis = report.into_diagnoses();
    }

    /// Raises the interrupts of a kick that ended well. Pooling was seen to
    /// complete under a driver that waits for the DPU's bits only, so it sets
    /// one of those too.
    fn complete(&mut self, finished: Finished) {
        self.tasks_done = self.tasks_done.saturating_add(finished.tasks);
        let bit = |group: usize| 1u32 << group;
        let pooled = match self.options.contested.pooling_interrupt {
            PoolingInterrupt::WithDpu => finished.ppu,
            PoolingInterrupt::PpuOnly => None,
        };
        let dpu = finished.dpu.or(pooled).map_or(0, bit);
        let ppu = finished.ppu.map_or(0, bit);
        self.raise(|now| now.with_dpu(now.dpu() | dpu));
        self.raise(|now| now.with_ppu(now.ppu() | ppu));
    }

    /// Sets interrupt bits; the values fit their fields by construction.
    fn raise<E>(
        &mut self,
        set: impl FnOnce(pc::InterruptRawStatus) -> Result<pc::InterruptRawStatus, E>,
    ) {
        if let Ok(interrupts) = set(self.interrupts) {
            self.interrupts = interrupts;
        }
    }

    /// A kick that never ends.
    fn stop(&mut self, stop: &Stop, report: &mut Report) {
        self.wedged = true;
        let noted = match stop {
            Stop::Hang => Ok(()),
            Stop::Fault(fault) => {
                match fault.direction {
                    Direction::Read => self.raise(|now| now.with_dma_read_error(1)),
                    Direction::Write => self.raise(|now| now.with_dma_write_error(1)),
                }
                report.note(
                    "F01-iommu-fault",
                    Effect::Hang,
                    &[("address", u32::try_from(fault.address).unwrap_or(u32::MAX))],
                    format!("{fault}"),
                    "list every buffer that the program addresses in the job",
                )
            }
            Stop::TooLong => report.note(
                "F02-too-long",
                Effect::Hang,
                &[],
                format!(
                    "the task would take {:?} of modelled device time; the limit is {:?}, and it was not computed",
                    self.device_time, self.options.task_limit
                ),
                "split the task",
            ),
            Stop::HostMemory => report.note(
                "F03-host-memory",
                Effect::Hang,
                &[],
                "the task reads more data than this machine has memory for",
                "split the task",
            ),
        };
        // Noting a hang says that the task hangs, which is known here.
        drop(noted);
    }
}
