// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a task computes from: its way into CBUF.

use rknpu_regcmd::RegisterFile;

use super::super::cbuf::{BANK_BYTES, Cbuf};
use super::super::check;
use super::super::cna::{self, FeatureCube, LINE_GROUP};
use super::super::conv_config::{ConvConfig, FeatureSource};
use super::super::dma;
use super::super::precision::{Precision, round_tf32};
use super::super::trap::Stop;
use super::super::weight_stream::{self, Source};
use super::super::{FewGrains, LineRounding, Master, ShortHeight};
use super::Machine;

/// Rounds tf32 features to the mantissa that the MAC array takes, which then
/// finds nothing to cut off.
pub(super) fn round_features(conv: &ConvConfig, cube: &mut FeatureCube) {
    if conv.window.precision == Precision::Tf32 {
        for y in 0..cube.height {
            round_tf32(cube.line_mut(y));
        }
    }
}

/// Brings the features into CBUF.
pub(super) fn features(
    machine: &mut Machine<'_>,
    regs: &RegisterFile,
    conv: &ConvConfig,
) -> Result<FeatureCube, Stop> {
    if conv.cbuf.data_reuse {
        let (width, height, surfaces) = conv.source.shape();
        let mut cube = FeatureCube::empty(width, height, surfaces)?;
        check::reuse(
            machine.report,
            regs,
            "data",
            machine
                .cbuf
                .has_features(&conv.cbuf, &cube, conv.source.base()),
        )?;
        machine.cbuf.reuse_features(&conv.cbuf, &mut cube);
        return Ok(cube);
    }
    let cube = match &conv.source {
        FeatureSource::Cube(source) => {
            let mut cube = source.fetch(&machine.dma, machine.cbuf.take_spare())?;
            if let Some(cvt) = &conv.cvt {
                cna::convert(&mut cube, conv.window.precision, cvt);
            }
            cube
        }
        FeatureSource::Pixels(source) => source.fetch(&machine.dma, conv.cvt.as_ref())?,
    };
    machine
        .cbuf
        .keep_features(&conv.cbuf, &cube, conv.source.base());
    Ok(cube)
}

/// Brings the weights into CBUF.
pub(super) fn weights(
    machine: &mut Machine<'_>,
    regs: &RegisterFile,
    conv: &ConvConfig,
) -> Result<Source, Stop> {
    let len = conv.stream_len()?;
    if conv.cbuf.weight_reuse {
        let found = machine.cbuf.has_weights(&conv.cbuf, len, conv.weight_base);
        check::reuse(machine.report, regs, "weight", found)?;
        return Ok(Source::Cbuf);
    }
    check::compression(machine.report, regs, conv)?;
    let long = conv.compressed.is_none() && len > weight_stream::HELD_BYTES;
    let held = if long {
        Cbuf::kept_weights(&conv.cbuf, len)
    } else {
        len
    };
    let mut weights = dma::buffer::<u8>(held)?;
    let dma = &machine.dma;
    let base = i64::from(conv.weight_base);
    match &conv.compressed {
        Some(lanes) => lanes.fetch(dma, conv.weight_base, &mut weights)?,
        None => {
            dma.check_read(Master::Weight, base, len)?;
            dma.read(Master::Weight, base + (len - held) as i64, &mut weights)?;
        }
    }
    machine
        .cbuf
        .keep_weights(&conv.cbuf, &weights, len, conv.weight_base);
    Ok(if long {
        Source::Memory(conv.weight_base)
    } else {
        Source::Held(weights)
    })
}

/// What becomes of lines that the data banks cannot hold.
pub(super) fn spill(
    machine: &mut Machine<'_>,
    regs: &RegisterFile,
    conv: &ConvConfig,
    cube: &mut FeatureCube,
) -> Result<(), Stop> {
    // Lines that are read too early, or not at all, show the weights.
    let bank_behind = conv.cbuf.data_banks;
    let bank = conv.cbuf.fc_data_bank as usize;
    if bank != 0 {
        check::fc_data_bank(machine.report, regs)?;
        machine.cbuf.load_lines(&conv.cbuf, bank, 0, cube);
        return Ok(());
    }
    let FeatureSource::Cube(source) = &conv.source else {
        return Ok(());
    };
    if conv.cbuf.data_reuse {
        return Ok(());
    }
    if machine.contested.short_height == ShortHeight::Garbage
        && source.grouped
        && (1..LINE_GROUP).contains(&cube.height)
    {
        check::short_height(machine.report, regs)?;
        machine.cbuf.load_lines(&conv.cbuf, bank_behind, 0, cube);
        return Ok(());
    }
    let fit = match machine.contested.line_rounding {
        LineRounding::Entries => conv.cbuf.lines_that_fit(cube.line_bytes()),
        LineRounding::Dense => (conv.cbuf.data_banks * BANK_BYTES)
            .checked_div(cube.line_bytes())
            .unwrap_or(usize::MAX),
    };
    // With fewer grains than lines the rest streams through.
    if conv.cbuf.grains > cube.height {
        if fit < cube.height {
            check::lines(machine.report, regs, conv, (cube.height, fit))?;
            machine.cbuf.load_lines(&conv.cbuf, 0, fit, cube);
        }
    } else if machine.contested.few_grains == FewGrains::Garbage
        && conv.window.precision == Precision::Fp16
    {
        check::few_grains(machine.report, regs)?;
        machine
            .cbuf
            .load_lines(&conv.cbuf, bank_behind, conv.cbuf.grains, cube);
    }
    Ok(())
}
