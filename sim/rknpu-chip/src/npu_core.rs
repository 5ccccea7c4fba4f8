// SPDX-License-Identifier: MIT OR Apache-2.0
//! One NPU core behind its register window.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rknpu_regcmd::regs::pc;
use rknpu_regcmd::{FieldRangeError, Register};

use super::contested::OtherSide;
use super::kick::{ChipTasks, FinishedKick, Kept, Kick, KickOutcome};
use super::pc::{KickEnd, Segment};
use super::registers::RegisterGroups;
use super::trap::Stop;
use super::{ChipOptions, Direction};

/// Interrupts that can be cleared.
const INTERRUPT_BITS: u32 = 0x1_ffff;

/// PC.VERSION. Linux's `rocket` prints the sum of it and of the lower half of
/// PC.VERSION_NUM. Boards with an RK3588 report 1179210309, which is this
/// value: "FIRE" in ASCII (measured: public boot logs of several boards). It is
/// inferred that VERSION_NUM reads 0 and adds nothing.
const VERSION: u32 = 0x4649_5245;
const VERSION_NUM: u32 = 0;

/// A core behind its register window. [`Core`] is the chip's. The driver in
/// software and the virtual machine's devices accept other implementations too.
pub trait NpuCore: fmt::Debug + Send {
    /// A register read by the CPU, at `offset` bytes from the core's base.
    fn mmio_read(&self, offset: u32) -> u32;

    /// A register write by the CPU. A write of 1 to PC.OPERATION_ENABLE returns
    /// the tasks that it starts.
    fn mmio_write(&mut self, offset: u32, value: u32) -> Option<Kick>;

    /// Ends the running kick: the registers show its end from now on. The kick
    /// succeeded if PC.INTERRUPT_RAW_STATUS has a DPU or PPU bit set. If not, the
    /// core hangs, as on silicon.
    ///
    /// Returns `None` and does nothing if `finished` is not the running kick: the
    /// core was reset meanwhile.
    fn complete(&mut self, finished: FinishedKick) -> Option<KickOutcome>;

    /// The reset pulse: every register returns to its value after power-up.
    fn reset(&mut self);

    /// The core's interrupt line: high while an interrupt is pending that
    /// PC.INTERRUPT_MASK lets through.
    fn irq_level(&self) -> bool {
        self.mmio_read(pc::InterruptStatus::OFFSET.into()) != 0
    }

    /// Whether a task hung, and no reset makes the core work again
    /// (`wedge=until-power-cycle`). A core that wraps another one must hand this on.
    #[must_use]
    fn needs_power_cycle(&self) -> bool {
        false
    }
}

/// One core: registers, convolution buffer, tables.
///
/// [`Self::mmio_write`] returns a [`Kick`] when tasks start. The core runs
/// until [`Self::complete`] gets its [`FinishedKick`]:
///
/// * All registers read as they did when it started. Interrupts and
///   TASK_STATUS change with [`Self::complete`].
/// * The PC's own registers can be written: INTERRUPT_MASK and INTERRUPT_CLEAR
///   act at once, the others for the next kick. Writes to the blocks' registers
///   are lost, and so is another start. (Silicon's behaviour is not known.)
/// * [`Self::reset`] ends the kick: it no longer accesses memory, and its
///   result is dropped.
#[derive(Debug)]
pub struct Core {
    options: ChipOptions,
    registers: RegisterGroups,
    state: State,
    /// The PC's own registers.
    segment: Segment,
    task_con: pc::TaskCon,
    dma_base: pc::TaskDmaBaseAddr,
    interrupt_mask: u32,
    /// PC.INTERRUPT_RAW_STATUS.
    interrupts: u32,
    tasks_done: u32,
    /// Whether a kick hung: the blocks still wait.
    wedged: bool,
    is_broken: bool,
}

#[derive(Debug)]
enum State {
    Idle(Box<Kept>),
    /// A kick holds the rest of the core; this flag aborts it.
    Running(Arc<AtomicBool>),
}

impl Core {
    /// A core after power-up. An RK3588 has three, which share only memory.
    #[must_use]
    pub fn new(options: &ChipOptions) -> Self {
        Self {
            options: *options,
            registers: RegisterGroups::new(options.contested),
            state: State::Idle(Box::default()),
            segment: Segment::default(),
            task_con: pc::TaskCon::new(),
            dma_base: pc::TaskDmaBaseAddr::new(),
            interrupt_mask: 0,
            interrupts: 0,
            tasks_done: 0,
            wedged: false,
            is_broken: false,
        }
    }

    /// The same core with broken silicon: it takes every write and starts nothing.
    #[must_use]
    pub fn broken(self) -> Self {
        Self {
            is_broken: true,
            ..self
        }
    }

    /// Starts a kick: PC.OPERATION_ENABLE = 1.
    fn kick(&mut self) -> Option<Kick> {
        if self.is_broken {
            return None;
        }
        let aborted = Arc::new(AtomicBool::new(false));
        let runs = State::Running(Arc::clone(&aborted));
        let kept = match std::mem::replace(&mut self.state, runs) {
            State::Idle(kept) => kept,
            running => {
                self.state = running;
                return None;
            }
        };
        let tasks = ChipTasks {
            options: self.options,
            registers: self.registers.clone(),
            kept,
            segment: self.segment,
            dma_base: self.dma_base.bits(),
            tasks: self.task_con.task_number(),
            wedged: self.wedged,
            aborted,
        };
        Some(tasks.into_kick())
    }

    /// Raises the interrupts of a kick that ended well. Pooling was seen to
    /// complete under a driver that waits for the DPU's bits only, so it sets
    /// one of those too.
    fn raise_ended(&mut self, ended: KickEnd) {
        self.tasks_done = self.tasks_done.saturating_add(ended.tasks);
        let bit = |group: usize| 1u32 << group;
        let contested = self.options.contested;
        let ppu_only = contested.has(OtherSide::PoolingInterruptPpuOnly);
        let pooled = ended.ppu.filter(|_| !ppu_only);
        let dpu = ended.dpu.or(pooled).map_or(0, bit);
        let ppu = ended.ppu.map_or(0, bit);
        let raised = pc::InterruptRawStatus::new().with_dpu(dpu);
        self.raise(raised.and_then(|raised| raised.with_ppu(ppu)));
    }

    /// Sets interrupt bits; the values fit their fields by construction.
    fn raise(&mut self, raised: Result<pc::InterruptRawStatus, FieldRangeError>) {
        self.interrupts |= raised.unwrap_or_default().bits();
    }
}

impl NpuCore for Core {
    fn needs_power_cycle(&self) -> bool {
        self.wedged && self.options.contested.has(OtherSide::WedgeUntilPowerCycle)
    }

    fn mmio_write(&mut self, offset: u32, value: u32) -> Option<Kick> {
        let offset = u16::try_from(offset).ok()?;
        match offset {
            pc::OperationEnable::OFFSET => {
                let starts = pc::OperationEnable::from_bits(value).op_en() == 1;
                return starts.then(|| self.kick()).flatten();
            }
            pc::BaseAddress::OFFSET => self.segment.base = pc::BaseAddress::from_bits(value),
            pc::RegisterAmounts::OFFSET => {
                self.segment.amounts = pc::RegisterAmounts::from_bits(value);
            }
            pc::InterruptMask::OFFSET => self.interrupt_mask = value & INTERRUPT_BITS,
            pc::InterruptClear::OFFSET => self.interrupts &= !value,
            pc::TaskCon::OFFSET => {
                self.task_con = pc::TaskCon::from_bits(value);
                if self.task_con.task_count_clear() == 1 {
                    self.tasks_done = 0;
                }
            }
            pc::TaskDmaBaseAddr::OFFSET => {
                self.dma_base = pc::TaskDmaBaseAddr::from_bits(value);
            }
            _ => {
                if let State::Idle(kept) = &mut self.state {
                    super::pc::write(&mut self.registers, &mut kept.lut, offset, value);
                }
            }
        }
        None
    }

    /// Offsets without a register read as 0; on silicon a read of page 0x2000
    /// locks the SoC.
    fn mmio_read(&self, offset: u32) -> u32 {
        let Ok(offset) = u16::try_from(offset) else {
            return 0;
        };
        match offset {
            pc::Version::OFFSET => VERSION,
            pc::VersionNum::OFFSET => VERSION_NUM,
            pc::BaseAddress::OFFSET => self.segment.base.bits(),
            pc::RegisterAmounts::OFFSET => self.segment.amounts.bits(),
            pc::InterruptMask::OFFSET => self.interrupt_mask,
            pc::InterruptStatus::OFFSET => self.interrupts & self.interrupt_mask,
            pc::InterruptRawStatus::OFFSET => self.interrupts,
            pc::TaskCon::OFFSET => self.task_con.bits(),
            pc::TaskDmaBaseAddr::OFFSET => self.dma_base.bits(),
            pc::TaskStatus::OFFSET => self.tasks_done,
            _ => self.registers.read(offset),
        }
    }

    /// A failed access of the DMA sets its error bit.
    fn complete(&mut self, finished: FinishedKick) -> Option<KickOutcome> {
        let (tasks, end) = finished.end?;
        match &self.state {
            State::Running(kick) if Arc::ptr_eq(kick, &tasks.aborted) => {}
            _ => return None,
        }
        self.registers = tasks.registers;
        self.state = State::Idle(tasks.kept);
        match end {
            Ok(ended) => self.raise_ended(ended),
            Err(stop) => {
                self.wedged = true;
                if let Stop::Fault(fault) = stop {
                    let none = pc::InterruptRawStatus::new();
                    self.raise(match fault.direction {
                        Direction::Read => none.with_dma_read_error(1),
                        Direction::Write => none.with_dma_write_error(1),
                    });
                }
            }
        }
        Some(finished.outcome)
    }

    fn reset(&mut self) {
        if let State::Running(kick) = &self.state {
            kick.store(true, Ordering::Relaxed);
        }
        let wedged = self.needs_power_cycle();
        *self = Self {
            wedged,
            is_broken: self.is_broken,
            ..Self::new(&self.options)
        };
    }
}

const _: () = {
    const fn is_send<T: Send>() {}
    is_send::<Core>();
    is_send::<Kick>();
    is_send::<FinishedKick>();
};
