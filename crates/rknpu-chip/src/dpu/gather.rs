// SPDX-License-Identifier: MIT OR Apache-2.0
//! From the atoms that a read engine brings to the values of a tile.

use rknpu_regcmd::task::Reads;

use super::super::Master;
use super::super::dma::{self, Dma};
use super::super::precision::{ATOM, Precision, decode_float, decode_int};
use super::super::rdma::{EwLayout, Surfaces};
use super::super::trap::Stop;
use super::tile::{Tile, Values};

/// What a read engine delivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Delivered {
    pixels: usize,
    channels: usize,
}

impl Delivered {
    pub(crate) fn of(reads: &Reads) -> Self {
        Self {
            pixels: reads.pixels(),
            channels: reads.cube[2],
        }
    }
}

/// Reads the operand of a tile and decodes it atom by atom. What the engine
/// does not deliver is left alone.
pub(crate) fn gather<T>(
    dma: &Dma<'_>,
    layout: &EwLayout,
    precision: Precision,
    delivered: Delivered,
    tile: &Tile,
    out: &mut [T],
    decode: impl Fn(Precision, &[u8], &mut [T]),
) -> Result<(), Stop>
where
    T: Copy + Default,
{
    let count = tile.pixels.min(delivered.pixels.saturating_sub(tile.pixel));
    if count == 0 || tile.channels == 0 {
        return Ok(());
    }
    let per_atom = precision.per_atom();
    let mut run = dma::buffer::<u8>(count * ATOM)?;
    let mut values = vec![T::default(); per_atom];
    let end = tile.channel + tile.channels;
    let surfaces = end.min(delivered.channels).div_ceil(per_atom);
    for c1 in tile.channel / per_atom..surfaces {
        layout.read(dma, c1, tile.pixel, &mut run)?;
        let first = tile.channel.max(c1 * per_atom);
        let last = end.min((c1 + 1) * per_atom);
        let skip = first - c1 * per_atom;
        let rows = out.chunks_exact_mut(tile.channels);
        for (atom, row) in run.chunks_exact(ATOM).zip(rows) {
            decode(precision, atom, &mut values);
            row[first - tile.channel..last - tile.channel]
                .copy_from_slice(&values[skip..skip + last - first]);
        }
    }
    Ok(())
}

/// The main input of a flying task, read by MRDMA.
pub(crate) fn main_input(
    dma: &Dma<'_>,
    reads: &Reads,
    float: bool,
    mut tile: Tile,
) -> Result<Tile, Stop> {
    let Some(main) = reads.main_read(true) else {
        return Ok(tile);
    };
    let layout = EwLayout::Cube(Surfaces::new(Master::Mrdma, main.near));
    let (precision, delivered) = (reads.precision, Delivered::of(reads));
    let len = tile.pixels * tile.channels;
    tile.values = if float {
        let mut out = dma::buffer::<f32>(len)?;
        gather(
            dma,
            &layout,
            precision,
            delivered,
            &tile,
            &mut out,
            decode_float,
        )?;
        Values::Float(out)
    } else {
        let mut out = dma::buffer::<i32>(len)?;
        gather(
            dma, &layout, precision, delivered, &tile, &mut out, decode_int,
        )?;
        Values::Int(out)
    };
    Ok(tile)
}
