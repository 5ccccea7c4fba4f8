// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cores with memory, in place of driver and board.

use std::time::Duration;

use rknpu_chip::{
    Bus, ChipOptions, Core, Diagnosis, Direction, Fault, FinishedKick, Kick, Level, Master, NpuCore,
};
use rknpu_regcmd::Word;
use rknpu_regcmd::regs::pc;

pub(crate) use families::DPU_DONE;

/// S_POINTER as the kernel writes it for core 0: tasks alternate groups.
pub(crate) const PING_PONG: u32 = 0xe;

/// An access: master, direction, first byte and end.
pub(crate) type Access = (Master, Direction, u64, u64);

/// A bus with a log of its accesses.
pub(crate) struct Logged<B> {
    pub(crate) bytes: B,
    pub(crate) accesses: Vec<Access>,
    /// See [`Bus::attachment`].
    pub(crate) attachment: u64,
}

impl<B> Logged<B> {
    fn log(&mut self, master: Master, direction: Direction, iova: u32, len: usize) {
        let start = u64::from(iova);
        let access = (master, direction, start, start + len as u64);
        self.accesses.push(access);
    }
}

impl<B: Bus> Bus for Logged<B> {
    fn read(&mut self, master: Master, iova: u32, out: &mut [u8]) -> Result<(), Fault> {
        self.log(master, Direction::Read, iova, out.len());
        self.bytes.read(master, iova, out)
    }

    fn write(&mut self, master: Master, iova: u32, data: &[u8]) -> Result<(), Fault> {
        self.log(master, Direction::Write, iova, data.len());
        self.bytes.write(master, iova, data)
    }

    fn attachment(&self) -> u64 {
        self.attachment
    }
}

/// A program for the PC at [`PROGRAM`]; all other reads give zeros.
pub(crate) struct Zeros(Vec<u8>);

pub(crate) const PROGRAM: u32 = 0xf000_0000;

impl Bus for Zeros {
    fn read(&mut self, master: Master, iova: u32, out: &mut [u8]) -> Result<(), Fault> {
        out.fill(0);
        if master == Master::Fetch {
            let at = (iova - PROGRAM) as usize;
            let words = self.0.get(at..).unwrap_or_default();
            let len = words.len().min(out.len());
            out[..len].copy_from_slice(&words[..len]);
        }
        Ok(())
    }

    fn write(&mut self, _: Master, _: u32, _: &[u8]) -> Result<(), Fault> {
        Ok(())
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

/// Memory starts at IOVA 0.
pub(crate) struct Board<B = Vec<u8>> {
    pub(crate) cores: Vec<Core>,
    budget: Duration,
    pub(crate) memory: Logged<B>,
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
        Self::over(vec![SENTINEL; bytes], options)
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
        self.run_on(0, words)
    }

    pub(crate) fn run_on(&mut self, core: usize, words: &[Word]) -> Outcome {
        let at = self.place_program(words);
        self.kick(core, at, words.len(), 1)
    }

    pub(crate) fn place_program(&mut self, words: &[Word]) -> u32 {
        self.place(&families::bytes(words))
    }
}

impl Board<Zeros> {
    /// A board with only a program.
    pub(crate) fn of_zeros(words: &[Word], options: &ChipOptions) -> Self {
        Self::over(Zeros(families::bytes(words)), options)
    }
}

impl<B: Bus> Board<B> {
    fn over(bytes: B, options: &ChipOptions) -> Self {
        Self {
            cores: (0..CORES).map(|_| Core::new(options)).collect(),
            budget: BUDGET,
            memory: Logged {
                bytes,
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

    /// Runs `tasks` chained tasks, the first of `words` words at `at`.
    pub(crate) fn kick(&mut self, index: usize, at: u32, words: usize, tasks: u32) -> Outcome {
        let outcome = self.kick_alone(index, at, words, tasks);
        let core = &mut self.cores[index];
        if !outcome.completed() {
            core.reset();
            return outcome;
        }
        for (offset, value) in [
            (pc::OperationEnable::OFFSET, 0),
            (pc::InterruptClear::OFFSET, 0x1_ffff),
        ] {
            assert!(core.mmio_write(offset.into(), value).is_none());
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

    /// Starts a program with the register writes of the mainline driver.
    pub(crate) fn prepare(&mut self, index: usize, at: u32, words: usize, tasks: u32) -> Kick {
        let core = &mut self.cores[index];
        let writes = families::kick(index as u32, at, words, tasks);
        let [.., kick] = writes.map(|(offset, value)| core.mmio_write(offset, value));
        kick.unwrap()
    }

    /// Completes a kick on its core.
    pub(crate) fn end(&mut self, index: usize, finished: FinishedKick) -> Option<Outcome> {
        let core = &mut self.cores[index];
        let ran = core.complete(finished)?;
        Some(Outcome {
            raw_status: core.mmio_read(pc::InterruptRawStatus::OFFSET.into()),
            diagnosis: ran.diagnosis,
            device_time: ran.device_time,
        })
    }
}
