// SPDX-License-Identifier: MIT OR Apache-2.0
//! One NPU core: its registers in the guest's memory, and the thread that
//! works for it.
//!
//! What the guest writes reaches the core in order, through a queue: a task
//! runs while the guest does. What the guest reads is memory, which has two
//! writers. The thread sets interrupt bits when a task has ended; the guest
//! clears them, at once, by its register write, and a reset does so too.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use rknpu_chip::Fault;
use rknpu_regcmd::Register;
use rknpu_regcmd::regs::pc;

use crate::board;
use crate::bus::TaskBus;
use crate::clock::{Clock, Computing};
use crate::mmu::{Mmu, Written};
use crate::ram::{Ram, Window};
use crate::silicon::Silicon;

/// What moves a core's interrupt line.
pub(crate) type Pulse = Box<dyn FnMut() + Send>;

/// What happens to a core, in order.
#[derive(Debug)]
enum Event {
    Write {
        offset: u32,
        value: u32,
    },
    /// A task starts. The guest freezes from here on, not only when the
    /// thread gets to it.
    Start(Computing),
    BeginJob,
    Reset,
}

/// The guest's side of a core.
#[derive(Debug)]
pub(crate) struct Port {
    queue: Sender<Event>,
    shared: Arc<Shared>,
    clock: Arc<Clock>,
}

/// What both sides use.
#[derive(Debug)]
struct Shared {
    index: u32,
    ram: Ram,
    mmu: Mmu,
    registers: Window,
    /// How often the core was reset. An event of the queue lags behind.
    resets: AtomicU32,
    /// Held by whoever changes interrupt bits.
    interrupts: Mutex<()>,
    was_reset: Condvar,
}

impl Port {
    /// Starts the thread of core number `index`.
    pub(crate) fn start(
        index: u32,
        ram: &Ram,
        mut silicon: Box<dyn Silicon>,
        clock: Arc<Clock>,
        pulse: impl FnOnce() -> Option<Pulse> + Send + 'static,
    ) -> Self {
        let start = board::core(index);
        let shared = Arc::new(Shared {
            index,
            ram: ram.clone(),
            mmu: Mmu::new(ram, start),
            registers: Window::new(ram.clone(), start),
            resets: AtomicU32::new(0),
            interrupts: Mutex::new(()),
            was_reset: Condvar::new(),
        });
        for offset in [pc::Version::OFFSET, pc::VersionNum::OFFSET] {
            let value = silicon.read(offset.into());
            shared.registers.set(offset.into(), value);
        }
        let (queue, events) = mpsc::channel();
        let work = Arc::clone(&shared);
        let time = Arc::clone(&clock);
        thread::spawn(move || {
            // QEMU tells where its interrupt controller is when it runs.
            let Some(pulse) = pulse() else { return };
            let worker = Worker {
                shared: &work,
                silicon,
                clock: &time,
                pulse,
                resets: 0,
                line: false,
            };
            worker.run(&events);
        });
        Self {
            queue,
            shared,
            clock,
        }
    }

    /// The guest wrote a register, at `offset` from the core's base.
    pub(crate) fn written(&self, offset: u64, value: u32) {
        let bank = |start| (start..start + board::MMU_BYTES).contains(&offset);
        if let Some(number) = board::MMU_BANKS.into_iter().position(bank) {
            let written = self
                .shared
                .mmu
                .written(number, offset - board::MMU_BANKS[number], value);
            if written == Written::PagingEnabled && number == 0 {
                self.send(Event::BeginJob);
            }
            return;
        }
        let Ok(offset) = u32::try_from(offset) else {
            return;
        };
        if offset == u32::from(pc::InterruptClear::OFFSET) {
            let _changing = self.shared.lock();
            let raw = self.shared.raw_status();
            self.shared.set_raw_status(raw & !value);
        } else if offset == u32::from(pc::InterruptMask::OFFSET) {
            let _changing = self.shared.lock();
            self.shared.set_raw_status(self.shared.raw_status());
        }
        let starts =
            offset == OPERATION_ENABLE && pc::OperationEnable::from_bits(value).op_en() == 1;
        self.send(match starts {
            true => Event::Start(self.clock.compute()),
            false => Event::Write { offset, value },
        });
    }

    /// A reset line was asserted. What the core does ends here, and the guest
    /// sees none of it afterwards.
    pub(crate) fn reset(&self) {
        let _changing = self.shared.lock();
        self.shared.resets.fetch_add(1, Ordering::AcqRel);
        self.shared.registers.set(INTERRUPT_MASK, 0);
        self.shared.set_raw_status(0);
        self.send(Event::Reset);
        self.shared.was_reset.notify_all();
    }

    fn send(&self, event: Event) {
        // Without a thread there is no QEMU, or no interrupt controller, which
        // was said.
        let _ = self.queue.send(event);
    }
}

const OPERATION_ENABLE: u32 = pc::OperationEnable::OFFSET as u32;
const INTERRUPT_MASK: u64 = pc::InterruptMask::OFFSET as u64;

impl Shared {
    fn lock(&self) -> MutexGuard<'_, ()> {
        self.interrupts
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn raw_status(&self) -> u32 {
        self.registers.get(pc::InterruptRawStatus::OFFSET.into())
    }

    /// Sets the interrupt bits that the guest sees.
    fn set_raw_status(&self, raw: u32) {
        let masked = raw & self.registers.get(INTERRUPT_MASK);
        self.registers
            .set(pc::InterruptRawStatus::OFFSET.into(), raw);
        self.registers
            .set(pc::InterruptStatus::OFFSET.into(), masked);
    }
}

/// The thread's side.
struct Worker<'a> {
    shared: &'a Shared,
    silicon: Box<dyn Silicon>,
    clock: &'a Clock,
    pulse: Pulse,
    /// Resets that came out of the queue.
    resets: u32,
    /// Whether the core interrupts.
    line: bool,
}

impl Worker<'_> {
    fn run(mut self, events: &Receiver<Event>) {
        for event in events {
            let computing = match event {
                Event::BeginJob => {
                    self.silicon.begin_job();
                    None
                }
                Event::Reset => {
                    self.resets = self.resets.wrapping_add(1);
                    self.silicon.reset();
                    None
                }
                Event::Write { offset, value } => {
                    self.write(offset, value);
                    None
                }
                Event::Start(computing) => self.start(computing),
            };
            // What happened before a reset that is still in the queue, nobody
            // waits for.
            let line =
                !self.is_over() && self.silicon.read(pc::InterruptStatus::OFFSET.into()) != 0;
            if line && !self.line {
                (self.pulse)();
            }
            self.line = line;
            // A guest that is still frozen gets the interrupt in no time.
            drop(computing);
        }
    }

    /// Whether the core was reset since what comes out of the queue now.
    fn is_over(&self) -> bool {
        self.shared.resets.load(Ordering::Acquire) != self.resets
    }

    /// A register write. Returns the first access without translation.
    fn write(&mut self, offset: u32, value: u32) -> Option<Fault> {
        let (shared, resets) = (self.shared, self.resets);
        let is_over = || shared.resets.load(Ordering::Acquire) != resets;
        let bus = TaskBus::new(&shared.ram, &shared.mmu, is_over);
        self.silicon.write(offset, value, &bus);
        bus.fault()
    }

    /// A task. Returns what keeps the guest frozen, if that still is so.
    fn start(&mut self, computing: Computing) -> Option<Computing> {
        let (shared, clock) = (self.shared, self.clock);
        let start = computing.start;
        let mut computing = Some(computing);
        let fault = self.write(OPERATION_ENABLE, 1);
        let end = start.saturating_add(self.silicon.device_time());
        let raw = self.silicon.read(pc::InterruptRawStatus::OFFSET.into());
        if raw != 0 && clock.now() < end {
            // What was computed sooner than on the device ends as there.
            computing = None;
            self.wait_until(end);
        }
        self.publish(raw, fault);
        for line in self.silicon.diagnosis() {
            eprintln!("npu core {}: {line}", shared.index);
        }
        computing
    }

    /// Waits until the guest's clock shows `end`, or for a reset.
    fn wait_until(&self, end: Duration) {
        loop {
            // Without the lock: the guest stops only when its processors have
            // finished their stores, which may want it.
            self.clock.wait_thawed();
            let changing = self.shared.lock();
            let left = end.saturating_sub(self.clock.now());
            if left.is_zero() || self.is_over() {
                return;
            }
            let waited = self.shared.was_reset.wait_timeout(changing, left);
            drop(waited.unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// Shows the guest how a task ended, unless the core was reset meanwhile.
    fn publish(&mut self, raw: u32, fault: Option<Fault>) {
        let shared = self.shared;
        let changing = shared.lock();
        if self.is_over() {
            return;
        }
        shared.set_raw_status(shared.raw_status() | raw);
        let done = self.silicon.read(pc::TaskStatus::OFFSET.into());
        shared.registers.set(pc::TaskStatus::OFFSET.into(), done);
        let interrupts =
            fault.is_some_and(|fault| shared.mmu.fault(fault.address, fault.direction));
        drop(changing);
        if interrupts {
            (self.pulse)();
        }
    }
}
