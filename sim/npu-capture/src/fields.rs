// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads the fields of a payload in order.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, IntoBytes};

use crate::error::CaptureError;
use crate::format::{Record, SectionKind};

/// The rest of a payload.
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

    pub(crate) fn record<T: Record>(&mut self) -> Result<T, CaptureError> {
        let (record, rest) =
            T::read_from_prefix(self.rest).map_err(|_| self.malformed("it is too short"))?;
        self.rest = rest;
        Ok(record)
    }

    /// Reads `count` records in place.
    pub(crate) fn records<T: Record>(&mut self, count: u32) -> Result<&'a [T], CaptureError> {
        let too_short = self.malformed("it is too short for its counts");
        match <[T]>::ref_from_prefix_with_elems(self.rest, count as usize) {
            Ok((records, rest)) => {
                self.rest = rest;
                Ok(records)
            }
            Err(_) => Err(too_short),
        }
    }

    /// Reads a text: a length of 16 bits and as many bytes of UTF-8.
    pub(crate) fn text(&mut self) -> Result<String, CaptureError> {
        let len = usize::from(self.record::<U16>()?.get());
        let (bytes, rest) = self
            .rest
            .split_at_checked(len)
            .ok_or_else(|| self.malformed("a text is longer than the section"))?;
        let text = str::from_utf8(bytes).map_err(|_| self.malformed("a text is not UTF-8"))?;
        self.rest = rest;
        Ok(text.to_owned())
    }

    pub(crate) fn number(&mut self) -> Result<u32, CaptureError> {
        Ok(self.record::<U32>()?.get())
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

/// Appends a text as [`Fields::text`] reads it. A text that is too long is cut
/// between two characters.
pub(crate) fn push_text(payload: &mut Vec<u8>, text: &str) {
    let mut end = text.len().min(usize::from(u16::MAX));
    // `str::floor_char_boundary` needs Rust 1.91.
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let text = &text[..end];
    payload.extend_from_slice(U16::new(text.len() as u16).as_bytes());
    payload.extend_from_slice(text.as_bytes());
}
