// SPDX-License-Identifier: MIT OR Apache-2.0
//! One task on one core: the register accesses that the driver makes, and
//! what it makes of the interrupt.
//!
//! Sequence and values as the modelled registers of a QEMU device saw them
//! from the rocket driver of Linux 7.2 (drivers/accel/rocket/rocket_job.c).

use std::cell::RefCell;
use std::fmt;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use rknpu_regcmd::timing::TaskWork;

use super::iommu::{AddressSpace, Unmapped};
use super::job::Task;
use crate::trace::Recorder;
use rknpu_chip::{Bus, Chip, Core, Diagnosis, Direction, Fault, Master};

/// Register offsets within a core's window, bytes.
mod offset {
    /// Starts the task.
    pub(super) const PC_OPERATION_ENABLE: u32 = 0x0008;
    /// 1: the CPU owns the register windows. Else the program's address.
    pub(super) const PC_BASE_ADDRESS: u32 = 0x0010;
    /// Length of the program, in pairs of command words, less 1.
    pub(super) const PC_REGISTER_AMOUNTS: u32 = 0x0014;
    pub(super) const PC_INTERRUPT_MASK: u32 = 0x0020;
    pub(super) const PC_INTERRUPT_CLEAR: u32 = 0x0024;
    pub(super) const PC_INTERRUPT_RAW_STATUS: u32 = 0x002c;
    pub(super) const PC_TASK_CON: u32 = 0x0030;
    pub(super) const PC_TASK_DMA_BASE_ADDR: u32 = 0x0034;
    pub(super) const CNA_S_POINTER: u32 = 0x1004;
    pub(super) const CORE_S_POINTER: u32 = 0x3004;
}

/// PC.BASE_ADDRESS: register access by the CPU.
const BASE_ADDRESS_SLAVE_MODE: u32 = 1;
/// S_POINTER: POINTER_PP_EN, EXECUTER_PP_EN and POINTER_PP_MODE.
const S_POINTER_PING_PONG: u32 = 0xe;
/// S_POINTER: where the driver puts the number of the core.
const S_POINTER_CORE_SHIFT: u32 = 28;
/// PC interrupts DPU_0 and DPU_1.
const INTERRUPT_DPU: u32 = 0x300;
/// PC interrupts DMA_READ_ERROR and DMA_WRITE_ERROR.
const INTERRUPT_DMA_ERRORS: u32 = 0x3000;
/// All interrupt bits.
const INTERRUPT_ALL: u32 = 0x1_ffff;
/// TASK_CON: TASK_PP_EN, TASK_COUNT_CLEAR, and bit 14. The number of tasks
/// goes below.
const TASK_CON: u32 = 0x7000;
/// Most programs of one kick: TASK_NUMBER has twelve bits.
pub(super) const MAX_CHAIN: usize = 0xfff;
/// Width of the amount in PC.REGISTER_AMOUNTS.
const AMOUNT_MASK: u32 = 0xffff;

/// A core as the driver needs it. [`Chip`]'s cores are the one
/// implementation of the product; tests script their own.
pub trait NpuCore: Send + fmt::Debug {
    /// A register write by the CPU; see [`Core::mmio_write`].
    fn mmio_write(&mut self, offset: u32, value: u32, bus: &dyn Bus);
    /// A register read by the CPU; see [`Core::mmio_read`].
    fn mmio_read(&mut self, offset: u32) -> u32;
    /// What went wrong in the last task; see [`Core::diagnosis`].
    fn diagnosis(&self) -> Vec<Diagnosis>;
    /// How long the last task takes on the device; see
    /// [`Core::device_time`].
    fn device_time(&self) -> Duration;
    /// What the last kick had to do, task by task; see [`Core::tasks`].
    fn tasks(&self) -> Vec<TaskWork> {
        Vec::new()
    }
    /// The reset pulse; see [`Core::reset`].
    fn reset(&mut self);
    /// The next task belongs to another job; see [`Core::begin_job`].
    fn begin_job(&mut self) {}
}

/// One core of a [`Chip`] that others may look at as well.
#[derive(Debug)]
pub(crate) struct ChipCore {
    chip: Arc<Chip>,
    index: usize,
}

impl ChipCore {
    /// All cores of `chip`.
    pub(crate) fn all(chip: &Arc<Chip>) -> Vec<Box<dyn NpuCore>> {
        (0..chip.cores().len())
            .map(|index| -> Box<dyn NpuCore> {
                Box::new(Self {
                    chip: Arc::clone(chip),
                    index,
                })
            })
            .collect()
    }

    fn with<T>(&self, action: impl FnOnce(&mut Core) -> T) -> Option<T> {
        let core = self.chip.cores().get(self.index)?;
        Some(action(
            &mut core.lock().unwrap_or_else(PoisonError::into_inner),
        ))
    }
}

impl NpuCore for Core {
    fn mmio_write(&mut self, offset: u32, value: u32, bus: &dyn Bus) {
        Self::mmio_write(self, offset, value, bus);
    }

    fn mmio_read(&mut self, offset: u32) -> u32 {
        Self::mmio_read(self, offset)
    }

    fn diagnosis(&self) -> Vec<Diagnosis> {
        Self::diagnosis(self)
    }

    fn device_time(&self) -> Duration {
        Self::device_time(self)
    }

    fn tasks(&self) -> Vec<TaskWork> {
        Self::tasks(self).to_vec()
    }

    fn reset(&mut self) {
        Self::reset(self);
    }

    fn begin_job(&mut self) {
        Self::begin_job(self);
    }
}

impl NpuCore for ChipCore {
    fn mmio_write(&mut self, offset: u32, value: u32, bus: &dyn Bus) {
        self.with(|core| core.mmio_write(offset, value, bus));
    }

    fn mmio_read(&mut self, offset: u32) -> u32 {
        self.with(|core| core.mmio_read(offset)).unwrap_or_default()
    }

    fn diagnosis(&self) -> Vec<Diagnosis> {
        self.with(|core| core.diagnosis()).unwrap_or_default()
    }

    fn device_time(&self) -> Duration {
        self.with(|core| core.device_time()).unwrap_or_default()
    }

    fn tasks(&self) -> Vec<TaskWork> {
        self.with(|core| core.tasks().to_vec()).unwrap_or_default()
    }

    fn reset(&mut self) {
        self.with(Core::reset);
    }

    fn begin_job(&mut self) {
        self.with(Core::begin_job);
    }
}

/// The bus of one task: the address space of the job's file.
#[derive(Debug)]
pub(super) struct TaskBus<'a> {
    space: &'a AddressSpace,
    faults: RefCell<Vec<Fault>>,
    recorder: Option<RefCell<Recorder>>,
}

/// Faults kept per task; a runaway program makes millions.
const FAULTS_KEPT: usize = 8;

impl<'a> TaskBus<'a> {
    pub(super) fn new(space: &'a AddressSpace, record: bool) -> Self {
        Self {
            space,
            faults: RefCell::default(),
            recorder: record.then(RefCell::default),
        }
    }

    /// The faults that happened, and the accesses if they were recorded.
    pub(super) fn into_parts(self) -> (Vec<Fault>, Option<Recorder>) {
        (
            self.faults.into_inner(),
            self.recorder.map(RefCell::into_inner),
        )
    }

    fn note(
        &self,
        (master, direction): (Master, Direction),
        iova: u32,
        len: usize,
        result: Result<(), Unmapped>,
    ) -> Result<(), Fault> {
        if let Some(recorder) = &self.recorder {
            let start = u64::from(iova);
            recorder
                .borrow_mut()
                .note(master, direction, start..start + len as u64);
        }
        result.map_err(|Unmapped(address)| {
            let fault = Fault {
                address,
                direction,
                master,
            };
            let mut faults = self.faults.borrow_mut();
            if faults.len() < FAULTS_KEPT {
                faults.push(fault);
            }
            fault
        })
    }
}

impl Bus for TaskBus<'_> {
    fn read(&self, master: Master, iova: u32, out: &mut [u8]) -> Result<(), Fault> {
        let result = self.space.read(iova, out);
        self.note((master, Direction::Read), iova, out.len(), result)
    }

    fn check_read(&self, master: Master, iova: u32, len: usize) -> Result<(), Fault> {
        let result = self.space.check(iova, len);
        self.note((master, Direction::Read), iova, len, result)
    }

    fn write(&self, master: Master, iova: u32, data: &[u8]) -> Result<(), Fault> {
        let result = self.space.write(iova, data);
        self.note((master, Direction::Write), iova, data.len(), result)
    }
}

/// What the interrupt handler sees after a task was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Interrupt {
    /// Whether the driver takes the task for finished: DPU_0 or DPU_1. A DMA
    /// error alone does not count; the job then runs into its time limit.
    pub(super) completed: bool,
    /// Raw status, where it has a DMA error bit.
    pub(super) dma_error: Option<u32>,
}

/// Kicks one task off, or the chain of `tasks` programs that it begins, waits
/// for it (it runs within the last write), and answers its interrupt.
pub(super) fn run_task(
    core: &mut dyn NpuCore,
    index: u32,
    task: Task,
    tasks: u32,
    bus: &dyn Bus,
) -> Interrupt {
    let raw = kick(core, index, (task.regcmd, task.words), tasks, bus);
    Interrupt {
        completed: is_completed(raw),
        dma_error: (raw & INTERRUPT_DMA_ERRORS != 0).then_some(raw),
    }
}

/// Whether the driver takes a task with this PC.INTERRUPT_RAW_STATUS for
/// finished.
#[must_use]
pub fn is_completed(raw_status: u32) -> bool {
    raw_status & INTERRUPT_DPU != 0
}

/// Makes the register accesses of the driver for `tasks` chained tasks on core
/// number `index`: the program at an IOVA, with its length in words. Gives
/// PC.INTERRUPT_RAW_STATUS as the interrupt handler finds it.
pub fn kick(
    core: &mut dyn NpuCore,
    index: u32,
    (program, words): (u32, u32),
    tasks: u32,
    bus: &dyn Bus,
) -> u32 {
    let pointer = S_POINTER_PING_PONG | index.wrapping_shl(S_POINTER_CORE_SHIFT);
    // Two words are fetched at a time, so an odd program gets one word more
    // than it has. Too long programs lose their upper bits, as in the kernel.
    let amount = (words.wrapping_add(1) / 2).wrapping_sub(1) & AMOUNT_MASK;
    let kick = [
        (offset::PC_BASE_ADDRESS, BASE_ADDRESS_SLAVE_MODE),
        (offset::CNA_S_POINTER, pointer),
        (offset::CORE_S_POINTER, pointer),
        (offset::PC_BASE_ADDRESS, program),
        (offset::PC_REGISTER_AMOUNTS, amount),
        (offset::PC_INTERRUPT_MASK, INTERRUPT_DPU),
        (offset::PC_INTERRUPT_CLEAR, INTERRUPT_DPU),
        (offset::PC_TASK_CON, TASK_CON | tasks),
        (offset::PC_TASK_DMA_BASE_ADDR, 0),
        (offset::PC_OPERATION_ENABLE, 1),
    ];
    for (register, value) in kick {
        core.mmio_write(register, value, bus);
    }
    let raw = core.mmio_read(offset::PC_INTERRUPT_RAW_STATUS);
    if is_completed(raw) {
        core.mmio_write(offset::PC_INTERRUPT_MASK, 0, bus);
        core.mmio_write(offset::PC_OPERATION_ENABLE, 0, bus);
        core.mmio_write(offset::PC_INTERRUPT_CLEAR, INTERRUPT_ALL, bus);
    }
    raw
}
