// SPDX-License-Identifier: MIT OR Apache-2.0
//! A core with memory: what stands in for driver and board.

use std::sync::Mutex;
use std::time::Duration;

use rknpu_chip::{Bus, Chip, ChipOptions, Core, Diagnosis, Direction, Fault, Level, Master};
use rknpu_regcmd::regs::{cna, core, pc};
use rknpu_regcmd::{Register, Word};

/// Interrupts DPU_0 and DPU_1.
pub(crate) const DPU_DONE: u32 = 0x300;
const PING_PONG: u32 = 0xe;

/// Memory from IOVA 0 on, and who touched it.
pub(crate) struct Memory {
    pub(crate) bytes: Mutex<Vec<u8>>,
    pub(crate) accesses: Mutex<Vec<(Master, Direction, u64, u64)>>,
}

impl Memory {
    fn access(
        &self,
        master: Master,
        direction: Direction,
        iova: u32,
        len: usize,
    ) -> Result<std::ops::Range<usize>, Fault> {
        let (start, end) = (iova as usize, iova as usize + len);
        let size = self.bytes.lock().unwrap().len();
        self.accesses
            .lock()
            .unwrap()
            .push((master, direction, start as u64, end as u64));
        if end > size {
            return Err(Fault {
                address: size.max(start) as u64,
                direction,
                master,
            });
        }
        Ok(start..end)
    }
}

impl Bus for Memory {
    fn read(&self, master: Master, iova: u32, out: &mut [u8]) -> Result<(), Fault> {
        let range = self.access(master, Direction::Read, iova, out.len())?;
        out.copy_from_slice(&self.bytes.lock().unwrap()[range]);
        Ok(())
    }

    fn write(&self, master: Master, iova: u32, data: &[u8]) -> Result<(), Fault> {
        let range = self.access(master, Direction::Write, iova, data.len())?;
        self.bytes.lock().unwrap()[range].copy_from_slice(data);
        Ok(())
    }
}

/// What a kick left behind.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) raw_status: u32,
    pub(crate) diagnosis: Vec<Diagnosis>,
    pub(crate) device_time: Duration,
}

impl Outcome {
    pub(crate) fn completed(&self) -> bool {
        self.raw_status & DPU_DONE != 0
    }

    pub(crate) fn traps(&self) -> Vec<&'static str> {
        self.diagnosis.iter().map(|d| d.trap).collect()
    }

    /// Completed, and nothing to complain about.
    #[track_caller]
    pub(crate) fn assert_clean(&self) {
        assert!(self.completed(), "{:#?}", self.diagnosis);
        assert!(self.diagnosis.is_empty(), "{:#?}", self.diagnosis);
    }
}

pub(crate) struct Board {
    pub(crate) chip: Chip,
    pub(crate) memory: Memory,
    next: usize,
}

/// What fresh memory holds, so that bytes nobody wrote are seen.
pub(crate) const SENTINEL: u8 = 0xaa;

impl Board {
    pub(crate) fn new(bytes: usize) -> Self {
        Self::with_options(bytes, &ChipOptions::default())
    }

    pub(crate) fn strict(bytes: usize) -> Self {
        let options = ChipOptions {
            level: Level::Strict,
            ..ChipOptions::default()
        };
        Self::with_options(bytes, &options)
    }

    pub(crate) fn with_options(bytes: usize, options: &ChipOptions) -> Self {
        Self {
            chip: Chip::new(options),
            memory: Memory {
                bytes: Mutex::new(vec![SENTINEL; bytes]),
                accesses: Mutex::new(Vec::new()),
            },
            next: 0,
        }
    }

    /// A place for `len` bytes. Like a first buffer object's, the first
    /// address is 0.
    pub(crate) fn reserve(&mut self, len: usize) -> u32 {
        let at = self.next;
        self.next = (at + len).next_multiple_of(4096);
        let mut bytes = self.memory.bytes.lock().unwrap();
        assert!(self.next <= bytes.len(), "the board has too little memory");
        bytes[at..at + len].fill(SENTINEL);
        at as u32
    }

    /// Leaves the bytes below `at` to those who address them by hand.
    pub(crate) fn skip(&mut self, at: usize) {
        self.next = self.next.max(at);
    }

    pub(crate) fn place(&mut self, data: &[u8]) -> u32 {
        let at = self.reserve(data.len());
        self.memory.bytes.lock().unwrap()[at as usize..][..data.len()].copy_from_slice(data);
        at
    }

    pub(crate) fn bytes(&self, at: u32, len: usize) -> Vec<u8> {
        self.memory.bytes.lock().unwrap()[at as usize..][..len].to_vec()
    }

    /// Runs a program on core 0 as the mainline driver does.
    pub(crate) fn run(&mut self, words: &[Word]) -> Outcome {
        let at = self.place_program(words);
        self.kick(0, at, words.len(), 1)
    }

    pub(crate) fn place_program(&mut self, words: &[Word]) -> u32 {
        let mut bytes: Vec<u8> = words.iter().flat_map(|w| w.bits().to_le_bytes()).collect();
        // An odd program has one word fetched behind it.
        bytes.resize(bytes.len().next_multiple_of(16), 0);
        self.place(&bytes)
    }

    /// One kick of `tasks` chained tasks, the first of `words` words at `at`.
    pub(crate) fn kick(&mut self, index: usize, at: u32, words: usize, tasks: u32) -> Outcome {
        let outcome = self.start(index, at, words, tasks);
        let mut core = self.chip.cores()[index].lock().unwrap();
        if outcome.completed() {
            write::<pc::OperationEnable>(&mut core, 0, &self.memory);
            write::<pc::InterruptClear>(&mut core, 0x1_ffff, &self.memory);
        } else {
            core.reset();
        }
        outcome
    }

    /// A kick of one task on core 0, whatever comes of it.
    pub(crate) fn kick_without_reset(&mut self, at: u32, words: usize) -> Outcome {
        self.start(0, at, words, 1)
    }

    fn start(&mut self, index: usize, at: u32, words: usize, tasks: u32) -> Outcome {
        let mut core = self.chip.cores()[index].lock().unwrap();
        let bus = &self.memory;
        write::<pc::BaseAddress>(&mut core, 1, bus);
        write::<cna::SPointer>(&mut core, PING_PONG | (index as u32) << 28, bus);
        write::<core::SPointer>(&mut core, PING_PONG | (index as u32) << 28, bus);
        write::<pc::BaseAddress>(&mut core, at, bus);
        write::<pc::RegisterAmounts>(&mut core, (words as u32).div_ceil(2).wrapping_sub(1), bus);
        write::<pc::InterruptMask>(&mut core, DPU_DONE, bus);
        write::<pc::InterruptClear>(&mut core, DPU_DONE, bus);
        write::<pc::TaskCon>(&mut core, 0x7000 | tasks, bus);
        write::<pc::TaskDmaBaseAddr>(&mut core, 0, bus);
        write::<pc::OperationEnable>(&mut core, 1, bus);
        let raw_status = core.mmio_read(pc::InterruptRawStatus::OFFSET.into());
        Outcome {
            raw_status,
            diagnosis: core.diagnosis(),
            device_time: core.device_time(),
        }
    }
}

fn write<R: Register>(core: &mut Core, value: u32, bus: &dyn Bus) {
    core.mmio_write(R::INFO.offset.into(), value, bus);
}
