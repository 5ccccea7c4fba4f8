// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tiles of a depthwise convolution.

use super::super::core::IntRange;
use super::super::depthwise::{Depthwise, Part};
use super::super::dma;
use super::super::dpu::tile::{Tile, Values};
use super::super::gemm::Vectors;
use super::super::mac::Mac;
use super::super::precision::ATOM;
use super::super::rows::Rows;
use super::super::trap::Stop;
use super::{Convolution, Scratch};

/// Weights of [`Convolution::depthwise_bytes`]: as they come, and with their
/// offsets.
#[derive(Default)]
pub(super) struct BytesScratch {
    kernels: Rows<i16>,
    weights: Vec<i32>,
}

impl Convolution<'_> {
    /// The way of int8 depthwise tasks, where it is exact.
    pub(super) fn bytes_path(&self) -> Result<Option<Depthwise<'_>>, Stop> {
        let window = &self.conv.window;
        let fits = self.conv.depthwise
            && self.vectors != Vectors::Literal
            && !self.conv.precision.is_float()
            && self.conv.int_range() == IntRange::Byte
            && self.groups().all(|(_, channel, channels)| {
                channel.is_multiple_of(ATOM) && channels.is_multiple_of(ATOM)
            });
        if !fits {
            return Ok(None);
        }
        Depthwise::new(window, self.cube)
    }

    /// A tile of some pixels, straight from the features.
    pub(super) fn depthwise_bytes(
        &self,
        depthwise: &Depthwise<'_>,
        (first, count): (usize, usize),
        scratch: &mut BytesScratch,
    ) -> Result<(), Stop> {
        let BytesScratch { kernels, weights } = scratch;
        let padding = self.conv.window.padding::<i16>();
        for (group, channel, channels) in self.groups() {
            let shape = &self.conv.weights;
            shape.depthwise_rows(self.weights, channel, channels, kernels)?;
            let offset = |c| self.weight_offset().map_or(0, |o| o.at(channel + c) as i16);
            let offsets: Vec<i32> = (0..channels).map(|c| offset(c).into()).collect();
            weights.clear();
            for tap in 0..self.conv.window.taps() {
                let row = kernels.row(tap).iter().zip(&offsets);
                weights.extend(row.map(|(&weight, &offset)| i32::from(weight) + offset));
            }
            let mut sums = dma::buffer::<i32>(count * channels)?;
            let part = Part {
                pixels: (first, count),
                channel,
                channels,
                padding: padding.get(channel..).unwrap_or_default(),
                weights,
            };
            depthwise.sums(&part, &mut sums);
            if self.conv.truncate.shift != 0 {
                for sum in &mut sums {
                    *sum = self.conv.truncate.apply((*sum).into());
                }
            }
            let tile = Tile {
                pixel: first,
                pixels: count,
                channel,
                channels,
                values: Values::Int(sums),
            };
            self.finish(group, tile)?;
        }
        Ok(())
    }

    /// A tile of some pixels, from gathered windows.
    pub(super) fn depthwise<T: Mac>(
        &self,
        padding: &[T],
        (first, count): (usize, usize),
        scratch: &mut Scratch<T>,
    ) -> Result<(), Stop> {
        let window = &self.conv.window;
        for (group, channel, channels) in self.groups() {
            // Channels beyond the input are written too, from zeros.
            let mut padding = padding.to_vec();
            padding.resize((channel + channels).max(padding.len()), T::default());
            let range = channel..channel + channels;
            window.rows(
                self.cube,
                &padding,
                (first, count),
                range,
                &mut scratch.windows,
            )?;
            let weights = &self.conv.weights;
            weights.depthwise_rows(self.weights, channel, channels, &mut scratch.kernels)?;
            let input = self.input(scratch, count, channel, channels);
            self.finish(group, input.tile(first, T::depthwise(&input)?))?;
        }
        Ok(())
    }
}
