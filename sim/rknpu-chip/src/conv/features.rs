// SPDX-License-Identifier: MIT OR Apache-2.0
//! The features of a task, by bands of lines.
//!
//! A cube of up to [`BAND_BYTES`] is fetched before anything is computed. Of a
//! larger one, which CBUF cannot hold at once either, as many lines as fit are
//! fetched when a tile needs them.

use std::ops::Range;

use super::super::cbuf::Cbuf;
use super::super::cna::{self, FeatureCube};
use super::super::conv_config::{ConvConfig, FeatureSource};
use super::super::dma::Dma;
use super::super::pixels;
use super::super::precision::{Precision, round_tf32};
use super::super::trap::Stop;

/// Bytes of features that are held at a time: ten times what CBUF holds.
pub(crate) const BAND_BYTES: usize = 4 << 20;

/// Lines that show what CBUF holds in place of what was fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spilled {
    /// Banks between the first one and where the lines are looked for.
    pub(super) bank: usize,
    /// First of the lines.
    pub(super) first: usize,
}

/// Where lines come from while a task runs.
pub(super) struct FeatureLines<'a, 'b> {
    pub(super) conv: &'a ConvConfig,
    pub(super) dma: Dma<'b>,
    pub(super) cbuf: &'a Cbuf,
    pub(super) spilled: Option<Spilled>,
    /// tf32 operands are rounded, not cut.
    pub(super) nearest: bool,
}

/// Lines of a task that are held at a time, at least one.
///
/// # Errors
/// [`Stop::HostMemory`] where a line is longer than [`BAND_BYTES`].
pub(super) fn lines_held(conv: &ConvConfig) -> Result<usize, Stop> {
    match BAND_BYTES.checked_div(conv.source.shape().line_bytes()) {
        Some(0) => Err(Stop::HostMemory),
        lines => Ok(lines.unwrap_or(usize::MAX)),
    }
}

/// Lines as they come into CBUF, or out of it where they are reused.
pub(super) fn fetch(
    conv: &ConvConfig,
    dma: &Dma<'_>,
    cbuf: &Cbuf,
    lines: Range<usize>,
    memory: Vec<u8>,
) -> Result<FeatureCube, Stop> {
    if conv.task.cbuf.data_reuse {
        let mut cube = FeatureCube::in_memory(memory, conv.source.shape(), lines)?;
        cbuf.reuse_features(&conv.task.cbuf, &mut cube);
        return Ok(cube);
    }
    match &conv.source {
        FeatureSource::Cube(source) => {
            let mut cube = cna::fetch(source, dma, lines, memory)?;
            if let Some(cvt) = &conv.cvt {
                pixels::convert(&mut cube, conv.window.precision, cvt);
            }
            Ok(cube)
        }
        FeatureSource::Pixels(source) => source.fetch(dma, conv.cvt.as_ref(), lines, memory),
    }
}

impl FeatureLines<'_, '_> {
    /// Some lines, as the MAC array gets them. They take the place of `memory`,
    /// if there is enough.
    pub(super) fn band(&self, lines: Range<usize>, memory: Vec<u8>) -> Result<FeatureCube, Stop> {
        let mut cube = fetch(self.conv, &self.dma, self.cbuf, lines, memory)?;
        self.finish(&mut cube);
        Ok(cube)
    }

    /// From lines as they came into CBUF to what the MAC array gets.
    pub(super) fn finish(&self, cube: &mut FeatureCube) {
        if let Some(Spilled { bank, first }) = self.spilled {
            self.cbuf
                .load_lines(&self.conv.task.cbuf, bank, first, cube);
        }
        if self.nearest && self.conv.window.precision == Precision::Tf32 {
            for y in cube.lines() {
                round_tf32(cube.line_mut(y));
            }
        }
    }
}
