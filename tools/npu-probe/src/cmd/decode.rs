// SPDX-License-Identifier: MIT OR Apache-2.0
//! `npu-probe decode`: what a register program says, and what is wrong with
//! it.

use std::fs::File;
use std::io::{Read, stdin};
use std::path::Path;

use anyhow::{Context, anyhow, bail};
use rknpu_regcmd::{Finding, LintContext, RegisterInfo, Word, disassemble, lint};
use serde::Serialize;

use crate::exit::{Failure, Verdict};
use crate::flags::{DecodeFlags, Flags};
use crate::output;

/// Longest input. The longest program that the kernel takes has 65536 words
/// (16-bit counter); a text of many programs stays far below.
const BYTES_MAX: u64 = 64 << 20;

/// Bytes of a word.
const WORD_BYTES: usize = size_of::<u64>();

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Report {
    /// Number of words.
    words: usize,
    /// One line a word.
    disassembly: Vec<String>,
    findings: Vec<FindingReport>,
}

#[derive(Debug, Serialize)]
struct FindingReport {
    severity: String,
    rule: String,
    /// Index of the task in the file.
    task: usize,
    /// Index of the word, where it is about one.
    word: Option<usize>,
    registers: Vec<String>,
    message: String,
    remedy: String,
}

impl From<&Finding> for FindingReport {
    fn from(finding: &Finding) -> Self {
        let name = |r: &&RegisterInfo| format!("{}.{}", r.block, r.name);
        Self {
            severity: finding.severity.to_string(),
            rule: finding.rule.to_string(),
            task: finding.task,
            word: finding.word,
            registers: finding.registers.iter().map(name).collect(),
            message: finding.message.clone(),
            remedy: finding.remedy.to_owned(),
        }
    }
}

pub(crate) fn run(flags: &Flags, decode: &DecodeFlags) -> Result<Verdict, Failure> {
    let words = read(&decode.file)
        .and_then(|bytes| words(&bytes))
        .with_context(|| format!("cannot decode {}", decode.file.display()))
        .map_err(Failure::Usage)?;
    let words: Vec<Word> = words.into_iter().map(Word::from_bits).collect();
    let text = disassemble(&words);
    // Of the words alone: nothing is known here of buffers, nor of what ran
    // before.
    let findings = lint(&words, &LintContext::default());
    if flags.json {
        output::print_json(&Report {
            words: words.len(),
            disassembly: text.lines().map(str::to_owned).collect(),
            findings: findings.iter().map(FindingReport::from).collect(),
        })?;
        return Ok(Verdict::Pass);
    }
    output::print(&text)?;
    if findings.is_empty() {
        output::print("no findings\n")?;
    }
    for finding in &findings {
        output::print(&format!("{finding}\n"))?;
    }
    Ok(Verdict::Pass)
}

/// The file, or standard input for `-`.
fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let input: Box<dyn Read> = if path.as_os_str() == "-" {
        Box::new(stdin().lock())
    } else {
        Box::new(File::open(path)?)
    };
    input.take(BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > BYTES_MAX {
        bail!("it is longer than {BYTES_MAX} bytes");
    }
    Ok(bytes)
}

/// The words in a file: text if it is text without control characters, else
/// binary: the targets in a program, such as 0x0201, are control characters.
fn words(bytes: &[u8]) -> anyhow::Result<Vec<u64>> {
    let printable = |b: &u8| !b.is_ascii_control() || b.is_ascii_whitespace();
    let words = match std::str::from_utf8(bytes) {
        Ok(text) if bytes.iter().all(printable) => text_words(text)?,
        _ => binary_words(bytes)?,
    };
    if words.is_empty() {
        bail!("there is no word in it");
    }
    Ok(words)
}

fn text_words(text: &str) -> anyhow::Result<Vec<u64>> {
    let mut words = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let code = line.split(['#', ';']).next().unwrap_or_default();
        let tokens = code.split(|c: char| c.is_whitespace() || c == ',');
        for token in tokens.filter(|token| !token.is_empty()) {
            let digits = token
                .strip_prefix("0x")
                .or_else(|| token.strip_prefix("0X"))
                .unwrap_or(token);
            // from_str_radix takes a sign, which no word has.
            let word = Some(digits)
                .filter(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()))
                .and_then(|digits| u64::from_str_radix(digits, 16).ok())
                .ok_or_else(|| {
                    anyhow!(
                        "line {}: `{}` is not a 64-bit hexadecimal number",
                        number + 1,
                        token.escape_debug()
                    )
                })?;
            words.push(word);
        }
    }
    Ok(words)
}

fn binary_words(bytes: &[u8]) -> anyhow::Result<Vec<u64>> {
    let (words, rest) = bytes.as_chunks::<WORD_BYTES>();
    if !rest.is_empty() {
        bail!(
            "{} bytes are not a whole number of {WORD_BYTES}-byte words",
            bytes.len()
        );
    }
    Ok(words.iter().map(|word| u64::from_le_bytes(*word)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_binary_say_the_same() {
        let text = b"# a comment\n0x0201000000b11040, 1\n\n00ff ; tail\n";
        let expected = [0x0201_0000_00b1_1040, 1, 0xff];
        assert_eq!(words(text).unwrap(), expected);
        let binary: Vec<u8> = expected.iter().flat_map(|w| w.to_le_bytes()).collect();
        assert_eq!(words(&binary).unwrap(), expected);
    }

    #[test]
    fn nonsense_is_refused_with_its_place() {
        let error = |bytes: &[u8]| words(bytes).unwrap_err().to_string();
        assert!(error(b"1\n2 xyz").contains("line 2: `xyz`"));
        assert!(error(b"12345678901234567").contains("line 1"));
        assert!(error(b"+5").contains("`+5`"));
        assert!(error(b"0x").contains("`0x`"));
        assert!(error(&[0, 1, 2]).contains("3 bytes"));
        assert!(error(b"").contains("no word"));
        assert!(error(b"# only talk\n").contains("no word"));
    }
}
