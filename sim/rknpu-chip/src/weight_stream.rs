// SPDX-License-Identifier: MIT OR Apache-2.0
//! The weights of a task, part by part.
//!
//! A stream that fits CBUF is fetched before anything is computed, as silicon
//! does. Parts of a longer one are fetched when they are needed: the weights of
//! a task may be as large as the memory.

use std::ops::Range;

use rknpu_regcmd::DmaEngine;

use super::cbuf;
use super::conv_config::ConvConfig;
use super::core_parts::CoreParts;
use super::dma;
use super::precision::{Precision, round_tf32};
use super::trap::Stop;

/// Longest stream that is held, in bytes.
pub(crate) const HELD_BYTES: usize = cbuf::BYTES;

/// Place of the stream.
#[derive(Debug)]
pub(crate) enum WeightSource {
    /// Fetched as a whole.
    Held(Vec<u8>),
    /// In memory.
    Memory,
    /// In the weight banks, from an earlier task.
    Cbuf,
}

impl WeightSource {
    /// Bytes `range` of the stream of `conv`, up to its end. Bytes that are not
    /// held are read into `buffer`.
    pub(crate) fn part<'s>(
        &'s self,
        parts: &CoreParts<'_>,
        conv: &ConvConfig,
        range: Range<usize>,
        buffer: &'s mut Vec<u8>,
    ) -> Result<&'s [u8], Stop> {
        let rounded = conv.rounds_tf32 && conv.weights.precision == Precision::Tf32;
        let end = range.end.min(conv.stream_len()?);
        let range = range.start.min(end)..end;
        if let (Self::Held(stream), false) = (self, rounded) {
            return Ok(&stream[range]);
        }
        let part = dma::resized(buffer, range.len())?;
        match self {
            Self::Held(stream) => part.copy_from_slice(&stream[range]),
            Self::Memory => {
                let at = i64::from(conv.weight_base()) + range.start as i64;
                parts.dma.read(DmaEngine::Weight, at, part)?;
            }
            Self::Cbuf => parts.cbuf.reuse_weights(&conv.task.cbuf, range.start, part),
        }
        if rounded {
            round_tf32(part);
        }
        Ok(part)
    }
}
