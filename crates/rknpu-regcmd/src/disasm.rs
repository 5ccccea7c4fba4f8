// SPDX-License-Identifier: MIT OR Apache-2.0
//! Words as text, for people and for golden files. The text changes only if the
//! register table changes.
//!
//! ```text
//!   12  0201000000b11040  CNA.CBUF_CON0 = 0x000000b1  data_bank=1 weight_bank=11
//! ```
//!
//! Fields that are 0 are left out. [`assemble`](crate::assemble) reads the text back.

use alloc::string::String;
use core::fmt::{self, Write};

use crate::decode::{Item, decode};
use crate::field::RegisterInfo;
use crate::word::{Block, EnableMask, Word};

/// One line for each word: index, bits, meaning.
#[must_use]
pub fn disassemble(words: &[Word]) -> String {
    let mut text = String::new();
    for (index, (word, item)) in words.iter().zip(decode(words)).enumerate() {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{index:4}  {:016x}  {item}", word.bits());
    }
    text
}

/// One line for each word, with its meaning only: text to edit by hand, in which
/// nothing repeats the bits of the word.
///
/// ```
/// use rknpu_regcmd::{Word, statements};
/// assert_eq!(statements(&[Word::MARKER, Word::NOP]), "marker\nnop\n");
/// ```
#[must_use]
pub fn statements(words: &[Word]) -> String {
    let mut text = String::new();
    for item in decode(words) {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{item}");
    }
    text
}

/// Name in the text of the bits of a register that belong to no field.
pub(crate) const UNDECLARED_BITS: &str = "undeclared_bits";

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Write { register, value } => {
                write!(f, "{register} = {value:#010x}")?;
                fields(f, register, value)
            }
            Self::Undeclared(block, word) => {
                let (offset, value) = (word.offset(), word.value());
                write!(f, "{block}.{offset:#06x} = {value:#010x}  (not declared)")
            }
            Self::Enable(mask) => {
                f.write_str("enable ")?;
                blocks(f, mask)
            }
            Self::Marker => f.write_str("marker"),
            Self::Nop(word) if word == Word::NOP => f.write_str("nop"),
            Self::Nop(word) => write!(f, "nop  (carries {:#x})", word.bits()),
            Self::Unknown(word) => write!(
                f,
                "unknown: target {:#06x} offset {:#06x} value {:#010x}",
                word.target(),
                word.offset(),
                word.value()
            ),
        }
    }
}

/// Writes the fields that are not 0, and the bits that belong to no field.
fn fields(f: &mut fmt::Formatter<'_>, register: &RegisterInfo, value: u32) -> fmt::Result {
    let mut gap = "  ";
    // The value of an undivided register has been printed already.
    let undivided = register.is_address
        || matches!(register.fields, [field] if field.width() == 32 && !field.signed);
    if !undivided {
        for field in register.fields {
            let number = field.get(value);
            if number != 0 {
                write!(f, "{gap}{}={number}", field.name)?;
                gap = " ";
            }
        }
    }
    match value & !register.declared_bits() {
        0 => Ok(()),
        stray => write!(f, "{gap}{UNDECLARED_BITS}={stray:#x}"),
    }
}

fn blocks(f: &mut fmt::Formatter<'_>, mask: EnableMask) -> fmt::Result {
    if mask.is_empty() {
        return f.write_str("nothing");
    }
    let mut gap = "";
    for block in Block::ALL {
        if !block.enable().is_empty() && mask.contains(block.enable()) {
            write!(f, "{gap}{block}")?;
            gap = " + ";
        }
    }
    match mask.bits() & !EnableMask::all().bits() {
        0 => Ok(()),
        stray => write!(f, "{gap}unknown blocks {stray:#x}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field::Register;
    use crate::regs::{cna, dpu};
    use alloc::string::ToString;

    fn text(block: Block, offset: u16, value: u32) -> String {
        Item::of(Word::new(block.target(), offset, value)).to_string()
    }

    #[test]
    fn registers_are_shown_with_their_fields() {
        let word = Word::new(Block::Cna.target(), cna::CbufCon0::OFFSET, 0xb1);
        assert_eq!(
            disassemble(&[word]),
            "   0  0201000000b11040  CNA.CBUF_CON0 = 0x000000b1  data_bank=1 weight_bank=11\n"
        );
        let stride = cna::DmaCon2::new().with_surf_stride(-3).unwrap();
        assert_eq!(
            text(Block::Cna, cna::DmaCon2::OFFSET, stride.bits()),
            "CNA.DMA_CON2 = 0x0ffffffd  surf_stride=-3"
        );
        assert_eq!(
            text(Block::Dpu, dpu::OutCvtScale::OFFSET, 0x1_8000),
            "DPU.OUT_CVT_SCALE = 0x00018000  out_cvt_scale=-32768 fp32tofp16_en=1"
        );
        assert_eq!(
            text(Block::Cna, 0x1070, 0x4000),
            "CNA.FEATURE_DATA_ADDR = 0x00004000"
        );
        assert_eq!(
            text(Block::Cna, 0x1040, 0x8000_0001),
            "CNA.CBUF_CON0 = 0x80000001  data_bank=1 undeclared_bits=0x80000000"
        );
        assert_eq!(
            text(Block::Dpu, 0x4ffc, 1),
            "DPU.0x4ffc = 0x00000001  (not declared)"
        );
    }

    #[test]
    fn words_without_a_register_are_named() {
        let enable = |mask| Item::of(Word::enable(EnableMask::from_bits_retain(mask))).to_string();
        assert_eq!(enable(0x0d), "enable CNA + CORE + DPU");
        assert_eq!(enable(0), "enable nothing");
        assert_eq!(enable(0x88), "enable DPU + unknown blocks 0x80");
        for (word, expected) in [
            (Word::NOP, "nop"),
            (Word::from_bits(5), "nop  (carries 0x5)"),
            (Word::from_bits(1 << 48), "nop  (carries 0x1000000000000)"),
            (Word::MARKER, "marker"),
            (
                Word::new(0x0041, 0, 1),
                "unknown: target 0x0041 offset 0x0000 value 0x00000001",
            ),
            (
                Word::new(0x0201, 0x4000, 2),
                "unknown: target 0x0201 offset 0x4000 value 0x00000002",
            ),
        ] {
            assert_eq!(Item::of(word).to_string(), expected);
        }
    }
}
