// SPDX-License-Identifier: MIT OR Apache-2.0
//! From windows and kernels to a tile of results: the inner products of
//! CORE, the weight zero point correction, and the shift on the way out.

use super::conv_config::ConvConfig;
use super::core::{dot_float, dot_int};
use super::dma;
use super::dpu::stage::ChannelOperand;
use super::dpu::tile::Values;
use super::rows::{Operand, Rows};
use super::trap::Stop;

/// What a tile is computed from.
pub(crate) struct MacInput<'a, T> {
    pub(crate) conv: &'a ConvConfig,
    /// Windows of the tile's pixels, (tap, channel).
    pub(crate) windows: &'a Rows<T>,
    /// Direct: a row a kernel. Depthwise: a row a tap.
    pub(crate) kernels: &'a Rows<T>,
    pub(crate) pixels: usize,
    /// First output channel, and how many.
    pub(crate) channel: usize,
    pub(crate) channels: usize,
    /// BS_OW_OP, added to every weight (CPEND).
    pub(crate) weight_offset: Option<&'a ChannelOperand>,
}

/// A number type that the MAC array computes with.
pub(crate) trait Mac: Operand {
    /// Direct convolution: every pixel with every kernel.
    fn direct(input: &MacInput<'_, Self>) -> Result<Values, Stop>;
    /// Depthwise: each channel of a pixel with its own kernel. `windows`
    /// holds the tile's channels only.
    fn depthwise(input: &MacInput<'_, Self>) -> Result<Values, Stop>;
}

impl Mac for i16 {
    fn direct(input: &MacInput<'_, Self>) -> Result<Values, Stop> {
        let range = input.conv.int_range();
        let truncate = input.conv.truncate;
        let mut out = dma::buffer::<i32>(input.pixels * input.channels)?;
        for (pixel, out) in out.chunks_exact_mut(input.channels).enumerate() {
            let window = input.windows.row(pixel);
            let sum: i64 = match input.weight_offset {
                Some(_) => window.iter().map(|&v| i64::from(v)).sum(),
                None => 0,
            };
            for (n, out) in out.iter_mut().enumerate() {
                let mut accumulator = dot_int(range, window, input.kernels.row(n));
                if let Some(offset) = input.weight_offset {
                    accumulator += sum * i64::from(offset.at(input.channel + n) as i16);
                }
                *out = truncate.apply(accumulator);
            }
        }
        Ok(Values::Int(out))
    }

    fn depthwise(input: &MacInput<'_, Self>) -> Result<Values, Stop> {
        let channels = input.channels;
        let offsets: Vec<i64> = (0..channels)
            .map(|c| {
                input
                    .weight_offset
                    .map_or(0, |offset| i64::from(offset.at(input.channel + c) as i16))
            })
            .collect();
        let mut out = dma::buffer::<i32>(input.pixels * channels)?;
        let mut sums = vec![0i64; channels];
        for (pixel, out) in out.chunks_exact_mut(channels).enumerate() {
            sums.fill(0);
            let taps = input.windows.row(pixel).chunks_exact(channels);
            for (tap, values) in taps.take(input.conv.window.taps()).enumerate() {
                let weights = &input.kernels.row(tap)[..channels];
                for c in 0..channels {
                    let weight = i64::from(weights[c]) + offsets[c];
                    sums[c] += i64::from(values[c]) * weight;
                }
            }
            for (out, &sum) in out.iter_mut().zip(&sums) {
                *out = input.conv.truncate.apply(sum);
            }
        }
        Ok(Values::Int(out))
    }
}

impl Mac for f32 {
    fn direct(input: &MacInput<'_, Self>) -> Result<Values, Stop> {
        let mut out = dma::buffer::<f32>(input.pixels * input.channels)?;
        for (pixel, out) in out.chunks_exact_mut(input.channels).enumerate() {
            let window = input.windows.row(pixel);
            for (n, out) in out.iter_mut().enumerate() {
                *out = dot_float(window, input.kernels.row(n));
            }
        }
        Ok(Values::Float(out))
    }

    /// The products of the taps, exact in fp32, are summed in float64 in the
    /// order of the taps and rounded once.
    fn depthwise(input: &MacInput<'_, Self>) -> Result<Values, Stop> {
        let channels = input.channels;
        let mut out = dma::buffer::<f32>(input.pixels * channels)?;
        let mut sums = vec![0f64; channels];
        for (pixel, out) in out.chunks_exact_mut(channels).enumerate() {
            sums.fill(0.0);
            let taps = input.windows.row(pixel).chunks_exact(channels);
            for (tap, values) in taps.take(input.conv.window.taps()).enumerate() {
                let weights = &input.kernels.row(tap)[..channels];
                for c in 0..channels {
                    sums[c] += f64::from(values[c] * weights[c]);
                }
            }
            for (out, &sum) in out.iter_mut().zip(&sums) {
                *out = sum as f32;
            }
        }
        Ok(Values::Float(out))
    }
}
