// SPDX-License-Identifier: MIT OR Apache-2.0
//! The families of programs that sources measured on silicon, as generators:
//! what the lint must let pass, and what extents must be known for. They write
//! plain numbers at plain offsets: an independent witness that shares nothing with
//! the encoder under test.

pub(crate) mod conv;
pub(crate) mod flying;
pub(crate) mod happyme;
pub(crate) mod matmul;
pub(crate) mod mesa;
pub(crate) mod pooling;

use rknpu_regcmd::{Block, EnableMask, Word};

/// A program of a family.
pub(crate) struct Sample {
    /// Family and shape, for messages.
    pub(crate) name: String,
    pub(crate) words: Vec<Word>,
}

impl Sample {
    fn new(name: impl Into<String>, words: Vec<Word>) -> Self {
        Self {
            name: name.into(),
            words,
        }
    }
}

/// One sample at least of every family.
pub(crate) fn all() -> Vec<Sample> {
    let mut samples = Vec::new();
    samples.extend(matmul::all());
    samples.extend(conv::all());
    samples.extend(mesa::all());
    samples.extend(flying::all());
    samples.extend(pooling::all());
    samples.extend(happyme::all());
    samples
}

/// Blocks of a convolution without and with DPU_RDMA, of a flying program, of
/// pooling.
pub(crate) const CONV: u32 = 0x0d;
pub(crate) const CONV_RDMA: u32 = 0x1d;
pub(crate) const FLYING: u32 = 0x18;
pub(crate) const POOLING: u32 = 0x60;

/// Where samples have their buffers: far apart, so that nothing overlaps.
pub(crate) const A: u32 = 0x1000_0000;
pub(crate) const B: u32 = 0x4000_0000;
pub(crate) const C: u32 = 0x8000_0000;
pub(crate) const D: u32 = 0xb000_0000;

/// A write of the register at `offset`.
pub(crate) fn write(offset: u16, value: u32) -> Word {
    let block = Block::of_offset(offset).expect("a register's offset");
    Word::new(block.target(), offset, value)
}

/// The end of a program: a link to the next one or none, marker, enable word.
pub(crate) fn trailer(words: &mut Vec<Word>, link: Option<(u32, u32)>, enable: u32) {
    let (address, amounts) = link.unwrap_or((0, 0));
    words.push(if link.is_some() {
        write(0x0010, address)
    } else {
        Word::NOP
    });
    words.push(write(0x0014, amounts));
    words.push(Word::MARKER);
    words.push(Word::enable(EnableMask::from_bits_retain(enable)));
}

pub(crate) fn ceil_div(a: u32, b: u32) -> u32 {
    a.div_ceil(b)
}

pub(crate) fn align(a: u32, b: u32) -> u32 {
    a.next_multiple_of(b)
}

/// A stride as a 28-bit two's complement number.
pub(crate) fn stride28(value: i32) -> u32 {
    value as u32 & 0x0fff_ffff
}
