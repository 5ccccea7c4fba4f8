// SPDX-License-Identifier: MIT OR Apache-2.0
//! The whole NPU: passes the guest's stores to its cores.

use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use rknpu_chip::{NpuCore, Stalls};
use vm_memory::mmap::FromRangesError;

use crate::board;
use crate::clock::GuestClock;
use crate::core::CorePort;
use crate::monitor::{Interrupts, Lines, Monitor, report_error};
use crate::ram::Ram;

/// Connections between the device side and QEMU.
#[derive(Debug)]
pub struct Wires {
    /// The guest's memory: the shared file that is QEMU's RAM.
    pub ram: File,
    /// A connection to QEMU's monitor (QMP).
    pub qmp: UnixStream,
    /// A connection to QEMU's test server (qtest).
    pub qtest: UnixStream,
}

/// Errors of [`GuestNpu::start`].
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The guest's memory cannot be mapped.
    #[error("cannot map the guest's memory: {0}; it must be a file of {bytes} bytes", bytes = board::RAM_BYTES)]
    Ram(#[from] FromRangesError),
    /// No core is given, or more than the register map has room for.
    #[error("{0} cores, but the register map has room for 1 to {max}", max = board::MAX_CORES)]
    Cores(usize),
    /// A thread cannot be started.
    #[error("no thread could be started: {0}; end programs, or raise `ulimit -u`")]
    Thread(io::Error),
}

/// The NPU of a guest.
#[derive(Debug)]
pub struct GuestNpu {
    ram: Ram,
    ports: Vec<CorePort>,
    /// Reset lines that are asserted.
    resets: Mutex<u32>,
}

impl GuestNpu {
    /// Starts `cores`, in order, on the guest's memory. QEMU may still be
    /// starting. Each job of number `stall` never starts; see [`Stalls`].
    ///
    /// # Errors
    /// If the memory cannot be mapped, no core or too many are given, or a
    /// thread cannot be started.
    pub fn start(
        cores: Vec<Box<dyn NpuCore>>,
        stall: Option<NonZeroU64>,
        wires: Wires,
    ) -> Result<Self, StartError> {
        if cores.is_empty() || cores.len() > board::MAX_CORES as usize {
            return Err(StartError::Cores(cores.len()));
        }
        let ram = Ram::map(wires.ram)?;
        let lines = Lines::default();
        let clock = Arc::new(GuestClock::new());
        let stalls = stall.map(|every| Arc::new(Stalls::new(every)));
        let ports = (0..)
            .zip(cores)
            .map(|(index, silicon)| {
                let (clock, lines) = (Arc::clone(&clock), Arc::clone(&lines));
                CorePort::start(index, &ram, silicon, stalls.clone(), (clock, lines))
            })
            .collect::<io::Result<_>>()
            .map_err(StartError::Thread)?;
        let (qmp, qtest) = (wires.qmp, wires.qtest);
        let told = Arc::clone(&lines);
        thread::Builder::new()
            .spawn(move || report_error(serve(qmp, qtest, &lines, &clock)))
            .map_err(|error| {
                // The cores' threads wait for it.
                let _ = told.set(None);
                StartError::Thread(error)
            })?;
        Ok(Self {
            ram,
            ports,
            resets: Mutex::new(0),
        })
    }

    /// Handles a word that one of the guest's processors stored at the physical
    /// `address`, in [`board::REGISTERS`]. When this returns, the guest can read the
    /// effects. It never waits for QEMU.
    ///
    /// The word is read from the guest's memory: nothing else writes to a register
    /// that the driver writes.
    pub fn stored(&self, address: u64) {
        let Some(value) = self.ram.load(address) else {
            return;
        };
        if address == board::RESETS {
            let mut resets = self.resets.lock().unwrap_or_else(PoisonError::into_inner);
            let asserted = value & !*resets;
            *resets = value;
            for (index, port) in (0..).zip(&self.ports) {
                if asserted & board::reset_bits(index) != 0 {
                    port.reset();
                }
            }
            return;
        }
        let Some(offset) = address.checked_sub(board::core(0)) else {
            return;
        };
        let port = usize::try_from(offset / board::CORE_BYTES).ok();
        if let Some(port) = port.and_then(|index| self.ports.get(index)) {
            port.written(offset % board::CORE_BYTES, value);
        }
    }
}

/// Finds the interrupt controller once QEMU's main loop runs, then freezes and
/// thaws the guest until QEMU ends.
fn serve(qmp: UnixStream, qtest: UnixStream, lines: &Lines, clock: &GuestClock) -> io::Result<()> {
    let found = Monitor::connect(qmp).and_then(|mut monitor| {
        let controller = monitor.controller()?;
        Ok((monitor, Interrupts::new(qtest, controller)))
    });
    let (mut monitor, interrupts) = match found {
        Ok(found) => found,
        Err(error) => {
            lines.get_or_init(|| None);
            return Err(error);
        }
    };
    lines.get_or_init(|| Some(interrupts));
    clock.keep(|frozen| monitor.freeze(frozen))
}

#[cfg(test)]
mod tests {
    use std::fmt;
    use std::io::{BufRead, BufReader, Write};
    use std::sync::mpsc::{self, Receiver, Sender};
    use std::time::{Duration, Instant};

    use rknpu_chip::{Bus, ChipOptions, Core, FinishedKick, Kick, KickOutcome};
    use rknpu_regcmd::DmaEngine;
    use rknpu_regcmd::regs::pc;

    use super::*;

    /// DPU_0, which the driver waits for.
    const DONE: u32 = 0x100;

    type Task = dyn Fn(&mut dyn Bus) -> KickOutcome + Send + Sync;

    /// A core whose tasks the test controls.
    struct Scripted {
        task: Arc<Task>,
        raw: u32,
        mask: u32,
    }

    impl fmt::Debug for Scripted {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("Scripted")
        }
    }

    impl NpuCore for Scripted {
        fn mmio_write(&mut self, offset: u32, value: u32) -> Option<Kick> {
            match offset as u16 {
                pc::OperationEnable::OFFSET if value == 1 => {
                    let task = Arc::clone(&self.task);
                    return Some(Kick::new(move |bus, _| task(bus)));
                }
                pc::InterruptMask::OFFSET => self.mask = value,
                pc::InterruptClear::OFFSET => self.raw &= !value,
                _ => {}
            }
            None
        }

        fn complete(&mut self, finished: FinishedKick) -> Option<KickOutcome> {
            self.raw = DONE;
            Some(finished.outcome)
        }

        fn mmio_read(&self, offset: u32) -> u32 {
            match offset as u16 {
                pc::InterruptRawStatus::OFFSET => self.raw,
                pc::InterruptStatus::OFFSET => self.raw & self.mask,
                pc::Version::OFFSET => 0x4952,
                _ => 0,
            }
        }

        fn reset(&mut self) {
            (self.raw, self.mask) = (0, 0);
        }
    }

    /// A machine of one scripted core, with the test as QEMU and guest.
    struct Guest {
        machine: GuestNpu,
        ram: Ram,
        started: Receiver<()>,
        finish: Sender<()>,
        wrote: Receiver<bool>,
        qtest: BufReader<UnixStream>,
        _qmp: UnixStream,
    }

    impl Guest {
        fn new() -> Self {
            Self::with_tasks_of(Duration::ZERO, None)
        }

        /// With a core whose tasks take `device` on the device. Each job of number `stall` never
        /// starts.
        fn with_tasks_of(device: Duration, stall: Option<NonZeroU64>) -> Self {
            let file = tempfile::tempfile().unwrap();
            file.set_len(board::RAM_BYTES).unwrap();
            let ram = Ram::map(file.try_clone().unwrap()).unwrap();
            let (qmp, mut there) = UnixStream::pair().unwrap();
            let gic = r#"{"name": "device[1]", "type": "child<arm-gicv3>"}"#;
            let answers = format!("{{}}\n{{\"return\": {{}}}}\n{{\"return\": [{gic}]}}\n");
            there.write_all(answers.as_bytes()).unwrap();
            let (qtest, test) = UnixStream::pair().unwrap();
            let (started_here, started) = mpsc::channel();
            let (finish, finish_there) = mpsc::channel();
            let (wrote_here, wrote) = mpsc::channel();
            let answers = Mutex::new(finish_there);
            // A task reports its start, waits for the test's answer, and reports
            // whether it could write a byte.
            let task = move |bus: &mut dyn Bus| {
                started_here.send(()).unwrap();
                answers.lock().unwrap().recv().unwrap();
                let wrote = bus.write(DmaEngine::DpuWrite.into(), 0x1000, &[7]);
                wrote_here.send(wrote.is_ok()).unwrap();
                KickOutcome {
                    device_time: device,
                    ..KickOutcome::default()
                }
            };
            let core = Scripted {
                task: Arc::new(task),
                raw: 0,
                mask: 0,
            };
            let wires = Wires {
                ram: file,
                qmp,
                qtest,
            };
            let machine = GuestNpu::start(vec![Box::new(core)], stall, wires).unwrap();
            let guest = Self {
                machine,
                ram,
                started,
                finish,
                wrote,
                qtest: BufReader::new(test),
                _qmp: there,
            };
            // Address 0x1000 is mapped to the page behind the tables.
            let tables = [0, 0x1001, 0x2007].map(|entry| board::RAM as u32 + entry);
            for (at, entry) in [(0, tables[1]), (0x1004, tables[2])] {
                let entry = entry.to_le_bytes();
                guest.ram.write(board::RAM + at, &entry).unwrap();
            }
            guest.store(board::MMU_BANKS[0], tables[0]);
            guest.attach();
            guest
        }

        /// COMMAND: enable paging, as for a new job.
        fn attach(&self) {
            self.store(board::MMU_BANKS[0] + 8, 0);
        }

        /// Stores a word, like a processor of the guest with QEMU's plugin.
        fn store(&self, offset: u64, value: u32) {
            self.store_at(board::core(0) + offset, value);
        }

        fn store_at(&self, address: u64, value: u32) {
            self.ram.write(address, &value.to_le_bytes()).unwrap();
            self.machine.stored(address);
        }

        fn load(&self, offset: u16) -> u32 {
            self.ram.load(board::core(0) + u64::from(offset)).unwrap()
        }

        fn kick(&self) {
            self.store(pc::InterruptMask::OFFSET.into(), DONE);
            self.store(pc::OperationEnable::OFFSET.into(), 1);
            // Only a core without a thread takes longer.
            self.started.recv_timeout(Duration::from_secs(60)).unwrap();
        }

        /// Waits for an interrupt.
        fn interrupt(&mut self) {
            for level in ["1", "0"] {
                let mut line = String::new();
                self.qtest.read_line(&mut line).unwrap();
                let wanted = "set_irq_in /machine/unattached/device[1] unnamed-gpio-in 110";
                assert_eq!(line, format!("{wanted} {level}\n"));
                self.qtest.get_mut().write_all(b"OK\n").unwrap();
            }
        }
    }

    /// A panic of the chip does not end the core: the guest's driver resets it,
    /// and it runs the next task.
    #[test]
    fn a_core_goes_on_after_a_panic() {
        let mut guest = Guest::new();
        // The task waits for an answer, and panics without a sender.
        let (finish, _) = mpsc::channel();
        drop(std::mem::replace(&mut guest.finish, finish));
        guest.kick();
        guest.store(pc::InterruptClear::OFFSET.into(), u32::MAX);
        guest.kick();
        assert_eq!(
            guest.load(pc::InterruptRawStatus::OFFSET),
            0,
            "no task ended"
        );
    }

    #[test]
    fn a_task_ends_with_its_bits_and_an_interrupt() {
        let mut guest = Guest::new();
        assert_eq!(guest.load(pc::Version::OFFSET), 0x4952);
        guest.kick();
        assert_eq!(guest.load(pc::InterruptRawStatus::OFFSET), 0);
        guest.finish.send(()).unwrap();
        guest.interrupt();
        assert!(guest.wrote.recv().unwrap());
        assert_eq!(guest.ram.load(board::RAM + 0x2000), Some(7));
        assert_eq!(guest.load(pc::InterruptRawStatus::OFFSET), DONE);
        assert_eq!(guest.load(pc::InterruptStatus::OFFSET), DONE);
        // At once, without the core's thread.
        guest.store(pc::InterruptMask::OFFSET.into(), 0);
        assert_eq!(guest.load(pc::InterruptStatus::OFFSET), 0);
        guest.store(pc::InterruptClear::OFFSET.into(), DONE);
        assert_eq!(guest.load(pc::InterruptRawStatus::OFFSET), 0);
        // Again: the line was lowered.
        guest.kick();
        guest.finish.send(()).unwrap();
        guest.interrupt();
    }

    #[test]
    fn an_interrupt_that_waited_comes_when_it_is_let_through() {
        let mut guest = Guest::new();
        guest.kick();
        guest.store(pc::InterruptMask::OFFSET.into(), 0);
        guest.finish.send(()).unwrap();
        while guest.load(pc::InterruptRawStatus::OFFSET) == 0 {
            thread::yield_now();
        }
        assert_eq!(guest.load(pc::InterruptStatus::OFFSET), 0);
        guest.store(pc::InterruptMask::OFFSET.into(), DONE);
        assert_eq!(guest.load(pc::InterruptStatus::OFFSET), DONE);
        guest.interrupt();
    }

    #[test]
    fn nothing_of_a_task_is_seen_after_a_reset() {
        let mut guest = Guest::new();
        guest.kick();
        guest.store_at(board::RESETS, 1);
        guest.store_at(board::RESETS, 0);
        guest.finish.send(()).unwrap();
        assert!(!guest.wrote.recv().unwrap());
        // The next task comes after it in the queue.
        guest.kick();
        assert_eq!(guest.load(pc::InterruptRawStatus::OFFSET), 0);
        assert_eq!(guest.ram.load(board::RAM + 0x2000), Some(0));
        guest.finish.send(()).unwrap();
        guest.interrupt();
        assert_eq!(guest.load(pc::InterruptRawStatus::OFFSET), DONE);
    }

    #[test]
    fn a_task_takes_as_long_as_on_the_device() {
        let device = Duration::from_millis(20);
        let mut guest = Guest::with_tasks_of(device, None);
        let start = Instant::now();
        guest.kick();
        guest.finish.send(()).unwrap();
        guest.interrupt();
        assert!(start.elapsed() >= device);
    }

    #[test]
    fn a_reset_ends_a_task_that_takes_long() {
        let guest = Guest::with_tasks_of(Duration::from_secs(3600), None);
        guest.kick();
        guest.finish.send(()).unwrap();
        assert!(guest.wrote.recv().unwrap());
        guest.store_at(board::RESETS, 2);
        guest.kick();
        assert_eq!(guest.load(pc::InterruptRawStatus::OFFSET), 0);
    }

    /// Only the first task of a job decides, and the same job again starts.
    #[test]
    fn a_job_that_never_starts_is_no_task_of_the_core() {
        let mut guest = Guest::with_tasks_of(Duration::ZERO, NonZeroU64::new(2));
        let run = |guest: &mut Guest| {
            guest.kick();
            guest.finish.send(()).unwrap();
            guest.interrupt();
            guest.store(pc::InterruptClear::OFFSET.into(), DONE);
        };
        // Two tasks of the first job.
        run(&mut guest);
        run(&mut guest);
        guest.attach();
        guest.store(pc::OperationEnable::OFFSET.into(), 1);
        assert_eq!(guest.load(pc::InterruptRawStatus::OFFSET), 0);
        guest.store_at(board::RESETS, 1);
        guest.store_at(board::RESETS, 0);
        // If the core had run the second job, its start would be taken for this one's.
        guest.attach();
        run(&mut guest);
        assert_eq!(guest.started.try_recv(), Err(mpsc::TryRecvError::Empty));
    }

    #[test]
    fn an_access_without_translation_interrupts_as_the_iommu() {
        let mut guest = Guest::new();
        let bank = board::MMU_BANKS[0];
        // INT_MASK; no page is there; COMMAND: enable paging.
        guest.store(bank + 0x1c, 3);
        guest.ram.write(board::RAM + 0x1004, &[0; 4]).unwrap();
        guest.store(bank + 8, 0);
        guest.kick();
        guest.finish.send(()).unwrap();
        assert!(!guest.wrote.recv().unwrap());
        guest.interrupt();
        let register = |at: u64| guest.load((bank + at) as u16);
        assert_eq!(register(0x0c), 0x1000, "PAGE_FAULT_ADDR");
        assert_eq!(register(0x20), 1, "INT_STATUS");
    }

    #[test]
    fn stores_elsewhere_are_nobodys() {
        let guest = Guest::new();
        for address in [0, board::core(1), board::RESETS + 4, u64::MAX] {
            // Some are not in RAM.
            let _ = guest.ram.write(address, &1u32.to_le_bytes());
            guest.machine.stored(address);
        }
        assert_eq!(guest.started.try_recv(), Err(mpsc::TryRecvError::Empty));
    }

    #[test]
    fn the_map_has_room_for_three_cores() {
        let wires = || {
            let (qmp, qtest) = UnixStream::pair().unwrap();
            let ram = tempfile::tempfile().unwrap();
            ram.set_len(board::RAM_BYTES).unwrap();
            Wires { ram, qmp, qtest }
        };
        let start = |count| {
            let core = |_| Box::new(Core::new(&ChipOptions::default())) as _;
            GuestNpu::start((0..count).map(core).collect(), None, wires())
        };
        assert!(matches!(start(0), Err(StartError::Cores(0))));
        assert!(matches!(start(4), Err(StartError::Cores(4))));
        assert!(start(3).is_ok());
    }
}
