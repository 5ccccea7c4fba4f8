// SPDX-License-Identifier: MIT OR Apache-2.0
//! The feature fetch: strides that silicon accepts, but that are probably mistakes.

use alloc::format;

use super::row::{Found, Shows};
use crate::precision::Precision;
use crate::regs::cna;
use crate::task::{ConvTask, Cube};

/// The longest line pitch that was measured to work, atoms. Twice this pitch failed
/// (E-line-pitch).
const LINE_PITCH_KNOWN: i64 = 4096;
/// Channels of row-major int8 matrices that failed, if they had more than
/// [`ROW_MAJOR_GAP_ROWS`] rows (E-deep-int8-rows).
const ROW_MAJOR_GAP: core::ops::Range<usize> = 3073..4096;
const ROW_MAJOR_GAP_ROWS: usize = 4;
/// Data banks beyond which row-major int8 tiles failed.
const ROW_MAJOR_BANKS: usize = 8;
/// Channels with which a tf32 matmul timed out (E-deep-tf32).
const TF32_CHANNELS_FAILED: usize = 5120;

const STRIDES: Shows = shows![cna::ConvCon1, cna::DmaCon1, cna::DmaCon2, cna::FcDataSize0];

/// The fix of the surface pitch, for lines that are fetched in groups.
const SURFACE: &str = "write width x (height - 4), signed, to SURF_STRIDE, or pad to four lines";

rules! { pub,
    "T24-line-strides-in-group-mode" ["E-line-mode"] [..STRIDES] Error Garbage:
        "lines are fetched in groups of four, and LINE_STRIDE is not that of four lines (measured)",
        "write 4 x width to LINE_STRIDE, or set GROUP_LINE_OFF with strides of single lines",
        Conv |conv, _| {
            let cube = fetched(conv)?;
            (grouped(&cube) && strays(&cube)).then(|| {
                let (line, right) = (cube.lines.group_step, 4 * cube.width);
                format!("LINE_STRIDE is {line}, four lines are {right}")
            })
        };
    "T22-surface-pitch" ["E-surface-pitch"] [..STRIDES] Error Garbage:
        "surfaces of the input overlap, so that all but the first channels are garbage (measured for heights that are not a multiple of 4)",
        SURFACE,
        Conv surface_pitch;
    "T21-short-height" ["E-short-height-exact", "E-short-height-garbage", "E-short-slice"] [..STRIDES] Warning Note:
        "less than four lines with the surface pitch of four: right only if the cube is stored with four (measured: with the stride clamped to 0 it is garbage)",
        SURFACE,
        Conv |conv, _| {
            let cube = fetched(conv)?;
            let pitch = cube.surfaces.group_step;
            let lines = cube.lines.count;
            let short = lines < cube.lines.group && pitch == 4 * cube.width as i64;
            (short && cube.surfaces.count > 1 && lines > 0)
                .then(|| format!("{lines} lines of {} atoms, surfaces {pitch} apart", cube.width))
        };
    "T24-group-strides-in-line-mode" ["E-line-mode"] [..STRIDES] Error Garbage:
        "GROUP_LINE_OFF is set, and the strides are those of groups of four lines (measured)",
        "clear GROUP_LINE_OFF, or write the strides of single lines",
        Conv |conv, _| {
            let cube = fetched(conv)?;
            let (width, height) = (cube.width as i64, cube.lines.count as i64);
            // The pitch includes one line, SURF_STRIDE does not.
            let surface = cube.surfaces.group_step - width;
            let line = cube.lines.group_step;
            let has_group_steps = line == 4 * width && surface == width * (height - 4);
            (!grouped(&cube) && height > 4 && has_group_steps)
                .then(|| format!("LINE_STRIDE is {line}, SURF_STRIDE {surface}"))
        };
    "T25-line-pitch" ["E-line-pitch"] [..STRIDES] Warning Note:
        "a line pitch of 8192 atoms failed where 4096 worked (measured)",
        "keep LINE_STRIDE at 4096 atoms or below",
        Conv |conv, _| {
            let cube = fetched(conv)?;
            let pitch = cube.lines.group_step;
            (cube.lines.count > 1 && pitch > LINE_PITCH_KNOWN)
                .then(|| format!("lines are {pitch} atoms apart"))
        };
    "T31-measured-failures" ["E-deep-int8-rows", "E-deep-tf32"] [cna::DataSize1, cna::DataSize0, cna::CbufCon0] Note Note:
        "row-major int8 with 3072 < K < 4096 and more than 4 rows, or more than 8 data banks, and tf32 with K = 5120 failed on silicon; the rule is not known",
        "split K or the rows, or store the matrix as a cube",
        Conv |conv, _| {
            let cube = fetched(conv)?;
            let (rows, channels) = (cube.lines.count, conv.features.window[2]);
            let by_rows = cube.width == 1 && !grouped(&cube) && cube.surfaces.group_step == 1;
            let precision = conv.features.precision;
            let gap = ROW_MAJOR_GAP.contains(&channels) && rows > ROW_MAJOR_GAP_ROWS
                || conv.cbuf.data_banks > ROW_MAJOR_BANKS;
            let int8 = by_rows && precision == Precision::Int8 && gap;
            let tf32 = precision == Precision::Tf32 && channels >= TF32_CHANNELS_FAILED;
            (int8 || tf32).then(|| format!("K = {channels}, {rows} rows of {precision}"))
        };
}

/// The cube that is fetched; `None` if CBUF holds it already, or for packed pixels.
fn fetched(conv: &ConvTask) -> Option<Cube> {
    conv.features.cube().filter(|_| !conv.cbuf.data_reuse)
}

const fn grouped(cube: &Cube) -> bool {
    cube.lines.group > 1
}

/// Whether groups of lines are not adjacent.
const fn strays(cube: &Cube) -> bool {
    cube.lines.count > cube.lines.group
        && cube.lines.group_step != (cube.lines.group * cube.width) as i64
}

/// Checks that surfaces do not overlap. They may rise or fall: SURF_STRIDE is signed.
fn surface_pitch(conv: &ConvTask, _: &crate::RegisterFile) -> Found {
    let cube = fetched(conv)?;
    let (width, height, surfaces) = (cube.width, cube.lines.count, cube.surfaces.count);
    let (line, pitch) = (cube.lines.group_step, cube.surfaces.group_step);
    let overlap = if grouped(&cube) {
        let dense = (width * height) as i64;
        !strays(&cube) && surfaces > 1 && pitch.abs() < dense
    } else {
        lines_meet([width, height, surfaces], line, pitch.abs())
    };
    overlap
        .then(|| format!("{surfaces} surfaces {pitch} atoms apart of {height} lines {line} apart"))
}

/// Whether two lines share an atom. Lines have `width` atoms and are `line` atoms
/// apart in each surface; surfaces are `pitch` atoms apart.
fn lines_meet([width, lines, surfaces]: [usize; 3], line: i64, pitch: i64) -> bool {
    let (width, lines) = (width as i64, lines as i64);
    if lines > 1 && (line == 0 || line < width) {
        return true;
    }
    // Compares every distance of surfaces with the nearest distances of lines.
    (1..surfaces as i64).any(|surface| {
        let distance = surface * pitch;
        if lines < 2 {
            return distance < width;
        }
        let nearest = distance / line;
        [nearest, nearest + 1]
            .iter()
            .any(|&count| count < lines && (distance - count * line).abs() < width)
    })
}
