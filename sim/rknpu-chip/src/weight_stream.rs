// SPDX-License-Identifier: MIT OR Apache-2.0
//! The weights of a task, part by part.
//!
//! A stream that fits CBUF is fetched before anything is computed, as silicon
//! does. Parts of a longer one are fetched when they are needed: the weights of
//! a task may be as large as the memory.

use rknpu_regcmd::DmaEngine;
use rknpu_regcmd::task::Buffering;

use super::cbuf::{self, Cbuf};
use super::dma::{self, Dma};
use super::precision::round_tf32;
use super::trap::Stop;
use std::ops::Range;

/// Longest stream that is held, in bytes.
pub(crate) const HELD_BYTES: usize = cbuf::BYTES;

/// Place of the stream.
#[derive(Debug)]
pub(crate) enum WeightSource {
    /// Fetched as a whole.
    Held(Vec<u8>),
    /// In memory, from this address on.
    Memory(u32),
    /// In the weight banks, from an earlier task.
    Cbuf,
}

/// The stream of a task.
pub(crate) struct WeightStream<'a, 'b> {
    pub(crate) source: WeightSource,
    /// Bytes: WEIGHT_BYTES.
    pub(crate) len: usize,
    pub(crate) dma: Dma<'b>,
    pub(crate) cbuf: &'a Cbuf,
    pub(crate) config: Buffering,
    /// Whether tf32 words are rounded.
    pub(crate) rounded: bool,
}

impl WeightStream<'_, '_> {
    /// Bytes `range` of the stream, up to its end. Bytes that are not held are
    /// read into `buffer`.
    pub(crate) fn part<'s>(
        &'s self,
        range: Range<usize>,
        buffer: &'s mut Vec<u8>,
    ) -> Result<&'s [u8], Stop> {
        let end = range.end.min(self.len);
        let range = range.start.min(end)..end;
        if let (WeightSource::Held(stream), false) = (&self.source, self.rounded) {
            return Ok(&stream[range]);
        }
        let part = dma::resized(buffer, range.len())?;
        match &self.source {
            WeightSource::Held(stream) => part.copy_from_slice(&stream[range]),
            WeightSource::Memory(base) => {
                let at = i64::from(*base) + range.start as i64;
                self.dma.read(DmaEngine::Weight, at, part)?;
            }
            WeightSource::Cbuf => self.cbuf.reuse_weights(&self.config, range.start, part),
        }
        if self.rounded {
            round_tf32(part);
        }
        Ok(part)
    }
}
