// SPDX-License-Identifier: MIT OR Apache-2.0
//! The transposing writer (TP_ORG_EN), as far as it is known: 16-bit results
//! of an int16 product, saturated (silicon cuts them: E-transposed-cut), at
//!
//! ```text
//! slot(m, n) = 4*m + (n/4)%4 + (n/16)*4*M + (n%4)*16*M      slots of 2 bytes from DST_BASE
//! ```
//!
//! M is the number of pixels (E-transposed).

use super::Master;
use super::dma::Dma;
use super::trap::Stop;
use super::writer::Writer;

/// Bytes of an element.
const ELEMENT: i64 = size_of::<i16>() as i64;

/// Byte address of an element: the formula of this module.
fn address(writer: &Writer, pixel: usize, channel: usize) -> i64 {
    let (m, n, rows) = (pixel as i64, channel as i64, writer.output.pixels() as i64);
    let slot = 4 * m + n / 4 % 4 + n / 16 * 4 * rows + n % 4 * 16 * rows;
    i64::from(writer.output.base) + ELEMENT * slot
}

/// Writes the elements of a tile, 16 bits each in the order (pixel, channel),
/// `channels` a pixel, from (pixel, channel) on.
pub(crate) fn store(
    writer: &Writer,
    dma: &Dma<'_>,
    (pixel, channel): (usize, usize),
    channels: usize,
    elements: &[u8],
) -> Result<(), Stop> {
    for (index, element) in elements.chunks_exact(size_of::<i16>()).enumerate() {
        let n = channel + index % channels;
        if n < writer.channels {
            let at = address(writer, pixel + index / channels, n);
            dma.write(Master::DpuWrite, at, element)?;
        }
    }
    Ok(())
}
