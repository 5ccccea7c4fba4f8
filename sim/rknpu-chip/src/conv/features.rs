// SPDX-License-Identifier: MIT OR Apache-2.0
//! The features of a task, in bands of lines.
//!
//! A cube of up to [`BAND_BYTES`] is fetched before anything is computed. CBUF
//! cannot hold a larger cube at once either; its lines are fetched in bands of
//! as many as fit, when a tile needs them.

use std::ops::Range;

use super::super::cbuf;
use super::super::cna::{self, FeatureCube};
use super::super::conv_config::{ConvConfig, FeatureSource};
use super::super::core_parts::CoreParts;
use super::super::pixels;
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

/// Reads lines as they arrive in CBUF, or from CBUF if the task reuses them. The
/// result reuses `memory` if that is large enough.
pub(super) fn fetch(
    parts: &CoreParts<'_>,
    conv: &ConvConfig,
    lines: Range<usize>,
    memory: Vec<u8>,
) -> Result<FeatureCube, Stop> {
    if conv.task.cbuf.data_reuse {
        let mut cube = FeatureCube::in_memory(memory, conv.source.shape(), lines)?;
        let cbuf = &conv.task.cbuf;
        parts
            .cbuf
            .load_lines(cbuf, 0..cbuf.data_banks, 0, &mut cube);
        return Ok(cube);
    }
    match &conv.source {
        FeatureSource::Cube(source) => {
            let mut cube = cna::fetch(source, &parts.dma, lines, memory)?;
            if let Some(cvt) = &conv.cvt {
                pixels::convert(&mut cube, conv.window.precision, cvt);
            }
            Ok(cube)
        }
        FeatureSource::Pixels(source) => source.fetch(&parts.dma, conv.cvt.as_ref(), lines, memory),
    }
}

/// Turns lines as they arrive in CBUF into those that the MAC array gets.
pub(super) fn finish(
    parts: &CoreParts<'_>,
    conv: &ConvConfig,
    spilled: Option<Spilled>,
    cube: &mut FeatureCube,
) {
    if let Some(Spilled { bank, first }) = spilled {
        let banks = bank..bank + cbuf::BANKS;
        parts.cbuf.load_lines(&conv.task.cbuf, banks, first, cube);
    }
    if let Some(narrow) = conv.narrowing(conv.window.precision) {
        for y in cube.lines() {
            narrow(cube.line_mut(y));
        }
    }
}
