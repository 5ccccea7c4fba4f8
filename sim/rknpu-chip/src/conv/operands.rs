// SPDX-License-Identifier: MIT OR Apache-2.0
//! Brings the operands of a task into CBUF, and the weights from there to the tiles.

use std::ops::Range;

use rknpu_regcmd::RegisterFile;
use rknpu_regcmd::regs;
use rknpu_regcmd::rules::{
    LINE_ROUNDING, LINES_NOT_AWAITED, SHORT_GROUP, STALE_CBUF, STALE_DECOMPRESSION,
};

use super::super::cbuf::{self, BANK_BYTES, Cbuf};
use super::super::check;
use super::super::cna::{self, FeatureCube};
use super::super::contested::OtherSide;
use super::super::conv_config::{ConvConfig, FeatureSource};
use super::super::core_parts::CoreParts;
use super::super::dcomp;
use super::super::dma;
use super::super::precision::{ATOM, Precision};
use super::super::trap::Stop;
use super::features::{self, Spilled};
use rknpu_regcmd::DmaEngine;

/// Brings the features into CBUF. Returns all of them if they can be held at
/// once, else a cube without lines.
pub(super) fn features(
    parts: &mut CoreParts<'_>,
    regs: &RegisterFile,
    conv: &ConvConfig,
) -> Result<FeatureCube, Stop> {
    let shape = conv.source.shape();
    let height = shape.height;
    let held = features::lines_held(conv)?;
    let base = conv.source.base();
    let none = FeatureCube::in_memory(Vec::new(), shape, 0..0)?;
    let mut memory = parts.cbuf.take_spare();
    if conv.task.cbuf.data_reuse {
        let found = parts.cbuf.has_features(&conv.task.cbuf, &none, base);
        check::reuse(parts.report, regs, "data", found)?;
        if held < height {
            return Ok(none);
        }
        return features::fetch(parts, conv, 0..height, memory);
    }
    if let FeatureSource::Cube(source) = &conv.source
        && parts.contested.has(OtherSide::OverReadBank)
    {
        let end = i64::from(base) + source.atoms() as i64 * ATOM as i64;
        parts.dma.check_read(DmaEngine::Feature, end, BANK_BYTES)?;
    }
    let kept = Cbuf::kept_lines(&conv.task.cbuf, height, none.line_bytes());
    parts.cbuf.keep_features(&conv.task.cbuf, &none, base);
    if height <= held {
        let cube = features::fetch(parts, conv, 0..height, memory)?;
        parts.cbuf.keep_lines(&conv.task.cbuf, &cube, kept);
        return Ok(cube);
    }
    // Faults come before the first result, even if their line is needed late.
    match &conv.source {
        FeatureSource::Cube(source) => cna::check(source, &parts.dma)?,
        FeatureSource::Pixels(source) => source.check(&parts.dma)?,
    }
    let Range { mut start, end } = kept;
    while start < end {
        let lines = start..end.min(start + held);
        start = lines.end;
        let cube = features::fetch(parts, conv, lines, memory)?;
        parts.cbuf.keep_lines(&conv.task.cbuf, &cube, cube.lines());
        memory = cube.into_memory();
    }
    Ok(none)
}

/// Brings the weights into CBUF.
pub(super) fn weights(
    parts: &mut CoreParts<'_>,
    regs: &RegisterFile,
    conv: &ConvConfig,
) -> Result<WeightSource, Stop> {
    let len = conv.stream_len()?;
    if conv.task.cbuf.weight_reuse {
        let found = parts
            .cbuf
            .has_weights(&conv.task.cbuf, len, conv.weight_base());
        check::reuse(parts.report, regs, "weight", found)?;
        return Ok(WeightSource::Cbuf);
    }
    if conv.compressed.is_some() && !regs.was_written(regs::cna::DcompCtrl::OFFSET) {
        let values = "DCOMP_CTRL is on but not written";
        parts.report.broken(&STALE_DECOMPRESSION, regs, values)?;
    }
    let long = conv.compressed.is_none() && len > cbuf::BYTES;
    let held = if long {
        Cbuf::kept_weights(&conv.task.cbuf, len)
    } else {
        len
    };
    if held > dcomp::HELD_BYTES {
        return Err(Stop::HostMemory);
    }
    let mut weights = dma::buffer::<u8>(held)?;
    let dma = &parts.dma;
    let base = i64::from(conv.weight_base());
    match &conv.compressed {
        Some(lanes) => dcomp::fetch(lanes, dma, conv.weight_base(), &mut weights)?,
        None => {
            dma.check_read(DmaEngine::Weight, base, len)?;
            dma.read(DmaEngine::Weight, base + (len - held) as i64, &mut weights)?;
        }
    }
    parts
        .cbuf
        .keep_weights(&conv.task.cbuf, &weights, len, conv.weight_base());
    Ok(if long {
        WeightSource::Memory
    } else {
        WeightSource::Held(weights)
    })
}

/// The weight stream of a task.
///
/// A stream that fits CBUF is fetched before anything is computed, as silicon
/// does. Parts of a longer one are fetched when they are needed: the weights of
/// a task may be as large as the memory.
#[derive(Debug)]
pub(super) enum WeightSource {
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
    pub(super) fn part<'s>(
        &'s self,
        parts: &CoreParts<'_>,
        conv: &ConvConfig,
        range: Range<usize>,
        buffer: &'s mut Vec<u8>,
    ) -> Result<&'s [u8], Stop> {
        let narrowing = conv.narrowing(conv.weights.precision);
        let end = range.end.min(conv.stream_len()?);
        let range = range.start.min(end)..end;
        if let (Self::Held(stream), None) = (self, narrowing) {
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
        if let Some(narrow) = narrowing {
            narrow(part);
        }
        Ok(part)
    }
}

/// Finds lines that read as other contents of CBUF, and reports the rule.
pub(super) fn spill(
    parts: &CoreParts<'_>,
    regs: &RegisterFile,
    conv: &ConvConfig,
    cube: &FeatureCube,
) -> Result<Option<Spilled>, Stop> {
    let spilled = |bank, first| Ok(Some(Spilled { bank, first }));
    let cbuf = &conv.task.cbuf;
    let height = cube.shape.height;
    // Lines that are not in CBUF when they are read show the weights.
    let bank_behind = cbuf.data_banks;
    let bank = cbuf.fc_data_bank as usize;
    if bank != 0 {
        return spilled(bank, 0);
    }
    let FeatureSource::Cube(source) = &conv.source else {
        return Ok(None);
    };
    let is_int8 = conv.window.precision == Precision::Int8;
    if cbuf.data_reuse {
        if is_int8 && parts.contested.has(OtherSide::Int8ReuseGarbage) {
            let values = "int8 features are reused";
            parts.report.broken(&STALE_CBUF, regs, values)?;
            return spilled(bank_behind, 0);
        }
        return Ok(None);
    }
    if parts.contested.has(OtherSide::ShortHeightGarbage)
        && (1..source.lines.group).contains(&height)
    {
        let values = format!("{height} lines");
        parts.report.broken(&SHORT_GROUP, regs, &values)?;
        return spilled(bank_behind, 0);
    }
    let fit = if parts.contested.has(OtherSide::LineRoundingDense) {
        let room = cbuf.data_banks * BANK_BYTES;
        room.checked_div(cube.line_bytes()).unwrap_or(usize::MAX)
    } else {
        cbuf.lines_that_fit(cube.line_bytes())
    };
    let filled = cbuf.line_bytes() * height;
    if is_int8
        && !conv.task.depthwise
        && cbuf.data_banks <= filled.div_ceil(BANK_BYTES)
        && fit >= height
        && parts.contested.has(OtherSide::Int8SlackBankNeeded)
    {
        let values = format!("{} data banks, without a spare bank", cbuf.data_banks);
        parts.report.broken(&LINE_ROUNDING, regs, &values)?;
        let last = height.saturating_sub(source.lines.group.max(1));
        return spilled(bank_behind, last);
    }
    // Unless the grains exceed the height, lines stream through the banks.
    if cbuf.grains > height {
        if fit < height {
            let values = format!("{fit} of {height} lines fit");
            parts.report.broken(&LINE_ROUNDING, regs, &values)?;
            return spilled(0, fit);
        }
    } else if parts.contested.has(OtherSide::FewGrainsGarbage)
        && conv.window.precision == Precision::Fp16
    {
        let values = format!("{} of {height} lines", cbuf.grains);
        parts.report.broken(&LINES_NOT_AWAITED, regs, &values)?;
        return spilled(bank_behind, cbuf.grains);
    }
    Ok(None)
}
