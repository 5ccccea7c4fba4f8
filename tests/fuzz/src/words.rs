// SPDX-License-Identifier: MIT OR Apache-2.0
//! Turns bytes into command words: mostly known good programs with a few
//! changes, sometimes anything.

use std::sync::LazyLock;

use arbitrary::{Result, Unstructured};
use rknpu_chip::Contested;
use rknpu_regcmd::{Block, EnableMask, RegisterInfo, Word, regs};

use families::{self, Sample};

/// Most changes to one program.
const CHANGES_MAX: u8 = 8;
/// Most words of a program that belongs to no family.
const RAW_WORDS_MAX: u16 = 300;

/// The programs that sources measured on silicon.
static KNOWN: LazyLock<Vec<Sample>> = LazyLock::new(families::all);

static REGISTERS: LazyLock<Vec<&RegisterInfo>> = LazyLock::new(|| regs::all().collect());

/// A declared register.
pub fn register(u: &mut Unstructured<'_>) -> Result<&'static RegisterInfo> {
    u.choose(&REGISTERS).copied()
}

/// A register value, of the kinds that fields hold.
pub fn value(u: &mut Unstructured<'_>) -> Result<u32> {
    Ok(match u.int_in_range(0..=5)? {
        0 => u.arbitrary()?,
        1 => u32::from(u.arbitrary::<u8>()?),
        2 => 1 << u.int_in_range(0..=31)?,
        // Two small fields, like sizes.
        3 => u32::from(u.arbitrary::<u8>()?) << 16 | u32::from(u.arbitrary::<u8>()?),
        // An address of the board, or near the end of all addresses.
        4 => u32::from(u.arbitrary::<u8>()?) << 24 | u32::from(u.arbitrary::<u8>()?) << 8,
        _ => u32::MAX - u32::from(u.arbitrary::<u8>()?),
    })
}

/// Any word, more often one with a meaning.
fn word(u: &mut Unstructured<'_>) -> Result<Word> {
    Ok(match u.int_in_range(0..=7)? {
        0 => Word::from_bits(u.arbitrary()?),
        1 => {
            let mask = match u.int_in_range(0..=4)? {
                0 => u.arbitrary()?,
                which => [
                    families::CONV,
                    families::CONV_RDMA,
                    families::FLYING,
                    families::POOLING,
                ][which - 1],
            };
            Word::enable(EnableMask::from_bits_retain(mask))
        }
        // An offset of a block, declared or not.
        2 => {
            let block = *u.choose(&Block::ALL)?;
            let offset = block.page() << 12 | u.int_in_range(0..=0x7f_u16)? << 2;
            Word::new(block.target(), offset, value(u)?)
        }
        _ => {
            let info = register(u)?;
            Word::new(info.block.target(), info.offset, value(u)?)
        }
    })
}

/// Changes a few places of `words`.
pub fn change(words: &mut Vec<Word>, u: &mut Unstructured<'_>) -> Result<()> {
    for _ in 0..u.int_in_range(0..=CHANGES_MAX)? {
        if words.is_empty() {
            return Ok(());
        }
        let index = u.choose_index(words.len())?;
        let old = words[index];
        match u.int_in_range(0..=5)? {
            // Another value where the program writes a register.
            0 | 1 => words[index] = Word::new(old.target(), old.offset(), value(u)?),
            2 => {
                let bit = u.int_in_range(0..=31)?;
                words[index] = Word::new(old.target(), old.offset(), old.value() ^ 1 << bit);
            }
            3 => words[index] = word(u)?,
            4 => words.insert(index, word(u)?),
            _ => drop(words.remove(index)),
        }
    }
    Ok(())
}

/// Sides of contested facts: mostly the default, else one or two others.
pub fn contested(u: &mut Unstructured<'_>) -> Result<Contested> {
    let mut contested = Contested::default();
    if u.ratio(1, 2)? {
        for _ in 0..2 {
            let switch = u.choose(Contested::SWITCHES)?;
            let side = u.choose(switch.sides)?;
            // This side reads outside the extents on purpose.
            if switch.name == "over-read" {
                continue;
            }
            let text = format!("{}={side}", switch.name);
            assert_eq!(contested.set(&text), Ok(()));
            assert!(contested.sides().any(|known| known == (switch.name, *side)));
        }
    }
    Ok(contested)
}

/// A program of a known family or of random words, changed.
pub fn program(u: &mut Unstructured<'_>) -> Result<Vec<Word>> {
    let mut words = if u.ratio(7, 8)? {
        u.choose(&KNOWN)?.words.clone()
    } else {
        let count = u.int_in_range(0..=RAW_WORDS_MAX)?;
        (0..count).map(|_| word(u)).collect::<Result<_>>()?
    };
    change(&mut words, u)?;
    Ok(words)
}
