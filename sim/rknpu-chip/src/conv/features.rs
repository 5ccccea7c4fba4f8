// SPDX-License-Identifier: MIT OR Apache-2.0
//! The features of a task, in bands of lines.
//!
//! A cube of up to [`BAND_BYTES`] is fetched before anything is computed. CBUF
//! cannot hold a larger cube at once either; its lines are fetched in bands of
//! as many as fit, when a tile needs them.

use std::ops::Range;

use super::super::cbuf::Cbuf;
use super::super::cna::{self, FeatureCube};
use super::super::conv_config::{ConvConfig, FeatureSource};
use super::super::dma::Dma;
use super::super::pixels;
use super::super::precision::{Precision, round_tf32};
use super::super::trap::Stop;

/// Most bytes of features that are held at a time: ten times what CBUF holds.
pub(crate) const BAND_BYTES: usize = 4 << 20;

/// Lines that are replaced by other contents of CBUF.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spilled {
    /// Bank from which the places of the lines are counted.
    pub(super) bank: usize,
    /// First of these lines.
    pub(super) first: usize,
}

/// Source of lines while a task runs.
pub(super) struct FeatureLines<'a, 'b> {
    pub(super) conv: &'a ConvConfig,
    pub(super) dma: Dma<'b>,
    pub(super) cbuf: &'a Cbuf,
    pub(super) spilled: Option<Spilled>,
    /// Whether tf32 operands are rounded instead of cut.
    pub(super) nearest: bool,
}

/// Number of lines of a task that are held at a time, at least one.
///
/// # Errors
/// [`Stop::HostMemory`] if a line is longer than [`BAND_BYTES`].
pub(super) fn lines_held(conv: &ConvConfig) -> Result<usize, Stop> {
    match BAND_BYTES.checked_div(conv.source.shape().line_bytes()) {
        Some(0) => Err(Stop::HostMemory),
        lines => Ok(lines.unwrap_or(usize::MAX)),
    }
}

/// Reads lines as they arrive in CBUF, or from CBUF if the task reuses them.
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
    /// Reads lines in the form that the MAC array gets. The result reuses
    /// `memory` if that is large enough.
    pub(super) fn band(&self, lines: Range<usize>, memory: Vec<u8>) -> Result<FeatureCube, Stop> {
        let mut cube = fetch(self.conv, &self.dma, self.cbuf, lines, memory)?;
        self.finish(&mut cube);
        Ok(cube)
    }

    /// Turns lines as they arrive in CBUF into those that the MAC array gets.
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
