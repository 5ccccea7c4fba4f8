// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cores with memory, in place of driver and board.

use std::time::Duration;

use rknpu_chip::{
    Bus, ChipOptions, Core, Diagnosis, Direction, Fault, FinishedKick, Kick, Level, Master, NpuCore,
};
use rknpu_regcmd::regs::pc;
use rknpu_regcmd::{Register, Word};

pub(crate) use families::DPU_DONE;

/// S_POINTER as the kernel writes it for core 0: tasks alternate groups.
pub(crate) const PING_PONG: u32 = 0xe;

/// An access: master, direction, first byte and end.
pub(crate) type Access = (Master, Direction, u64, u64);

/// A program for the PC; all other reads give zeros.
pub(crate) struct Zeros {
    program: Vec<u8>,
    pub(crate) accesses: Vec<Access>,
}

pub(crate) const PROGRAM: u32 = 0xf000_0000;

impl Zeros {
    pub(crate) fn new(words: &[Word]) -> Self {
        Self {
            program: families::bytes(words),
            accesses: Vec::new(),
        }
    }
}

fn access(master: Master, direction: Direction, iova: u32, len: usize) -> Access {
    let start = u64::from(iova);
    (master, direction, start, start + len as u64)
}

impl Bus for Zeros {
    fn read(&mut self, master: Master, iova: u32, out: &mut [u8]) -> Result<(), Fault> {
        let access = access(master, Direction::Read, iova, out.len());
        self.accesses.push(access);
        out.fill(0);
        if master == Master::Fetch {
            let at = (iova - PROGRAM) as usize;
            let words = self.program.get(at..).unwrap_or_default();
            let len = words.len().min(out.len());
            out[..len].copy_from_slice(&words[..len]);
        }
        Ok(())
    }

    fn write(&mut self, master: Master, iova: u32, data: &[u8]) -> Result<(), Fault> {
        let access = access(master, Direction::Write, iova, data.len());
        self.accesses.push(access);
        Ok(())
    }
}

/// Memory from IOVA 0 on, with a log of its accesses.
pub(crate) struct Memory {
    pub(crate) bytes: Vec<u8>,
    pub(crate) accesses: Vec<Access>,
    /// See [`Bus::attachment`].
    pub(crate) attachment: u64,
}

impl Bus for Memory {
    fn read(&mut self, master: Master, iova: u32, out: &mut [u8]) -> Result<(), Fault> {
        let access = access(master, Direction::Read, iova, out.len());
        self.accesses.push(access);
        self.bytes.read(master, iova, out)
    }

    fn write(&mut self, master: Master, iova: u32, data: &[u8]) -> Result<(), Fault> {
        let access = access(master, Direction::Write, iova, data.len());
        self.accesses.push(access);
        self.bytes.write(master, iova, data)
    }

    fn attachment(&self) -> u64 {
        self.attachment
    }
}

/// The result of a kick.
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

    /// Checks that the kick completed without a diagnosis.
    #[track_caller]
    pub(crate) fn assert_clean(&self) {
        assert!(self.completed(), "{:#?}", self.diagnosis);
        assert!(self.diagnosis.is_empty(), "{:#?}", self.diagnosis);
    }
}

pub(crate) struct Board {
    pub(crate) cores: Vec<Core>,
    budget: Duration,
    pub(crate) memory: Memory,
    next: usize,
}

/// Cores of an RK3588.
const CORES: usize = 3;
/// Budget of a kick: the mainline driver's time limit for a job.
const BUDGET: Duration = Duration::from_millis(500);

pub(crate) fn at(level: Level) -> ChipOptions {
    ChipOptions {
        level,
        ..ChipOptions::default()
    }
}

/// Value of fresh memory, which shows bytes that nothing wrote.
pub(crate) const SENTINEL: u8 = 0xaa;

impl Board {
    pub(crate) fn new(bytes: usize) -> Self {
        Self::with_options(bytes, &ChipOptions::default())
    }

    pub(crate) fn strict(bytes: usize) -> Self {
        Self::with_options(bytes, &at(Level::Strict))
    }

    pub(crate) fn with_options(bytes: usize, options: &ChipOptions) -> Self {
        Self {
            cores: (0..CORES).map(|_| Core::new(options)).collect(),
            budget: BUDGET,
            memory: Memory {
                bytes: vec![SENTINEL; bytes],
                accesses: Vec::new(),
                attachment: 0,
            },
            next: 0,
        }
    }

    /// Sets the budget of a kick.
    pub(crate) fn within(self, budget: Duration) -> Self {
        Self { budget, ..self }
    }

    /// A place for `len` bytes. The first is 0, like a first buffer object's.
    pub(crate) fn reserve(&mut self, len: usize) -> u32 {
        let at = self.next;
        self.next = (at + len).next_multiple_of(4096);
        let bytes = &mut self.memory.bytes;
        assert!(self.next <= bytes.len(), "the board has too little memory");
        bytes[at..at + len].fill(SENTINEL);
        at as u32
    }

    pub(crate) fn place(&mut self, data: &[u8]) -> u32 {
        let at = self.reserve(data.len());
        self.memory.bytes[at as usize..][..data.len()].copy_from_slice(data);
        at
    }

    pub(crate) fn bytes(&self, at: u32, len: usize) -> Vec<u8> {
        self.memory.bytes[at as usize..][..len].to_vec()
    }

    /// Runs a program on core 0 as the mainline driver does.
    pub(crate) fn run(&mut self, words: &[Word]) -> Outcome {
        let at = self.place_program(words);
        self.kick(0, at, words.len(), 1)
    }

    pub(crate) fn place_program(&mut self, words: &[Word]) -> u32 {
        self.place(&families::bytes(words))
    }

    /// Runs `tasks` chained tasks, the first of `words` words at `at`.
    pub(crate) fn kick(&mut self, index: usize, at: u32, words: usize, tasks: u32) -> Outcome {
        let outcome = self.kick_alone(index, at, words, tasks);
        let core = &mut self.cores[index];
        if outcome.completed() {
            set::<pc::OperationEnable>(core, 0);
            set::<pc::InterruptClear>(core, 0x1_ffff);
        } else {
            core.reset();
        }
        outcome
    }

    /// [`Self::kick`], without what the driver does afterwards.
    pub(crate) fn kick_alone(
        &mut self,
        index: usize,
        at: u32,
        words: usize,
        tasks: u32,
    ) -> Outcome {
        let kick = self.prepare(index, at, words, tasks);
        let finished = kick.run(&mut self.memory, self.budget);
        self.end(index, finished).unwrap()
    }

    /// Starts a core with [`prepare`].
    pub(crate) fn prepare(&mut self, index: usize, at: u32, words: usize, tasks: u32) -> Kick {
        prepare(&mut self.cores[index], index, (at, words), tasks)
    }

    /// Completes a kick on its core.
    pub(crate) fn end(&mut self, index: usize, finished: FinishedKick) -> Option<Outcome> {
        end(&mut self.cores[index], finished)
    }
}

/// Runs a kick of core 0, of one task of `words` words at `at`.
pub(crate) fn run_on(core: &mut Core, bus: &mut dyn Bus, (at, words): (u32, usize)) -> Outcome {
    let finished = prepare(core, 0, (at, words), 1).run(bus, BUDGET);
    end(core, finished).unwrap()
}

/// Starts a program with the register writes of the mainline driver.
fn prepare(core: &mut Core, index: usize, (at, words): (u32, usize), tasks: u32) -> Kick {
    let writes = families::kick(index as u32, at, words, tasks);
    let [.., kick] = writes.map(|(offset, value)| core.mmio_write(offset, value));
    kick.unwrap()
}

fn end(core: &mut Core, finished: FinishedKick) -> Option<Outcome> {
    let ran = core.complete(finished)?;
    Some(Outcome {
        raw_status: core.mmio_read(pc::InterruptRawStatus::OFFSET.into()),
        diagnosis: ran.diagnosis,
        device_time: ran.device_time,
    })
}

/// A register write that starts nothing.
fn set<R: Register>(core: &mut Core, value: u32) {
    assert!(core.mmio_write(R::INFO.offset.into(), value).is_none());
}
