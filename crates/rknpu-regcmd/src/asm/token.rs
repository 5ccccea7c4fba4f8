// SPDX-License-Identifier: MIT OR Apache-2.0
//! A line as tokens with their columns.

use alloc::format;
use alloc::string::String;

/// A column, and what is wrong there.
pub(super) type LineError = (usize, String);

/// Longest excerpt in an error.
const EXCERPT_CHARS: usize = 40;

/// Digits of a word without a prefix, as the disassembly writes it.
const WORD_DIGITS: usize = 16;

/// A piece of a line: a name or number (letters, digits and `_` without a
/// gap), or one other character.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Token<'a> {
    pub(super) text: &'a str,
    /// Number of the first character in the line, from 1.
    pub(super) column: usize,
}

impl Token<'_> {
    /// The token for an error: quoted, and shortened if it is long.
    fn quoted(&self) -> String {
        let mut shown: String = self.text.chars().take(EXCERPT_CHARS).collect();
        if shown.len() < self.text.len() {
            shown.push_str("...");
        }
        format!("`{}`", shown.escape_debug())
    }

    /// Whether this is a number, which begins with a digit.
    pub(super) fn is_number(&self) -> bool {
        self.text.starts_with(|c: char| c.is_ascii_digit())
    }

    pub(super) fn is_name(&self) -> bool {
        self.text
            .starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
    }

    /// Whether this is a word: 16 hexadecimal digits, or fewer after `0x`.
    pub(super) fn is_word(&self) -> bool {
        self.text.starts_with("0x")
            || self.text.len() == WORD_DIGITS && self.text.bytes().all(|b| b.is_ascii_hexdigit())
    }

    /// Whether this is a decimal number, with which a line may begin.
    pub(super) fn is_index(&self) -> bool {
        self.text.bytes().all(|b| b.is_ascii_digit())
    }

    /// The number, up to `max`: decimal, or hexadecimal after `0x`.
    pub(super) fn number(&self, max: u64) -> Result<u64, LineError> {
        let (digits, radix) = match self.text.strip_prefix("0x") {
            Some(digits) => (digits, 16),
            None => (self.text, 10),
        };
        self.radix(digits, radix, max)
    }

    pub(super) fn word(&self) -> Result<u64, LineError> {
        let digits = self.text.strip_prefix("0x").unwrap_or(self.text);
        self.radix(digits, 16, u64::MAX)
    }

    fn radix(&self, digits: &str, radix: u32, max: u64) -> Result<u64, LineError> {
        if digits.is_empty() || !digits.chars().all(|c| c.is_digit(radix)) {
            return Err(self.expected("a number, decimal or hexadecimal after 0x"));
        }
        u64::from_str_radix(digits, radix)
            .ok()
            .filter(|&number| number <= max)
            .ok_or_else(|| {
                let found = self.quoted();
                self.wrong(format!(
                    "{found} does not fit here: the largest number is {max:#x}"
                ))
            })
    }

    pub(super) fn expected(&self, expected: &str) -> LineError {
        self.wrong(format!("expected {expected}, found {}", self.quoted()))
    }

    pub(super) fn wrong(&self, problem: impl Into<String>) -> LineError {
        (self.column, problem.into())
    }
}

/// The tokens of a line, up to its comment.
#[derive(Clone, Copy)]
pub(super) struct Tokens<'a> {
    rest: &'a str,
    column: usize,
}

impl<'a> Tokens<'a> {
    pub(super) fn new(line: &'a str) -> Self {
        Self {
            rest: line.split(['#', ';']).next().unwrap_or_default(),
            column: 1,
        }
    }

    pub(super) fn peek(&self) -> Option<Token<'a>> {
        let mut rest = *self;
        rest.next()
    }

    pub(super) fn accept(&mut self, text: &str) -> bool {
        let found = self.peek().is_some_and(|token| token.text == text);
        if found {
            self.next();
        }
        found
    }

    /// Takes the next token, which must be `text`.
    pub(super) fn demand(&mut self, text: &str) -> Result<(), LineError> {
        let expected = format!("`{text}`");
        let token = self.some(&expected)?;
        if token.text == text {
            return Ok(());
        }
        Err(token.expected(&expected))
    }

    /// Takes the next token, which must exist.
    pub(super) fn some(&mut self, expected: &str) -> Result<Token<'a>, LineError> {
        let end = |column| {
            (
                column,
                format!("expected {expected}, found the end of the line"),
            )
        };
        self.next().ok_or_else(|| end(self.column))
    }

    pub(super) fn number(&mut self, max: u64) -> Result<u64, LineError> {
        self.some("a number")?.number(max)
    }

    pub(super) fn value(&mut self) -> Result<u32, LineError> {
        Ok(self.number(u32::MAX.into())? as u32)
    }

    /// Takes `bytes` bytes, which are whole characters.
    fn cut(&mut self, bytes: usize) -> &'a str {
        let (text, rest) = self.rest.split_at(bytes);
        self.column += text.chars().count();
        self.rest = rest;
        text
    }
}

impl<'a> Iterator for Tokens<'a> {
    type Item = Token<'a>;

    fn next(&mut self) -> Option<Token<'a>> {
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
        self.cut(self.rest.len() - self.rest.trim_start().len());
        let first = self.rest.chars().next()?;
        let column = self.column;
        let parts = self.rest.find(|c| !is_part(c)).unwrap_or(self.rest.len());
        let text = self.cut(parts.max(first.len_utf8()));
        Some(Token { text, column })
    }
}
