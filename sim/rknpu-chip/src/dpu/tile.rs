// SPDX-License-Identifier: MIT OR Apache-2.0
//! A tile in the DPU: some pixels and some channels. Read engines deliver atoms,
//! which are decoded into the values of a tile.

use rknpu_regcmd::DmaEngine;
use rknpu_regcmd::task::Reads;

use super::super::dma::{self, Dma};
use super::super::precision::{ATOM, Precision, decode_float, decode_int};
use super::super::rdma::{EwLayout, Surfaces};
use super::super::trap::Stop;

/// Values in the type of the pipeline, ordered (pixel, channel).
///
/// The DPU has two pipelines: 32-bit integers, and floats. PROC_PRECISION of
/// DPU.DATA_FORMAT selects one for a task.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Values {
    Int(Vec<i32>),
    Float(Vec<f32>),
}

/// No values.
impl Default for Values {
    fn default() -> Self {
        Self::Int(Vec::new())
    }
}

/// A rectangle of the output: consecutive pixels of the stream, consecutive
/// channels.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct DpuTile {
    /// First pixel.
    pub(crate) pixel: usize,
    /// Number of pixels.
    pub(crate) pixels: usize,
    /// First channel.
    pub(crate) channel: usize,
    /// Number of channels.
    pub(crate) channels: usize,
    pub(crate) values: Values,
}

impl DpuTile {
    /// Moves the tile to the pipeline that the DPU is set to. A main input of
    /// the other type keeps its bits.
    pub(crate) fn enter_pipeline(&mut self, float: bool) {
        self.values = match std::mem::take(&mut self.values) {
            Values::Int(values) if float => Values::Float(
                values
                    .into_iter()
                    .map(|v| f32::from_bits(v as u32))
                    .collect(),
            ),
            Values::Float(values) if !float => {
                Values::Int(values.into_iter().map(|v| v.to_bits() as i32).collect())
            }
            values => values,
        };
    }
}

/// Layout, precision and size of what a read engine delivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Delivered {
    layout: EwLayout,
    pub(crate) precision: Precision,
    pixels: usize,
    channels: usize,
}

impl Delivered {
    pub(crate) fn new(reads: &Reads, layout: EwLayout, precision: Precision) -> Self {
        Self {
            layout,
            precision,
            pixels: reads.pixels(),
            channels: reads.cube[2],
        }
    }

    /// The values of a tile, decoded atom by atom. Values that the engine does
    /// not deliver are 0.
    pub(crate) fn values<T: Copy + Default>(
        &self,
        dma: &Dma<'_>,
        tile: &DpuTile,
        decode: impl Fn(Precision, &[u8], &mut [T]),
    ) -> Result<Vec<T>, Stop> {
        let mut out = dma::buffer::<T>(tile.pixels * tile.channels)?;
        let count = tile.pixels.min(self.pixels.saturating_sub(tile.pixel));
        if count == 0 || tile.channels == 0 {
            return Ok(out);
        }
        let per_atom = self.precision.per_atom();
        let mut run = dma::buffer::<u8>(count * ATOM)?;
        let mut values = vec![T::default(); per_atom];
        let end = tile.channel + tile.channels;
        let surfaces = end.min(self.channels).div_ceil(per_atom);
        for c1 in tile.channel / per_atom..surfaces {
            self.layout.read(dma, c1, tile.pixel, &mut run)?;
            let first = tile.channel.max(c1 * per_atom);
            let last = end.min((c1 + 1) * per_atom);
            let skip = first - c1 * per_atom;
            let rows = out.chunks_exact_mut(tile.channels);
            for (atom, row) in run.chunks_exact(ATOM).zip(rows) {
                decode(self.precision, atom, &mut values);
                row[first - tile.channel..last - tile.channel]
                    .copy_from_slice(&values[skip..skip + last - first]);
            }
        }
        Ok(out)
    }
}

/// Fills a tile with the main input of a flying task, read by MRDMA.
pub(crate) fn main_input(
    dma: &Dma<'_>,
    reads: &Reads,
    float: bool,
    tile: &mut DpuTile,
) -> Result<(), Stop> {
    let Some(main) = reads.main_read(true) else {
        return Ok(());
    };
    let layout = EwLayout::Cube(Surfaces::new(DmaEngine::Mrdma, main.near));
    let delivered = Delivered::new(reads, layout, reads.precision);
    tile.values = if float {
        Values::Float(delivered.values(dma, tile, decode_float)?)
    } else {
        Values::Int(delivered.values(dma, tile, decode_int)?)
    };
    Ok(())
}
