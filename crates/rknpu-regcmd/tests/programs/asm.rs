// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests the assembler against the disassembler, its grammar, and its errors.

use proptest::prelude::*;
use rknpu_regcmd::regs::{self, cna, dpu};
use rknpu_regcmd::{Block, EnableMask, Register, Word, assemble, disassemble, statements};

use crate::random::any_word;

/// The fields of a line, without the value of the register. An address shows
/// its value only.
fn by_fields(word: Word) -> Option<String> {
    if regs::lookup(word.offset()).is_some_and(|info| info.is_address) {
        return None;
    }
    let line = statements(&[word]);
    let (name, rest) = line.split_once(" = ")?;
    let (_, fields) = rest.split_once("  ")?;
    (!fields.starts_with('(')).then(|| format!("{name}  {fields}"))
}

proptest! {
    #![proptest_config(test_support::cases(512))]

    #[test]
    fn the_disassembly_gives_back_the_words(words in prop::collection::vec(any_word(), 0..24)) {
        prop_assert_eq!(&assemble(&disassemble(&words)).unwrap(), &words);
        prop_assert_eq!(&assemble(&statements(&words)).unwrap(), &words);
    }

    #[test]
    fn fields_alone_give_back_the_word(word in any_word()) {
        if let Some(text) = by_fields(word) {
            prop_assert_eq!(assemble(&text).unwrap(), [word], "{}", text);
        }
    }

    /// Lines of the language with a few characters changed, which get further into
    /// the parser than random text.
    #[test]
    fn any_text_is_words_or_an_error(
        words in prop::collection::vec(any_word(), 1..4),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<char>(), 0..3), 0..6),
        free in ".{0,40}",
    ) {
        let mut text: Vec<char> = disassemble(&words).chars().collect();
        for (place, character, kind) in changes {
            let place = place.index(text.len());
            match kind {
                0 => text[place] = character,
                1 => text.insert(place, character),
                _ => text.truncate(place + 1),
            }
        }
        for text in [text.into_iter().collect::<String>(), free] {
            match assemble(&text) {
                Ok(words) => prop_assert_eq!(assemble(&statements(&words)).unwrap(), words),
                Err(error) => {
                    let line = text.lines().nth(error.line - 1).unwrap();
                    prop_assert!((1..=line.chars().count() + 1).contains(&error.column), "{}", error);
                }
            }
        }
    }
}

#[test]
fn registers_of_a_block_have_different_names() {
    let differ = |mut names: Vec<&str>| {
        names.sort_unstable();
        names.is_sorted_by(|a, b| a < b)
    };
    for registers in Block::ALL.map(regs::of_block) {
        assert!(differ(registers.iter().map(|r| r.name).collect()));
        for register in registers {
            let fields = register.fields.iter().map(|f| f.name);
            assert!(differ(fields.collect()), "{register}");
        }
    }
}

#[test]
fn every_form_of_a_register() {
    let word = Word::new(Block::Cna.target(), cna::CbufCon0::OFFSET, 0x8000_00b1);
    for text in [
        "CNA.CBUF_CON0 = 0x800000b1",
        "CNA.CBUF_CON0=2147483825 # decimal",
        "CNA.CBUF_CON0 = 0x800000b1 weight_bank=11",
        "CNA.0x1040 = 0x800000b1 data_bank=1",
        "CNA.CBUF_CON0 data_bank=1 weight_bank=0xb undeclared_bits=0x80000000",
        "CNA.CBUF_CON0.data_bank = 1, weight_bank = 11, undeclared_bits = 0x80000000",
        "0x201800000b11040",
        "   7  0201800000b11040 ; a comment",
        "0201800000b11040\tCNA.CBUF_CON0 = 0x800000b1",
        "\r\n\n  # nothing\n CNA.CBUF_CON0 = 0x800000b1\r\n",
    ] {
        assert_eq!(assemble(text), Ok(vec![word]), "{text}");
    }
    let negative = assemble("DPU.OUT_CVT_OFFSET.out_cvt_offset = -5").unwrap();
    let expected = dpu::OutCvtOffset::new().with_out_cvt_offset(-5).unwrap();
    assert_eq!(negative[0].value(), expected.bits());
}

#[test]
fn words_without_a_register() {
    let nop = Word::NOP;
    for (text, words) in [
        ("", vec![]),
        ("nop", vec![nop]),
        ("nop (carries 5)", vec![Word::from_bits(5)]),
        ("marker", vec![Word::MARKER]),
        (
            "0x0, 0x5 0x1,",
            vec![nop, Word::from_bits(5), Word::from_bits(1)],
        ),
        (
            "unknown: target 513 offset 0x4000 value 2",
            vec![Word::new(0x201, 0x4000, 2)],
        ),
    ] {
        assert_eq!(assemble(text), Ok(words), "{text}");
    }
    for (text, mask) in [
        ("enable nothing", 0),
        ("enable CNA + CORE+DPU", 0x0d),
        ("enable 0x0d", 0x0d),
        ("enable DPU + unknown blocks 0x82", 0x8a),
    ] {
        let word = Word::enable(EnableMask::from_bits_retain(mask));
        assert_eq!(assemble(text), Ok(vec![word]), "{text}");
    }
}

/// Texts, with `\n` for the end of a line, each with its error below it.
const ERRORS: &str = r"
nop\n12
    line 2, column 3: expected a word (16 hexadecimal digits, or 0x and up to 16) or a statement, found the end of the line
CNB.CBUF_CON0 = 1
    line 1, column 1: there is no block `CNB`; the blocks are PC, CNA, CORE, DPU, DPU_RDMA, PPU, PPU_RDMA
\n\n CNA.CBUF_CON = 1
    line 3, column 6: CNA has no register `CBUF_CON` (similar: CBUF_CON0, CBUF_CON1); an offset such as CNA.0x1000 needs no name
CNA.xyz = 1
    line 1, column 5: CNA has no register `xyz`; an offset such as CNA.0x1000 needs no name
CNA.0x4010 = 1
    line 1, column 5: the offset 0x4010 is not in the page of CNA, 0x1000 to 0x1fff
CNA.0x10000 = 1
    line 1, column 5: `0x10000` does not fit here: the largest number is 0xffff
CNA.CBUF_CON0
    line 1, column 14: expected `=`, or a field and its value, found the end of the line
CNA.CBUF_CON0 = -1
    line 1, column 17: expected a number, decimal or hexadecimal after 0x, found `-`
CNA.CBUF_CON0 = 0x100000000
    line 1, column 17: `0x100000000` does not fit here: the largest number is 0xffffffff
CNA.CBUF_CON0 = 0x
    line 1, column 17: expected a number, decimal or hexadecimal after 0x, found `0x`
CNA.CBUF_CON0 data_bank=16
    line 1, column 25: 16 does not fit the register field data_bank, which holds 0 to 15
CNA.CBUF_CON0 data_bank=-1
    line 1, column 25: -1 does not fit the register field data_bank, which holds 0 to 15
CNA.DMA_CON2 surf_stride=4000000000
    line 1, column 26: 4000000000 does not fit the register field surf_stride, which holds -134217728 to 134217727
CNA.CBUF_CON0 data_bank=1 data_bank=1
    line 1, column 27: the field data_bank is given twice
CNA.CBUF_CON0 = 0xb1 data_bank=2
    line 1, column 32: the value 0x000000b1 has data_bank=1, not 2: correct one, or leave out the value
CNA.CBUF_CON0 = 1 undeclared_bits=0x80000000
    line 1, column 19: the value 0x00000001 has undeclared_bits=0, not 2147483648: correct one, or leave out the value
CNA.CBUF_CON0 undeclared_bits=1
    line 1, column 15: the bits 0x1 of CBUF_CON0 are declared: use the fields' names
CNA.CBUF_CON0.bank = 1
    line 1, column 15: CBUF_CON0 has no field `bank`; its fields are data_bank, weight_bank, fc_data_bank, data_reuse, weight_reuse
DPU.0x4ffc = 1 field=1
    line 1, column 16: expected the end of the line, found `field`
0000000000000000 marker
    line 1, column 18: the word 0000000000000000 differs from its line, 0041000000000000: correct one, or remove the word
0x0 0x0 marker
    line 1, column 9: a statement can follow one word, not several
enable PC
    line 1, column 8: expected a block, `unknown blocks`, a number or `nothing`, found `PC`
enable CNA CORE
    line 1, column 12: expected the end of the line, found `CORE`
";

#[test]
fn errors_name_the_place_and_what_would_be_right() {
    let lines: Vec<&str> = ERRORS.trim_start().lines().collect();
    let table = lines
        .chunks(2)
        .map(|two| (two[0].replace("\\n", "\n"), two[1].trim()));
    for (text, expected) in table.chain([
        (
            "nop \u{e4}\u{1}".into(),
            "line 1, column 5: expected the end of the line, found `\u{e4}`",
        ),
        (
            "\u{1}".into(),
            "line 1, column 1: expected a register such as CNA.CBUF_CON0, `enable`, `marker`, `nop`, `unknown` or a word, found `\\u{1}`",
        ),
    ]) {
        assert_eq!(assemble(&text).unwrap_err().to_string(), expected, "{text}");
    }
}
