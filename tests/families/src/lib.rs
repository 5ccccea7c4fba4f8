// SPDX-License-Identifier: MIT OR Apache-2.0
//! Generators of the program families that sources measured on silicon. The lint must
//! accept their programs, extents must cover them, and the chip must compute them.
//! They write plain numbers to plain offsets, and share nothing with the encoder
//! under test.

#![allow(
    missing_docs,
    reason = "parameters have the names of the registers they go to"
)]

pub mod conv;
pub mod flying;
pub mod happyme;
pub mod lookup;
pub mod matmul;
pub mod mesa;
pub mod pooling;

use rknpu_regcmd::{Block, EnableMask, Word};

pub struct Sample {
    /// Family and shape, for messages.
    pub name: String,
    pub words: Vec<Word>,
}

impl Sample {
    fn new(name: impl Into<String>, words: Vec<Word>) -> Self {
        let name = name.into();
        Self { name, words }
    }
}

/// At least one sample of every family.
#[must_use]
pub fn all() -> Vec<Sample> {
    let mut samples = Vec::new();
    samples.extend(matmul::all());
    samples.extend(matmul::convolutions());
    samples.extend(mesa::all());
    samples.extend(flying::all());
    samples.extend(pooling::all());
    samples.extend(happyme::all());
    samples
}

/// Blocks of a convolution without and with DPU_RDMA, of a flying program, of
/// pooling.
pub const CONV: u32 = 0x0d;
pub const CONV_RDMA: u32 = 0x1d;
pub const FLYING: u32 = 0x18;
pub const POOLING: u32 = 0x60;

/// Addresses of the samples' buffers: far apart, so that nothing overlaps.
pub const A: u32 = 0x1000_0000;
pub const B: u32 = 0x4000_0000;
pub const C: u32 = 0x8000_0000;
pub const D: u32 = 0xb000_0000;

/// The S_POINTER that all programs and the kernel driver write.
const PING_PONG: u32 = 0xe;
/// Interrupts DPU_0 and DPU_1: what the kernel driver waits for.
pub const DPU_DONE: u32 = 0x300;

/// Offsets and values that the mainline driver writes to start `tasks` tasks on its
/// core number `core` (drivers/accel/rocket). The first task has `words` words at
/// `at`. The last write starts them.
#[must_use]
pub fn kick(core: u32, at: u32, words: usize, tasks: u32) -> [(u32, u32); 10] {
    let pointer = PING_PONG | core << 28;
    [
        (0x0010, 1),
        (0x1004, pointer),
        (0x3004, pointer),
        (0x0010, at),
        (0x0014, (words.div_ceil(2) as u32).wrapping_sub(1) & 0xffff),
        (0x0020, DPU_DONE),
        (0x0024, DPU_DONE),
        (0x0030, 0x7000 | tasks),
        (0x0034, 0),
        (0x0008, 1),
    ]
}

/// The words as the PC fetches them: two at a time.
#[must_use]
pub fn bytes(words: &[Word]) -> Vec<u8> {
    let mut bytes: Vec<u8> = words.iter().flat_map(|w| w.bits().to_le_bytes()).collect();
    bytes.resize(bytes.len().next_multiple_of(16), 0);
    bytes
}

/// A write of the register at `offset`.
///
/// # Panics
/// If no register can be at `offset`.
#[must_use]
pub fn write(offset: u16, value: u32) -> Word {
    let block = Block::of_offset(offset).expect("a register's offset");
    Word::new(block.target(), offset, value)
}

#[derive(Clone, Debug, Default)]
pub struct Words(pub Vec<Word>);

impl Words {
    /// Appends writes of registers: offset, value.
    pub fn extend(&mut self, list: &[(u16, u32)]) -> &mut Self {
        self.0.extend(list.iter().map(|&(o, v)| write(o, v)));
        self
    }

    fn zeros(&mut self, first: u16, last: u16) -> &mut Self {
        let offsets = (first..=last).step_by(4);
        self.0.extend(offsets.map(|offset| write(offset, 0)));
        self
    }

    /// Changes the value in every write of the register at `offset`.
    ///
    /// # Panics
    /// If the program does not write it.
    pub fn change(&mut self, offset: u16, value: u32) -> &mut Self {
        let new = write(offset, value);
        let mut found = false;
        for word in self.0.iter_mut().filter(|word| same_register(word, &new)) {
            *word = new;
            found = true;
        }
        assert!(found, "{offset:#x} is not written");
        self
    }

    /// Removes a register from the program.
    ///
    /// # Panics
    /// If the program does not write it.
    pub fn remove(&mut self, offset: u16) -> &mut Self {
        let before = self.0.len();
        let register = write(offset, 0);
        self.0.retain(|word| !same_register(word, &register));
        assert_ne!(self.0.len(), before, "{offset:#x} is not written");
        self
    }

    /// The program, whose task starts the blocks of `enable`.
    #[must_use]
    pub fn finish(self, enable: u32) -> Vec<Word> {
        self.finish_linked(None, enable)
    }

    /// The program, linked to the next one by its BASE_ADDRESS and REGISTER_AMOUNTS.
    #[must_use]
    pub fn finish_linked(mut self, link: Option<(u32, u32)>, enable: u32) -> Vec<Word> {
        let next = link.map_or(Word::NOP, |(address, _)| write(0x0010, address));
        let amounts = write(0x0014, link.unwrap_or_default().1);
        let enable = Word::enable(EnableMask::from_bits_retain(enable));
        self.0.extend([next, amounts, Word::MARKER, enable]);
        self.0
    }
}

/// REGISTER_AMOUNTS of a program.
#[must_use]
pub fn amounts(program: &[Word]) -> u32 {
    (program.len() as u32).div_ceil(2) - 1
}

fn same_register(a: &Word, b: &Word) -> bool {
    (a.target(), a.offset()) == (b.target(), b.offset())
}

/// A stride as a 28-bit two's complement number.
#[must_use]
pub fn stride28(value: i32) -> u32 {
    value as u32 & 0x0fff_ffff
}
