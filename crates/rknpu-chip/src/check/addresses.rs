// SPDX-License-Identifier: MIT OR Apache-2.0
//! Strides and sizes of the input: addresses that silicon takes as they are,
//! and that are hardly meant.

use rknpu_regcmd::RegisterFile;
use rknpu_regcmd::regs::cna;
use rknpu_regcmd::task::Cube;

use super::shown;
use crate::Effect;
use crate::conv_config::{ConvConfig, FeatureSource};
use crate::precision::{ATOM, Precision};
use crate::trap::{Report, Stop};

/// Line pitch that failed where half of it worked (allbilly, row crops).
const LINE_PITCH_FAILED: i64 = 8192;
/// Channels of row-major int8 matrices that happyme531 leaves out, both ends
/// excluded, for matrices of more rows than this.
const ROW_MAJOR_GAP: std::ops::Range<usize> = 3073..4096;
const ROW_MAJOR_GAP_ROWS: usize = 4;
/// Data banks beyond which its row-major tiles failed.
const ROW_MAJOR_BANKS: usize = 8;
/// Channels at which a tf32 product timed out (happyme531).
const TF32_CHANNELS_FAILED: usize = 5120;

/// Where the features are read.
pub(crate) fn addresses(
    report: &mut Report,
    regs: &RegisterFile,
    conv: &ConvConfig,
) -> Result<(), Stop> {
    padding(report, regs, conv)?;
    channels(report, regs, conv)?;
    let FeatureSource::Cube(dma) = &conv.source else {
        return Ok(());
    };
    if conv.cbuf.data_reuse {
        return Ok(());
    }
    let cube = &dma.cube;
    if cube.lines.group > 1 {
        grouped(report, regs, cube)?;
    } else {
        by_lines(report, regs, cube)?;
    }
    let line_stride = cube.lines.group_step;
    if cube.lines.count > 1 && line_stride >= LINE_PITCH_FAILED {
        report.note(
            "T25-line-pitch",
            Effect::Note,
            &[shown::<cna::DmaCon1>(regs)],
            format!(
                "a line pitch of {line_stride} atoms: {LINE_PITCH_FAILED} was measured to fail"
            ),
            "keep LINE_STRIDE at 4096 atoms or below",
        )?;
    }
    measured_gaps(report, regs, conv, cube)
}

fn strides(regs: &RegisterFile) -> [(&'static str, u32); 4] {
    [
        shown::<cna::ConvCon1>(regs),
        shown::<cna::DmaCon1>(regs),
        shown::<cna::DmaCon2>(regs),
        shown::<cna::FcDataSize0>(regs),
    ]
}

/// Strides of a cube fetched in groups of four lines.
fn grouped(report: &mut Report, regs: &RegisterFile, cube: &Cube) -> Result<(), Stop> {
    let (width, height) = (cube.width as i64, cube.lines.count as i64);
    let dense = cube.lines.group_step == 4 * width;
    if height > 4 && !dense {
        return report.note(
            "T24-line-strides-in-group-mode",
            Effect::Garbage,
            &strides(regs),
            "lines are fetched in groups of four, and LINE_STRIDE is not that of four lines",
            "write 4 * width to LINE_STRIDE, or set GROUP_LINE_OFF with strides of single lines",
        );
    }
    if cube.surfaces.count < 2 || height == 0 {
        return Ok(());
    }
    let pitch = cube.surfaces.group_step;
    if height > 1 && pitch < width * height {
        report.note(
            "T22-surface-pitch",
            Effect::Garbage,
            &strides(regs),
            format!(
                "surfaces lie {pitch} atoms apart and have {}: all but the first channels are \
                 read from the wrong place",
                width * height
            ),
            "write width * (height - 4), signed, to SURF_STRIDE",
        )?;
    } else if height < 4 && pitch == 4 * width {
        report.note(
            "T21-short-height",
            Effect::Note,
            &strides(regs),
            "the surface pitch is that of four lines, and there are fewer: right only where the \
             cube was stored with four",
            "write width * (height - 4), signed, to SURF_STRIDE, or pad to four lines",
        )?;
    }
    Ok(())
}

/// Strides of a cube fetched line by line.
fn by_lines(report: &mut Report, regs: &RegisterFile, cube: &Cube) -> Result<(), Stop> {
    let (width, height) = (cube.width as i64, cube.lines.count as i64);
    // Without the line that the pitch counts.
    let stride = cube.surfaces.group_step - width;
    let of_groups = cube.lines.group_step == 4 * width && stride == width * (height - 4);
    if height > 4 && of_groups {
        report.note(
            "T24-group-strides-in-line-mode",
            Effect::Garbage,
            &strides(regs),
            "GROUP_LINE_OFF is set, and the strides are those of groups of four lines",
            "clear GROUP_LINE_OFF, or write the strides of single lines",
        )?;
    }
    Ok(())
}

/// Sizes at which tasks failed on silicon, without a rule that says why.
fn measured_gaps(
    report: &mut Report,
    regs: &RegisterFile,
    conv: &ConvConfig,
    cube: &Cube,
) -> Result<(), Stop> {
    let rows = cube.width == 1 && cube.lines.group == 1 && cube.surfaces.group_step == 1;
    let channels = conv.window.channels;
    let int8 = rows && conv.window.precision == Precision::Int8;
    let gap = int8 && ROW_MAJOR_GAP.contains(&channels) && cube.lines.count > ROW_MAJOR_GAP_ROWS;
    let banks = int8 && conv.cbuf.data_banks > ROW_MAJOR_BANKS;
    let tf32 = conv.window.precision == Precision::Tf32 && channels >= TF32_CHANNELS_FAILED;
    if gap || banks || tf32 {
        report.note(
            "T31-measured-failures",
            Effect::Note,
            &[
                shown::<cna::DataSize1>(regs),
                shown::<cna::DataSize0>(regs),
                shown::<cna::CbufCon0>(regs),
            ],
            "row-major int8 with 3072 < K < 4096 and more than 4 rows, or more than 8 data \
             banks, and tf32 with K = 5120 failed on silicon; nobody knows the rule",
            "split K or the rows, or store the matrix as a cube",
        )?;
    }
    Ok(())
}

/// A pad value for bytes that is not the same for odd and even channels.
fn padding(report: &mut Report, regs: &RegisterFile, conv: &ConvConfig) -> Result<(), Stop> {
    let pad = conv.window.pad_value as u16;
    let padded = conv.window.pads(conv.pixels);
    if padded && conv.window.precision == Precision::Int8 && pad >> 8 != pad & 0xff {
        report.note(
            "T50-pad-pattern",
            Effect::Note,
            &[shown::<cna::PadCon1>(regs)],
            format!(
                "PAD_CON1 is a pattern of 16 bits: odd channels are padded with {}",
                (pad >> 8) as i8
            ),
            "repeat the byte: value * 0x01010101",
        )?;
    }
    Ok(())
}

/// Channels that end within an atom.
fn channels(report: &mut Report, regs: &RegisterFile, conv: &ConvConfig) -> Result<(), Stop> {
    let per_atom = conv.window.precision.per_atom();
    let packed = matches!(conv.source, FeatureSource::Pixels(_));
    let channels = regs.get::<cna::DataSize1>().datain_channel() as usize;
    if !packed && !channels.is_multiple_of(per_atom) {
        report.note(
            "T32-channels-not-padded",
            Effect::Garbage,
            &[
                shown::<cna::DataSize1>(regs),
                shown::<cna::WeightSize1>(regs),
            ],
            format!(
                "{channels} channels end within an atom of {ATOM} bytes: what lies behind them is \
                 multiplied too"
            ),
            format!("pad features and weights with zeros to a multiple of {per_atom} channels"),
        )?;
    }
    Ok(())
}
