// SPDX-License-Identifier: MIT OR Apache-2.0
//! One NPU core: its registers in the guest's memory, and the thread that runs
//! its tasks.
//!
//! A register write takes effect at once, on the thread of the processor that
//! makes it. Registers that it changes are updated in the guest's memory before
//! that processor continues, and again when tasks have ended. The core's thread
//! only runs tasks and waits for QEMU.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use rknpu_chip::{Kick, NpuCore, Stalls};
use rknpu_regcmd::regs::pc;

use crate::board;
use crate::bus::TaskBus;
use crate::clock::{ComputingTask, GuestClock};
use crate::mmu::Mmu;
use crate::monitor::{Interrupts, Lines, report_error};
use crate::ram::{Ram, RegisterWindow};

/// The guest driver's time limit for a job. Longer tasks need not be computed.
const BUDGET: Duration = Duration::from_millis(500);

/// The registers that change without a write to them.
const CHANGING: [u16; 3] = [
    pc::InterruptStatus::OFFSET,
    pc::InterruptRawStatus::OFFSET,
    pc::TaskStatus::OFFSET,
];

/// Work for a core's thread, in order.
#[derive(Debug)]
enum Event {
    /// Run tasks. The guest freezes at once, not only when they start.
    Run {
        kick: Kick,
        computing: ComputingTask,
        /// Number of resets of the core before this kick.
        resets: u32,
    },
    /// The guest unmasked an interrupt that was pending.
    Pulse,
}

/// The guest's side of a core.
#[derive(Debug)]
pub(crate) struct CorePort {
    queue: Sender<Event>,
    shared: Arc<Shared>,
}

/// State that the guest's side and the thread of a core share.
#[derive(Debug)]
struct Shared {
    index: u32,
    ram: Ram,
    mmu: Mmu,
    registers: RegisterWindow,
    clock: Arc<GuestClock>,
    core: Mutex<Guarded>,
    /// Number of resets of the core. Changes under the lock.
    resets: AtomicU32,
    was_reset: Condvar,
    /// The jobs that never start, of all cores.
    stalls: Option<Arc<Stalls>>,
}

#[derive(Debug)]
struct Guarded {
    silicon: Box<dyn NpuCore>,
    /// Level of the interrupt line when it was last published.
    line: bool,
    /// The attachment of the last job; see [`Mmu::attachment`].
    last_attachment: u64,
}

impl CorePort {
    /// Starts the thread of core number `index`.
    pub(crate) fn start(
        index: u32,
        ram: &Ram,
        silicon: Box<dyn NpuCore>,
        stalls: Option<Arc<Stalls>>,
        (clock, lines): (Arc<GuestClock>, Lines),
    ) -> io::Result<Self> {
        let start = board::core(index);
        let registers = RegisterWindow::new(ram.clone(), start);
        for offset in [pc::Version::OFFSET, pc::VersionNum::OFFSET] {
            registers.set(offset.into(), silicon.mmio_read(offset.into()));
        }
        let shared = Arc::new(Shared {
            index,
            ram: ram.clone(),
            mmu: Mmu::new(ram, start),
            registers,
            clock,
            core: Mutex::new(Guarded {
                silicon,
                line: false,
                last_attachment: 0,
            }),
            stalls,
            resets: AtomicU32::new(0),
            was_reset: Condvar::new(),
        });
        let (queue, events) = mpsc::channel();
        let work = Arc::clone(&shared);
        thread::Builder::new().spawn(move || {
            // QEMU names its interrupt controller only when it runs.
            if let Some(interrupts) = lines.wait() {
                work.work(&events, interrupts);
            }
        })?;
        Ok(Self { queue, shared })
    }

    /// Handles a register write by the guest, at `offset` from the core's base.
    pub(crate) fn written(&self, offset: u64, value: u32) {
        let bank = |start| (start..start + board::MMU_BYTES).contains(&offset);
        if let Some(number) = board::MMU_BANKS.into_iter().position(bank) {
            let offset = offset - board::MMU_BANKS[number];
            self.shared.mmu.written(number, offset, value);
            return;
        }
        let Ok(offset) = u32::try_from(offset) else {
            return;
        };
        let mut core = self.shared.lock();
        if let Some(kick) = core.silicon.mmio_write(offset, value)
            && !self.shared.stalls(&mut core)
        {
            self.send(Event::Run {
                kick,
                computing: self.shared.clock.compute(),
                resets: self.shared.resets.load(Ordering::Acquire),
            });
        }
        if self.shared.publish(&mut core) {
            self.send(Event::Pulse);
        }
    }

    /// Handles the assertion of a reset line: ends the core's tasks. The guest
    /// sees none of their effects afterwards.
    pub(crate) fn reset(&self) {
        let mut core = self.shared.lock();
        self.shared.resets.fetch_add(1, Ordering::AcqRel);
        core.silicon.reset();
        self.shared
            .registers
            .set(pc::InterruptMask::OFFSET.into(), 0);
        self.shared.publish(&mut core);
        self.shared.was_reset.notify_all();
    }

    fn send(&self, event: Event) {
        // The thread is missing only without QEMU or its interrupt controller,
        // which was reported.
        let _ = self.queue.send(event);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Guarded> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a task that the guest has started belongs to a job that never starts. The driver
    /// attaches the address space at the start of each job.
    fn stalls(&self, core: &mut Guarded) -> bool {
        let attachment = self.mmu.attachment();
        let last = std::mem::replace(&mut core.last_attachment, attachment);
        let stalls = self.stalls.as_ref().filter(|_| attachment != last);
        let program = core.silicon.mmio_read(pc::BaseAddress::OFFSET.into());
        stalls.is_some_and(|stalls| stalls.strikes(self.mmu.tables().into(), program))
    }

    /// Updates the guest's registers. Returns whether the interrupt line rises.
    fn publish(&self, core: &mut Guarded) -> bool {
        for offset in CHANGING {
            let value = core.silicon.mmio_read(offset.into());
            self.registers.set(offset.into(), value);
        }
        let was = std::mem::replace(&mut core.line, core.silicon.irq_level());
        core.line && !was
    }

    /// Handles all events; the thread runs this.
    fn work(&self, events: &Receiver<Event>, interrupts: &Interrupts) {
        for event in events {
            let (rises, computing) = match event {
                Event::Run {
                    kick,
                    computing,
                    resets,
                } => self.run(kick, computing, resets),
                Event::Pulse => (true, None),
            };
            if rises {
                report_error(interrupts.pulse(board::interrupt(self.index)));
            }
            // To a guest that is still frozen, the interrupt takes no time.
            drop(computing);
        }
    }

    /// Runs tasks. Returns whether they interrupt, and what keeps the guest
    /// frozen, if it still is.
    fn run(
        &self,
        kick: Kick,
        computing: ComputingTask,
        resets: u32,
    ) -> (bool, Option<ComputingTask>) {
        let is_over = || self.resets.load(Ordering::Acquire) != resets;
        let mut bus = TaskBus::new(&self.ram, &self.mmu, is_over);
        // A panic would end this thread, and the guest would wait silently.
        let ran = catch_unwind(AssertUnwindSafe(|| kick.run(&mut bus, BUDGET)));
        let Ok(mut finished) = ran else {
            eprintln!(
                "npu core {}: the model of the chip panicked (see above), so the tasks never end \
                 and the guest's driver resets the core; please report it with the guest's program",
                self.index
            );
            return (false, None);
        };
        let fault = bus.fault();
        let outcome = std::mem::take(&mut finished.outcome);
        for line in outcome.diagnosis {
            eprintln!("npu core {}: {line}", self.index);
        }
        let end = computing.start.saturating_add(outcome.device_time);
        let mut computing = Some(computing);
        if self.clock.now() < end {
            // The model was faster than the device: wait for the device's end.
            computing = None;
            self.wait_until(end, is_over);
        }
        let mut core = self.lock();
        if is_over() {
            return (false, computing);
        }
        core.silicon.complete(finished);
        let rises = self.publish(&mut core);
        let faults = fault.is_some_and(|fault| self.mmu.fault(fault.address, fault.direction));
        (rises || faults, computing)
    }

    /// Waits until the guest's clock reaches `end`, or for a reset.
    fn wait_until(&self, end: Duration, is_over: impl Fn() -> bool) {
        loop {
            // Without the lock: the guest stops only after its processors have
            // finished their stores, which may need it.
            self.clock.wait_thawed();
            let core = self.lock();
            let left = end.saturating_sub(self.clock.now());
            if left.is_zero() || is_over() {
                return;
            }
            let waited = self.was_reset.wait_timeout(core, left);
            drop(waited.unwrap_or_else(PoisonError::into_inner));
        }
    }
}
