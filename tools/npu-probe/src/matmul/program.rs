// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads and writes files with a register program: assembler text, hexadecimal
//! words or binary.

use std::fs::File;
use std::io::{Read, stdin};
use std::path::Path;

use anyhow::{Context, ensure};
use rknpu_regcmd::{Block, Word, assemble};

use crate::base::exit::Failure;

/// Longest input, bytes. The kernel accepts programs of up to 65536 words
/// (16-bit counter); a text of many programs is far below this limit.
const BYTES_MAX: u64 = 64 << 20;

/// Unknown words for each known one, at most; in other files the share is thousands.
const MOST_UNKNOWN: usize = 8;

const WORD_BYTES: usize = size_of::<u64>();

/// The format of a program's words in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Assembler,
    /// Hexadecimal words, separated by blanks or commas.
    Hex,
    /// Binary words, little endian.
    Binary,
}

impl Form {
    /// The format that the extension of a file name selects.
    fn of_name(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()? {
            "asm" | "s" => Some(Self::Assembler),
            "hex" | "words" => Some(Self::Hex),
            "bin" => Some(Self::Binary),
            _ => None,
        }
    }

    /// The format of `bytes`. Binary programs have control characters, from the
    /// targets of their words, such as 0x0201. Text of only hexadecimal numbers
    /// is words; other text is assembler text.
    fn of_content(bytes: &[u8]) -> Self {
        let printable = |b: &u8| !b.is_ascii_control() || b.is_ascii_whitespace();
        match std::str::from_utf8(bytes) {
            Ok(text) if bytes.iter().all(printable) => {
                if tokens(text).all(|(_, token)| hex(token).is_some()) {
                    Self::Hex
                } else {
                    Self::Assembler
                }
            }
            _ => Self::Binary,
        }
    }
}

/// The words in the file at `path`, or on standard input for `-`.
pub(crate) fn read(path: &Path) -> Result<Vec<Word>, Failure> {
    read_as(path, Form::of_content)
}

/// Like [`read`], but text is assembler text unless the file name says
/// otherwise: `12 0x1` is line 12 with the word 1, not two words.
pub(crate) fn read_source(path: &Path) -> Result<Vec<Word>, Failure> {
    read_as(path, |bytes| match Form::of_content(bytes) {
        Form::Assembler | Form::Hex => Form::Assembler,
        Form::Binary => Form::Binary,
    })
}

/// Like [`read`]; `form` detects the format if the file name does not show it.
fn read_as(path: &Path, form: impl FnOnce(&[u8]) -> Form) -> Result<Vec<Word>, Failure> {
    let read = || {
        let bytes = read_bytes(path)?;
        if let Some(named) = Form::of_name(path) {
            return words(&bytes, named);
        }
        let form = form(&bytes);
        let words = words(&bytes, form).context("not a register program")?;
        if form == Form::Binary {
            check_known(&words)?;
        }
        Ok(words)
    };
    read().map_err(Failure::usage(format!("cannot read {}", path.display())))
}

fn read_bytes(path: &Path) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let input: Box<dyn Read> = if path.as_os_str() == "-" {
        Box::new(stdin().lock())
    } else {
        Box::new(File::open(path)?)
    };
    input.take(BYTES_MAX + 1).read_to_end(&mut bytes)?;
    ensure!(
        bytes.len() as u64 <= BYTES_MAX,
        "the program is longer than {BYTES_MAX} bytes"
    );
    Ok(bytes)
}

/// The words in `bytes`, parsed as `form`; fails if there are none.
fn words(bytes: &[u8], form: Form) -> anyhow::Result<Vec<Word>> {
    let text = || {
        std::str::from_utf8(bytes).context("the file's extension means text, but it is not text")
    };
    let words = match form {
        Form::Assembler => assemble(text()?)?,
        Form::Hex => hex_words(text()?)?,
        Form::Binary => binary_words(bytes)?,
    };
    ensure!(!words.is_empty(), "the program has no words");
    Ok(words)
}

/// Fails for words of another kind of file. Not all words of a damaged program are known.
fn check_known(words: &[Word]) -> anyhow::Result<()> {
    let data_words = words.iter().filter(|word| word.bits() != 0);
    let (known, unknown): (Vec<&Word>, Vec<&Word>) = data_words.partition(|word| is_known(**word));
    ensure!(
        known.len() * MOST_UNKNOWN >= unknown.len(),
        "not a register program: {} of {} words are for no block of the NPU",
        unknown.len(),
        words.len()
    );
    Ok(())
}

/// Whether a word is for a block of the NPU, or starts one.
fn is_known(word: Word) -> bool {
    Block::from_target(word.target()).is_some() || word.is_enable() || word.is_marker()
}

/// Words as text that every command reads: one hexadecimal word per line.
pub(crate) fn to_hex(words: &[Word]) -> String {
    let line = |word: &Word| format!("{:016x}\n", word.bits());
    words.iter().map(line).collect()
}

/// Words as bytes, as the NPU fetches them.
pub(crate) fn to_binary(words: &[Word]) -> Vec<u8> {
    words
        .iter()
        .flat_map(|word| word.bits().to_le_bytes())
        .collect()
}

/// The tokens between blanks and commas, without comments, each with its line
/// number.
fn tokens(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().flat_map(|(index, line)| {
        let code = line.split(['#', ';']).next().unwrap_or_default();
        code.split(|c: char| c.is_whitespace() || c == ',')
            .filter(|token| !token.is_empty())
            .map(move |token| (index + 1, token))
    })
}

fn hex(token: &str) -> Option<u64> {
    let digits = token
        .strip_prefix("0x")
        .or_else(|| token.strip_prefix("0X"))
        .unwrap_or(token);
    // from_str_radix accepts a sign, which is not part of a word.
    Some(digits)
        .filter(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()))
        .and_then(|digits| u64::from_str_radix(digits, 16).ok())
}

fn hex_words(text: &str) -> anyhow::Result<Vec<Word>> {
    let word = |(line, token): (usize, &str)| {
        let bits = hex(token).with_context(|| {
            let token = token.escape_debug();
            format!("line {line}: `{token}` is not a 64-bit hexadecimal number")
        })?;
        Ok(Word::from_bits(bits))
    };
    tokens(text).map(word).collect()
}

fn binary_words(bytes: &[u8]) -> anyhow::Result<Vec<Word>> {
    let (words, rest) = bytes.as_chunks::<WORD_BYTES>();
    ensure!(
        rest.is_empty(),
        "{} bytes are not a whole number of {WORD_BYTES}-byte words",
        bytes.len()
    );
    let word = |word: &[u8; WORD_BYTES]| Word::from_bits(u64::from_le_bytes(*word));
    Ok(words.iter().map(word).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_forms_say_the_same() {
        let expected = [0x0201_0000_00b1_1040, 1, 0xff].map(Word::from_bits);
        for (form, bytes) in [
            (
                Form::Hex,
                b"# a comment\n0x0201000000b11040, 1\n\n00ff ; tail\n".to_vec(),
            ),
            (
                Form::Assembler,
                b"CNA.CBUF_CON0 = 0xb1\n0x1 0xff # tail\n".to_vec(),
            ),
            (Form::Binary, to_binary(&expected)),
            (Form::Hex, to_hex(&expected).into_bytes()),
        ] {
            assert_eq!(Form::of_content(&bytes), form);
            assert_eq!(words(&bytes, form).unwrap(), expected);
        }
    }

    #[test]
    fn the_name_goes_before_the_content() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("program.s");
        // As hexadecimal words, the text would be two words: 12 and 1.
        std::fs::write(&path, "12 0x1").unwrap();
        assert_eq!(read(&path).unwrap(), [Word::from_bits(1)]);
        let path = directory.path().join("program.bin");
        std::fs::write(&path, "01234567").unwrap();
        let word = Word::from_bits(u64::from_le_bytes(*b"01234567"));
        assert_eq!(read(&path).unwrap(), [word]);
        let path = directory.path().join("program");
        std::fs::write(&path, "12 0x1").unwrap();
        assert_eq!(read(&path).unwrap(), [0x12, 1].map(Word::from_bits));
        assert_eq!(read_source(&path).unwrap(), [Word::from_bits(1)]);
    }

    #[test]
    fn nonsense_is_refused_with_its_place() {
        let error = |bytes: &[u8]| {
            let read = words(bytes, Form::of_content(bytes));
            read.unwrap_err().to_string()
        };
        assert!(error(b"nop\n2 xyz").starts_with("line 2, column 3: expected"));
        assert!(error(b"12345678901234567").contains("line 1"));
        assert!(error(b"+5").contains("`+`"));
        assert!(error(b"0x").contains("`0x`"));
        assert!(error(&[0, 1, 2]).contains("3 bytes"));
        assert!(error(b"").contains("no words"));
        assert!(error(b"# only talk\n").contains("no words"));
        let not_hex = words(b"1\n2 xyz", Form::Hex).unwrap_err().to_string();
        assert!(not_hex.contains("line 2: `xyz`"), "{not_hex}");
        assert!(words(&[0xff], Form::Hex).is_err());
    }
}
