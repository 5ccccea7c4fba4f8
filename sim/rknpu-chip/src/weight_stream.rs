// SPDX-License-Identifier: MIT OR Apache-2.0
//! The weights of a task, part by part.
//!
//! A stream that CBUF can hold is fetched before anything is computed, as
//! silicon does. Of a longer one the parts are fetched as they are needed: the
//! weights of a task may be as large as the memory.

use rknpu_regcmd::DmaEngine;
use rknpu_regcmd::task::Buffering;

use super::cbuf::{self, Cbuf};
use super::dma::{self, Dma};
use super::precision::round_tf32;
use super::trap::Stop;
use std::ops::Range;

/// Bytes of the longest stream that is held.
pub(crate) const HELD_BYTES: usize = cbuf::BYTES;

/// Where the stream is.
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
    /// tf32 words that are to be rounded.
    pub(crate) rounded: bool,
}

impl WeightStream<'_, '_> {
    /// The bytes `range` of the stream, as far as it has them. What is not
    /// held is brought into `buffer`.
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
