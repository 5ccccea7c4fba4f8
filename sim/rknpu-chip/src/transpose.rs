// SPDX-License-Identifier: MIT OR Apache-2.0
//! The transposing writer (TP_ORG_EN), as far as it is known. It writes the low
//! 16 bits of the sums of an int16 matmul (E-transposed-cut), at
//!
//! ```text
//! slot(m, n) = 4*m + (n/4)%4 + (n/16)*4*M + (n%4)*16*M      slots of 2 bytes from DST_BASE
//! ```
//!
//! M is the number of pixels (E-transposed). Of each 32 channels SIZE_E + 1 groups
//! of four are written (inferred: E-transposed-size).

use rknpu_regcmd::DmaEngine;

use super::dma::Dma;
use super::dpu::tile::DpuTile;
use super::trap::Stop;
use super::writer::OutputWriter;

const ELEMENT: i64 = size_of::<u16>() as i64;
/// Channels of an atom of sums, and of eight such atoms.
const ATOM_CHANNELS: usize = 4;
const GROUP_CHANNELS: usize = 32;

/// Byte address of an element: the formula of this module.
fn address(writer: &OutputWriter, pixel: usize, channel: usize) -> i64 {
    let (m, n, rows) = (pixel as i64, channel as i64, writer.output.pixels() as i64);
    let slot = 4 * m + n / 4 % 4 + n / 16 * 4 * rows + n % 4 * 16 * rows;
    i64::from(writer.output.base) + ELEMENT * slot
}

/// Writes the elements of a tile. `sums` are its int32 values.
pub(crate) fn store(
    writer: &OutputWriter,
    dma: &Dma<'_>,
    tile: &DpuTile,
    sums: &[u8],
) -> Result<(), Stop> {
    let present = writer.output.group_atoms * ATOM_CHANNELS;
    for (index, &[low, high, ..]) in sums
        .as_chunks::<{ size_of::<i32>() }>()
        .0
        .iter()
        .enumerate()
    {
        let n = tile.channel + index % tile.channels;
        if n < writer.channels && n % GROUP_CHANNELS < present {
            let at = address(writer, tile.pixel + index / tile.channels, n);
            dma.write(DmaEngine::DpuWrite, at, &[low, high])?;
        }
    }
    Ok(())
}
