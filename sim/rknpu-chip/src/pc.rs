// SPDX-License-Identifier: MIT OR Apache-2.0
//! PC: fetches command words and executes them.
//!
//! A kick runs TASK_NUMBER tasks. After each the PC continues with the program
//! that the trailer links to. The mainline driver asks for one task in each
//! kick, so the PC follows no link there.

use rknpu_regcmd::regs::{cna, core, dpu, pc};
use rknpu_regcmd::rules::{ENABLE_MASK, program};
use rknpu_regcmd::task::Task;
use rknpu_regcmd::{Block, EnableMask, Register, Word};

use super::check;
use super::contested::OtherSide;
use super::conv;
use super::core_parts::CoreParts;
use super::dma;
use super::dpu::lut::Lut;
use super::precision::ATOM;
use super::registers::{CORE_NUMBER_SHIFT, RegisterGroups};
use super::trap::Stop;
use super::{Effect, Master, flying, ppu};

/// Command words of one fetch of 128 bits.
const WORDS_PER_FETCH: usize = 2;

/// Address and length of a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) base: pc::BaseAddress,
    pub(crate) amounts: pc::RegisterAmounts,
}

impl Segment {
    /// Number of command words to fetch.
    fn words(&self) -> usize {
        (self.amounts.pc_data_amount() as usize + 1) * WORDS_PER_FETCH
    }

    /// Low bits of BASE_ADDRESS, which are not part of the address.
    fn stray_bits(&self) -> u32 {
        self.base.bits() % ATOM as u32
    }
}

/// Result of a kick that ended well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct KickEnd {
    pub(crate) tasks: u32,
    /// Blocks that were started.
    ran: EnableMask,
    /// Group that the DPU executed last, if it ran; likewise the PPU.
    pub(crate) dpu: Option<usize>,
    pub(crate) ppu: Option<usize>,
}

impl CoreParts<'_> {
    /// Fetches and executes the programs of `tasks` tasks, from `first` on. `wedged`:
    /// an earlier kick hung, and the core was not reset since.
    pub(crate) fn run(
        &mut self,
        first: Segment,
        tasks: u32,
        wedged: bool,
    ) -> Result<KickEnd, Stop> {
        if wedged {
            let values = "the core is wedged";
            self.report.record(&program::WEDGED, &[], values)?;
        }
        self.registers.begin();
        let mut finished = KickEnd::default();
        let mut segment = first;
        while finished.tasks < tasks.max(1) {
            match self.segment(segment, &mut finished)? {
                Some(next) => segment = next,
                None => break,
            }
        }
        if finished.tasks < tasks {
            let values = format!("{} of {tasks} tasks ran", finished.tasks);
            let shown = [(pc::TaskCon::INFO.name, tasks)];
            self.report
                .record(&program::MISSING_LINK, &shown, &values)?;
        }
        Ok(finished)
    }

    /// Executes one program up to its enable word. Returns the linked program.
    fn segment(&mut self, at: Segment, finished: &mut KickEnd) -> Result<Option<Segment>, Stop> {
        let words = self.fetch(at)?;
        let mut link = Segment::default();
        for word in words {
            if word.is_enable() {
                let enable = EnableMask::from_bits_retain(word.value());
                self.start(enable, finished)?;
                let linked = link.base.bits() != 0;
                return Ok(linked.then_some(link));
            }
            self.execute(word, &mut link)?;
        }
        let shown = [
            (pc::BaseAddress::INFO.name, at.base.bits()),
            (pc::RegisterAmounts::INFO.name, at.amounts.bits()),
        ];
        let values = format!("{} words are fetched", at.words());
        self.report.record(&program::NO_ENABLE, &shown, &values)?;
        Err(Stop::Hang)
    }

    /// Reports a program at address 0, or with low bits of BASE_ADDRESS set: a
    /// program lies at a multiple of 16.
    fn placed(&mut self, at: Segment) -> Result<(), Stop> {
        if at.base.bits() == 0 && self.contested.has(OtherSide::ProgramAtZeroHangs) {
            let shown = [(pc::BaseAddress::INFO.name, 0)];
            let rule = &program::PROGRAM_AT_ZERO;
            self.report
                .record(rule, &shown, "the program is at address 0")?;
        }
        if at.stray_bits() == 0 {
            return Ok(());
        }
        let shown = [(pc::BaseAddress::INFO.name, at.base.bits())];
        let values = format!("bits {:#x} of the address are set", at.stray_bits());
        self.report
            .record(&program::PROGRAM_ADDRESS, &shown, &values)
    }

    fn fetch(&mut self, at: Segment) -> Result<Vec<Word>, Stop> {
        self.placed(at)?;
        let mut bytes = dma::buffer::<u8>(at.words() * size_of::<u64>())?;
        self.clock.fetch(at.words())?;
        self.dma
            .read(Master::Fetch, at.base.bits().into(), &mut bytes)?;
        Ok(bytes
            .as_chunks::<{ size_of::<u64>() }>()
            .0
            .iter()
            .map(|&word| Word::from_bits(u64::from_le_bytes(word)))
            .collect())
    }

    /// Executes one word that is not the enable word.
    fn execute(&mut self, word: Word, link: &mut Segment) -> Result<(), Stop> {
        if word.is_marker() || word.is_nop() {
            return Ok(());
        }
        let block = Block::from_target(word.target());
        if block.is_none() || block != Block::of_offset(word.offset()) {
            let shown = [
                ("target", word.target().into()),
                ("offset", word.offset().into()),
            ];
            let rule = &program::UNKNOWN_WORD;
            return self.report.record(rule, &shown, "a word is ignored");
        }
        match (block, word.offset()) {
            (Some(Block::Pc), pc::BaseAddress::OFFSET) => {
                link.base = pc::BaseAddress::from_bits(word.value());
            }
            (Some(Block::Pc), pc::RegisterAmounts::OFFSET) => {
                link.amounts = pc::RegisterAmounts::from_bits(word.value());
            }
            // Other registers of the PC are the driver's: ignored.
            (Some(Block::Pc), _) => {}
            (
                Some(block @ (Block::Cna | Block::Core)),
                cna::SPointer::OFFSET | core::SPointer::OFFSET,
            ) => {
                self.core_number(block, word.value())?;
                write(self.registers, self.lut, word.offset(), word.value());
            }
            _ => write(self.registers, self.lut, word.offset(), word.value()),
        }
        Ok(())
    }

    /// Reports a write to S_POINTER of CNA or CORE that removes the core's
    /// number, which the kernel put there. Without it the task never ends.
    fn core_number(&mut self, block: Block, value: u32) -> Result<(), Stop> {
        let number = self.registers.pointers(block).core_number;
        if value >> CORE_NUMBER_SHIFT == number {
            return Ok(());
        }
        let shown = [(cna::SPointer::INFO.name, value)];
        let values = format!("{block} S_POINTER loses the number of core {number}");
        self.report.record(&program::CORE_NUMBER, &shown, &values)
    }

    /// Runs a task at its enable word.
    fn start(&mut self, enable: EnableMask, finished: &mut KickEnd) -> Result<(), Stop> {
        self.pointers(enable, finished.ran)?;
        let regs = self.registers.executing();
        let ran = |block: Block| block != Block::Pc && enable.contains(block.enable());
        check::overflowing(self.report, &regs, ran)?;
        check::stale(self.report, &regs, enable, self.contested)?;
        if self.lut.take_restarted() {
            let values = "LUT_ACCESS_CFG was written before the table was complete";
            self.report
                .broken(&program::UPLOAD_RESTARTED, &regs, values)?;
        }
        for task in Task::all(&regs, enable) {
            match task {
                Ok(Task::Conv(task)) => conv::run(self, &regs, enable, &task)?,
                Ok(Task::Flying { reads, output }) => flying::run(self, &regs, &reads, output)?,
                Ok(Task::Pool(pool)) => ppu::run(self, &regs, &pool)?,
                Err(why) => {
                    let values = format!("{why}: mask {:#x}", enable.bits());
                    self.report.broken(&ENABLE_MASK, &regs, &values)?;
                }
            }
        }
        finished.tasks += 1;
        finished.ran |= enable;
        let group = |block: Block| {
            enable
                .contains(block.enable())
                .then(|| self.registers.pointers(block).executed)
        };
        finished.dpu = group(Block::Dpu).or(finished.dpu);
        finished.ppu = group(Block::Ppu).or(finished.ppu);
        self.registers.finish(ran);
        Ok(())
    }

    /// Reports blocks that start although S_POINTER was not written. `ran` are
    /// the blocks that started before in this kick.
    fn pointers(&mut self, enable: EnableMask, ran: EnableMask) -> Result<(), Stop> {
        for block in Block::ALL {
            let starts = block != Block::Pc && enable.contains(block.enable());
            let pointers = self.registers.pointers(block);
            if !starts || pointers.set {
                continue;
            }
            let again = ran.contains(block.enable());
            let has_kernel = matches!(block, Block::Cna | Block::Core);
            if again && !has_kernel && !pointers.repeats() {
                continue;
            }
            let rule = program::without_pointer(block, enable, ran);
            let mut effect = rule.effect.unwrap_or(Effect::Note);
            // The kernel writes S_POINTER of CNA and CORE once for each kick; in
            // a chain nothing else does.
            if again && has_kernel && self.contested.has(OtherSide::ChainPointerRepeats) {
                effect = Effect::Garbage;
            } else if effect == Effect::Note {
                self.registers.follow(block);
            }
            let values = format!("{block} S_POINTER is not written");
            let shown = [("enable", enable.bits())];
            self.report.record_with(rule, effect, &shown, &values)?;
        }
        Ok(())
    }
}

/// Writes a register, for PC or CPU, and updates the look-up tables.
pub(crate) fn write(registers: &mut RegisterGroups, lut: &mut Lut, offset: u16, value: u32) {
    registers.write(offset, value);
    match offset {
        dpu::LutAccessCfg::OFFSET => lut.access(dpu::LutAccessCfg::from_bits(value)),
        dpu::LutAccessData::OFFSET => lut.write(dpu::LutAccessData::from_bits(value)),
        _ => {}
    }
}
