// SPDX-License-Identifier: MIT OR Apache-2.0
//! Register programs made from known good ones by changing registers; addresses are filled in
//! late. rknpu-regcmd's linker would reject most of them, since they test unknown behaviour.

use rknpu_regcmd::{
    AddressRegister, BufferRef, EnableMask, Iova, Program, Register, RegisterSet, Word, regs,
};

/// Code of an addition in ALU_ALGO of BS, BN and EW.
pub(crate) const ALU_ADD: u32 = 2;

/// The program of one task, with changeable registers.
#[derive(Clone, Debug)]
pub(crate) struct TaskTemplate {
    lines: Vec<Line>,
    /// See [`TaskTemplate::prove_as`].
    pub(super) stand_ins: Vec<Word>,
}

/// A word, and the buffer that it points to.
#[derive(Clone, Copy, Debug)]
struct Line {
    word: Word,
    to: Option<BufferRef>,
}

/// The word that writes a register.
pub(crate) fn word_of<R: Register>(register: R) -> Word {
    R::INFO.write(register.bits())
}

/// Writes registers by field; other fields are 0.
macro_rules! put {
    ($task:expr; $($block:ident::$register:ident { $($field:ident: $value:expr),* })*) => {
        pastey::paste! {
            $( $task.put($block::$register::new()$(.[<with_ $field>]($value)?)*); )*
        }
    };
}
pub(crate) use put;

/// Changes fields of registers; other fields keep their values.
macro_rules! change {
    ($task:expr; $($block:ident::$register:ident { $($field:ident: $value:expr),* })*) => {
        pastey::paste! {
            $(
                let register = $task.value::<$block::$register>();
                $task.put(register$(.[<with_ $field>]($value)?)*);
            )*
        }
    };
}
pub(crate) use change;

impl Line {
    fn writes<R: Register>(&self) -> bool {
        R::INFO.is_written_by(self.word)
    }
}

impl TaskTemplate {
    /// A program that starts these blocks, with all their registers 0.
    pub(crate) fn blank(enable: EnableMask) -> Self {
        Self::of(&RegisterSet::new().program(enable))
    }

    /// The template of `program`, unchanged.
    pub(crate) fn of(program: &Program) -> Self {
        let lines = program.words().iter().enumerate().map(|(index, &word)| {
            let found = program.relocations().iter().find(|at| at.0 == index);
            let to = found.map(|&(_, to)| to);
            Line { word, to }
        });
        Self {
            lines: lines.collect(),
            stand_ins: Vec::new(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.lines.len()
    }

    /// Sets the value of a register; a new write comes first in the program.
    pub(crate) fn put<R: Register>(&mut self, register: R) -> &mut Self {
        let word = word_of(register);
        match self.lines.iter_mut().rfind(|line| line.writes::<R>()) {
            Some(line) => line.word = word,
            None => self.lines.insert(0, Line { word, to: None }),
        }
        self
    }

    /// Sets the address in a register that the program writes.
    pub(crate) fn put_address<R: AddressRegister>(&mut self, to: BufferRef) -> &mut Self {
        for line in self.lines.iter_mut().filter(|line| line.writes::<R>()) {
            line.to = Some(to);
        }
        self
    }

    /// The value of a register; 0 if it is not written.
    pub(crate) fn value<R: Register>(&self) -> R {
        let written = self.lines.iter().rfind(|line| line.writes::<R>());
        R::from_bits(written.map_or(0, |line| line.word.value()))
    }

    /// The target of an address register, if the program writes it.
    pub(crate) fn target<R: AddressRegister>(&self) -> Option<BufferRef> {
        self.lines.iter().rfind(|line| line.writes::<R>())?.to
    }

    /// Declares a register whose value has an undocumented meaning. Accesses are computed
    /// with this value instead, which must cover every possible meaning.
    pub(crate) fn prove_as<R: Register>(&mut self, register: R) -> &mut Self {
        self.stand_ins.push(word_of(register));
        self
    }

    /// Removes the words that write a register.
    pub(crate) fn leave_out<R: Register>(&mut self) -> &mut Self {
        self.lines.retain(|line| !line.writes::<R>());
        self
    }

    /// Inserts words at the start, behind those that select register groups.
    pub(crate) fn begin_with(&mut self, words: impl IntoIterator<Item = Word>) -> &mut Self {
        let pointers = |line: &&Line| {
            let register = regs::lookup(line.word.offset());
            register
                .is_some_and(|register| register.is_written_by(line.word) && register.is_pointer())
        };
        let start = self.lines.iter().take_while(pointers).count();
        let lines = words.into_iter().map(|word| Line { word, to: None });
        self.lines.splice(start..start, lines);
        self
    }

    /// Sets the blocks to start.
    pub(crate) fn enable(&mut self, mask: EnableMask) -> &mut Self {
        for line in &mut self.lines {
            if line.word.is_enable() {
                line.word = Word::enable(mask);
            }
        }
        self
    }

    /// For each register that `other` writes differently or not at all: its name and values,
    /// and this program with only that one changed. The blocks to start count as a register.
    pub(crate) fn flipped(&self, other: &Self) -> Vec<(String, Self)> {
        let key = |word: Word| (word.target(), word.offset());
        let mut all = Vec::new();
        for (index, &Line { word, to }) in self.lines.iter().enumerate() {
            let theirs = other.lines.iter().rfind(|line| key(line.word) == key(word));
            let theirs = theirs.map(|line| line.word);
            if to.is_some() || theirs == Some(word) {
                continue;
            }
            let name = match regs::lookup(word.offset()) {
                Some(register) => format!("{:?}.{}", register.block, register.name),
                None => format!("{:#06x}", word.offset()),
            };
            let new = theirs.map(|word| Line { word, to: None });
            let value = new.map_or("not written".to_owned(), |line| {
                format!("{:#x}", line.word.value())
            });
            let mut flipped = self.clone();
            flipped.lines.splice(index..=index, new);
            all.push((format!("{name} {:#x} -> {value}", word.value()), flipped));
        }
        all
    }

    /// The words, with addresses from `place`; `None` if it lacks one.
    pub(crate) fn words(&self, place: impl Fn(BufferRef) -> Option<Iova>) -> Option<Vec<Word>> {
        let word = |line: &Line| match line.to {
            None => Some(line.word),
            Some(to) => {
                let address = place(to)?;
                Some(Word::new(line.word.target(), line.word.offset(), address.0))
            }
        };
        self.lines.iter().map(word).collect()
    }
}

#[cfg(test)]
mod tests {
    use rknpu_regcmd::regs::{cna, dpu};
    use rknpu_regcmd::{BufferId, FieldRangeError, RegisterInfo};

    use super::*;

    fn template() -> TaskTemplate {
        let mut template = TaskTemplate::blank(EnableMask::DPU);
        template.put_address::<dpu::DstBaseAddr>(BufferId(3).at(32));
        template
    }

    fn values(template: &TaskTemplate, register: &RegisterInfo) -> Vec<u32> {
        let words = template
            .words(|to| Some(Iova(0x1000 * to.buffer.0 + to.offset)))
            .unwrap();
        let written = words.iter().filter(|word| register.is_written_by(**word));
        written.map(|word| word.value()).collect()
    }

    #[test]
    fn registers_are_changed_added_and_left_out() -> Result<(), FieldRangeError> {
        let mut template = template();
        assert_eq!(values(&template, dpu::DstBaseAddr::INFO), [0x3020]);
        template.put(dpu::BsCfg::from_bits(0x53));
        change!(template; dpu::BsCfg { bs_alu_src: 1 });
        template
            .put(cna::SPointer::from_bits(14))
            .leave_out::<dpu::BnCfg>();
        assert_eq!(values(&template, dpu::BsCfg::INFO), [0x153]);
        assert_eq!(values(&template, cna::SPointer::INFO), [14]);
        assert!(values(&template, dpu::BnCfg::INFO).is_empty());
        // Addresses keep their registers when words before them are inserted or removed.
        assert_eq!(values(&template, dpu::DstBaseAddr::INFO), [0x3020]);
        assert!(template.words(|_| None).is_none());
        Ok(())
    }

    #[test]
    fn the_blocks_to_start_are_changed() {
        let mut template = template();
        template.enable(EnableMask::PPU).begin_with([Word::NOP]);
        let words = template.words(|_| Some(Iova(0))).unwrap();
        // The second word, behind S_POINTER.
        assert_eq!(words.get(1), Some(&Word::NOP));
        assert_eq!(words.last(), Some(&Word::enable(EnableMask::PPU)));
    }
}
