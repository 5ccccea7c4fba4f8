// SPDX-License-Identifier: MIT OR Apache-2.0
//! One task on one core: the driver's register accesses, and its reaction to the
//! interrupt.
//!
//! Sequence and values are those that the rocket driver of Linux 7.2 wrote to the
//! modelled registers of a QEMU device (drivers/accel/rocket/rocket_job.c).

use std::time::Duration;

use rknpu_regcmd::regs::{cna, core, pc};

use crate::objects::iommu::{AddressSpace, Unmapped};
use rknpu_chip::{Bus, Direction, Fault, KickOutcome, Master, NpuCore};

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
const INTERRUPT_ALL: u32 = 0x1_ffff;
/// TASK_CON: TASK_PP_EN, TASK_COUNT_CLEAR, and bit 14; TASK_NUMBER is 1.
const TASK_CON: u32 = 0x7001;
/// Width of the amount in PC.REGISTER_AMOUNTS.
const AMOUNT_MASK: u32 = 0xffff;

/// The bus of one task: the address space of the job's file.
#[derive(Debug)]
pub(crate) struct AddressSpaceBus<'a> {
    space: &'a AddressSpace,
    /// Number of the job: the driver attaches the address space anew for each job.
    job: u64,
    /// The faults that happened.
    pub(crate) faults: Vec<Fault>,
}

/// Maximum number of faults kept per task, since a runaway program makes millions.
const FAULTS_KEPT: usize = 8;

impl<'a> AddressSpaceBus<'a> {
    pub(crate) fn new(space: &'a AddressSpace, job: u64) -> Self {
        Self {
            space,
            job,
            faults: Vec::new(),
        }
    }

    fn note(
        &mut self,
        (master, direction): (Master, Direction),
        result: Result<(), Unmapped>,
    ) -> Result<(), Fault> {
        result.map_err(|Unmapped(address)| {
            let fault = Fault {
                address,
                direction,
                master,
            };
            if self.faults.len() < FAULTS_KEPT {
                self.faults.push(fault);
            }
            fault
        })
    }
}

impl Bus for AddressSpaceBus<'_> {
    fn read(&mut self, master: Master, iova: u32, out: &mut [u8]) -> Result<(), Fault> {
        let result = self.space.read(iova, out);
        self.note((master, Direction::Read), result)
    }

    fn check_read(&mut self, master: Master, iova: u32, len: usize) -> Result<(), Fault> {
        let result = self.space.check(iova, len);
        self.note((master, Direction::Read), result)
    }

    fn write(&mut self, master: Master, iova: u32, data: &[u8]) -> Result<(), Fault> {
        let result = self.space.write(iova, data);
        self.note((master, Direction::Write), result)
    }

    fn attachment(&self) -> u64 {
        self.job
    }
}

/// The result of started tasks: what the interrupt handler sees, and the chip's
/// report.
#[derive(Debug)]
pub(crate) struct Kicked {
    /// PC.INTERRUPT_RAW_STATUS.
    pub(crate) raw_status: u32,
    /// The chip's report on the tasks: time, work, and diagnoses.
    pub(crate) outcome: KickOutcome,
}

impl Kicked {
    /// Tasks that never raise an interrupt.
    pub(crate) fn hung() -> Self {
        Self {
            raw_status: 0,
            outcome: KickOutcome::default(),
        }
    }

    /// Whether the driver treats the tasks as finished: DPU_0 or DPU_1 is set. A
    /// DMA error alone does not finish them; the job then runs into its time limit.
    #[must_use]
    pub(crate) fn is_completed(&self) -> bool {
        self.raw_status & INTERRUPT_DPU != 0
    }

    /// Whether the interrupt has a DMA error bit.
    pub(crate) fn has_dma_error(&self) -> bool {
        self.raw_status & INTERRUPT_DMA_ERRORS != 0
    }
}

/// Runs a task on core number `index` by the driver's register accesses, and
/// handles its interrupt. `program` is an IOVA, `words` its length in words. The
/// task runs within the last write.
pub(crate) fn kick(
    core: &mut dyn NpuCore,
    index: u32,
    (program, words): (u32, u32),
    bus: &mut dyn Bus,
    budget: Duration,
) -> Kicked {
    let write = |core: &mut dyn NpuCore, offset: u16, value| core.mmio_write(offset.into(), value);
    let pointer = S_POINTER_PING_PONG | index.wrapping_shl(S_POINTER_CORE_SHIFT);
    // Two words are fetched at a time, so the fetch of an odd program includes one
    // word beyond its end. The length of a very long program loses its upper bits,
    // as in the kernel.
    let amount = (words.wrapping_add(1) / 2).wrapping_sub(1) & AMOUNT_MASK;
    for (register, value) in [
        (pc::BaseAddress::OFFSET, BASE_ADDRESS_SLAVE_MODE),
        (cna::SPointer::OFFSET, pointer),
        (core::SPointer::OFFSET, pointer),
        (pc::BaseAddress::OFFSET, program),
        (pc::RegisterAmounts::OFFSET, amount),
        (pc::InterruptMask::OFFSET, INTERRUPT_DPU),
        (pc::InterruptClear::OFFSET, INTERRUPT_DPU),
        (pc::TaskCon::OFFSET, TASK_CON),
        (pc::TaskDmaBaseAddr::OFFSET, 0),
    ] {
        write(core, register, value);
    }
    let started = write(core, pc::OperationEnable::OFFSET, 1);
    let outcome = started.and_then(|kick| core.complete(kick.run(bus, budget)));
    let kicked = Kicked {
        raw_status: core.mmio_read(pc::InterruptRawStatus::OFFSET.into()),
        outcome: outcome.unwrap_or_default(),
    };
    if kicked.is_completed() {
        write(core, pc::InterruptMask::OFFSET, 0);
        write(core, pc::OperationEnable::OFFSET, 0);
        write(core, pc::InterruptClear::OFFSET, INTERRUPT_ALL);
    }
    kicked
}
