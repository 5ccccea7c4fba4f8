// SPDX-License-Identifier: MIT OR Apache-2.0
//! The fields of a payload: numbers of 32 bits, and texts. A number of 64 bits is two of 32,
//! the low half first.

use zerocopy::FromBytes;
use zerocopy::little_endian::U32;

use crate::error::CaptureError;
use crate::format::SectionKind;

/// A number without a meaning yet.
pub(crate) const RESERVED: u32 = 0;

/// Reads the fields of a payload in order.
pub(crate) struct Fields<'a> {
    rest: &'a [u8],
    kind: SectionKind,
    offset: u64,
}

impl<'a> Fields<'a> {
    /// The payload of the section of `kind` at `offset`.
    pub(crate) fn new(payload: &'a [u8], kind: SectionKind, offset: u64) -> Self {
        Self {
            rest: payload,
            kind,
            offset,
        }
    }

    /// The error for a section that is malformed because of `what`.
    pub(crate) fn malformed(&self, what: &'static str) -> CaptureError {
        CaptureError::Malformed {
            kind: self.kind,
            offset: self.offset,
            what,
        }
    }

    /// Reads `N` numbers.
    pub(crate) fn numbers<const N: usize>(&mut self) -> Result<[u32; N], CaptureError> {
        let (numbers, rest) = <[U32; N]>::read_from_prefix(self.rest)
            .map_err(|_| self.malformed("it is too short"))?;
        self.rest = rest;
        Ok(numbers.map(U32::get))
    }

    /// Reads `count` rows of `N` numbers in place.
    pub(crate) fn rows<const N: usize>(
        &mut self,
        count: u32,
    ) -> Result<impl Iterator<Item = [u32; N]> + use<'a, N>, CaptureError> {
        let (rows, rest) = <[[U32; N]]>::ref_from_prefix_with_elems(self.rest, count as usize)
            .map_err(|_| self.malformed("it is too short for its counts"))?;
        self.rest = rest;
        Ok(rows.iter().map(|row| row.map(U32::get)))
    }

    /// Reads a text: a length of 16 bits and as many bytes of UTF-8.
    pub(crate) fn text(&mut self) -> Result<String, CaptureError> {
        let (len, rest) = self
            .rest
            .split_first_chunk()
            .ok_or_else(|| self.malformed("it is too short"))?;
        let (bytes, rest) = rest
            .split_at_checked(u16::from_le_bytes(*len).into())
            .ok_or_else(|| self.malformed("a text is longer than the section"))?;
        let text = str::from_utf8(bytes).map_err(|_| self.malformed("a text is not UTF-8"))?;
        self.rest = rest;
        Ok(text.to_owned())
    }

    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Checks that nothing is left.
    pub(crate) fn finish(self) -> Result<(), CaptureError> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(self.malformed("it has extra bytes at its end"))
        }
    }
}

/// Numbers as [`Fields::numbers`] reads them.
pub(crate) fn numbers(numbers: &[u32]) -> Vec<u8> {
    let bytes = numbers.iter().map(|number| number.to_le_bytes());
    bytes.flatten().collect()
}

/// Appends a text as [`Fields::text`] reads it. A text that is too long is cut
/// between two characters.
pub(crate) fn push_text(payload: &mut Vec<u8>, text: &str) {
    let mut end = text.len().min(usize::from(u16::MAX));
    // `str::floor_char_boundary` needs Rust 1.91.
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    payload.extend_from_slice(&(end as u16).to_le_bytes());
    payload.extend_from_slice(&text.as_bytes()[..end]);
}

/// The low and the high half of a number of 64 bits.
pub(crate) fn halves(number: u64) -> [u32; 2] {
    [number as u32, (number >> 32) as u32]
}

/// The number of 64 bits with these halves.
pub(crate) fn joined(low: u32, high: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}
