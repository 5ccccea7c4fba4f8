// SPDX-License-Identifier: MIT OR Apache-2.0
//! From windows and kernels to a tile of results: the inner products of
//! CORE, the weight zero point correction, and the shift on the way out.

use super::conv_config::ConvConfig;
use super::dma;
use super::dpu::stage::ChannelOperand;
use super::dpu::tile::{Tile, Values};
use super::gemm::{self, Element};
use super::mac_array::{INT8_ROW_MAX, IntRange, dot_int, round_sum};
use super::rows::{Operand, Rows};
use super::trap::Stop;
use super::vectors::Vectors;

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
    /// What the host multiplies with.
    pub(crate) vectors: Vectors,
}

impl<T> MacInput<'_, T> {
    /// The tile of the pixels from `pixel` on, with these results.
    pub(crate) fn tile(&self, pixel: usize, values: Values) -> Tile {
        Tile {
            pixel,
            pixels: self.pixels,
            channel: self.channel,
            channels: self.channels,
            values,
        }
    }
}

/// A number type that the MAC array computes with.
pub(crate) trait Mac: Operand {
    /// Direct convolution: every pixel with every kernel.
    fn direct(input: &MacInput<'_, Self>) -> Result<Values, Stop>;
    /// Depthwise: each channel of a pixel with its own kernel. `windows`
    /// holds the tile's channels only.
    fn depthwise(input: &MacInput<'_, Self>) -> Result<Values, Stop>;
}

/// CPEND of a tile: the sum of each window times the offset of each channel.
struct Offsets {
    windows: Vec<i64>,
    weights: Vec<i64>,
}

impl Offsets {
    fn new(input: &MacInput<'_, i16>, operand: &ChannelOperand) -> Result<Self, Stop> {
        let mut windows = dma::buffer(input.pixels)?;
        for (pixel, sum) in windows.iter_mut().enumerate() {
            *sum = input.windows.row(pixel).iter().map(|&v| i64::from(v)).sum();
        }
        let channels = input.channel..input.channel + input.channels;
        Ok(Self {
            windows,
            weights: channels.map(|c| i64::from(operand.at(c) as i16)).collect(),
        })
    }
}

impl Mac for i16 {
    fn direct(input: &MacInput<'_, Self>) -> Result<Values, Stop> {
        let truncate = input.conv.truncate;
        let channels = input.channels;
        let offsets = match input.weight_offset {
            Some(offset) => Some(Offsets::new(input, offset)?),
            None => None,
        };
        let mut out = dma::buffer::<i32>(input.pixels * channels)?;
        let mut put = |pixel: usize, n: usize, sum: i64| {
            let offset = offsets
                .as_ref()
                .map_or(0, |o| o.windows[pixel] * o.weights[n]);
            out[pixel * channels + n] = truncate.apply(sum + offset);
        };
        let short = input.conv.weights.row_len() <= INT8_ROW_MAX;
        let fast = short && input.vectors != Vectors::Literal;
        if input.conv.int_range() == IntRange::Byte && fast {
            let windows = (input.windows, input.pixels);
            let kernels = (input.kernels, channels);
            gemm::products(input.vectors, windows, kernels, |pixel, n, sums| {
                put(pixel, n, gemm::total_int(sums));
            })?;
        } else {
            for pixel in 0..input.pixels {
                for n in 0..channels {
                    put(
                        pixel,
                        n,
                        dot_int(input.windows.row(pixel), input.kernels.row(n)),
                    );
                }
            }
        }
        Ok(Values::Int(out))
    }

    fn depthwise(input: &MacInput<'_, Self>) -> Result<Values, Stop> {
        let channels = input.channels;
        let offset = |c| {
            input
                .weight_offset
                .map_or(0, |o| o.at(input.channel + c) as i16)
        };
        let offsets: Vec<i64> = (0..channels).map(|c| offset(c).into()).collect();
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

/// fp16.
impl Mac for f32 {
    fn direct(input: &MacInput<'_, Self>) -> Result<Values, Stop> {
        direct_float(input, |&sum| sum)
    }

    fn depthwise(input: &MacInput<'_, Self>) -> Result<Values, Stop> {
        depthwise_float(input)
    }
}

/// The other floats.
impl Mac for f64 {
    fn direct(input: &MacInput<'_, Self>) -> Result<Values, Stop> {
        direct_float(input, gemm::total_float)
    }

    fn depthwise(input: &MacInput<'_, Self>) -> Result<Values, Stop> {
        depthwise_float(input)
    }
}

/// The inner products of [`super::gemm`], each rounded once.
fn direct_float<T: Element>(
    input: &MacInput<'_, T>,
    total: impl Fn(&T::Sums) -> f64,
) -> Result<Values, Stop> {
    let channels = input.channels;
    let mut out = dma::buffer::<f32>(input.pixels * channels)?;
    let windows = (input.windows, input.pixels);
    let kernels = (input.kernels, channels);
    gemm::products(input.vectors, windows, kernels, |pixel, n, sums| {
        out[pixel * channels + n] = round_sum(total(sums));
    })?;
    Ok(Values::Float(out))
}

/// The products of the taps are summed in float64 in the order of the taps and
/// rounded once.
fn depthwise_float<T: Operand + Into<f64>>(input: &MacInput<'_, T>) -> Result<Values, Stop> {
    let channels = input.channels;
    let mut out = dma::buffer::<f32>(input.pixels * channels)?;
    let mut sums = vec![0f64; channels];
    for (pixel, out) in out.chunks_exact_mut(channels).enumerate() {
        sums.fill(0.0);
        let taps = input.windows.row(pixel).chunks_exact(channels);
        for (tap, values) in taps.take(input.conv.window.taps()).enumerate() {
            let weights = &input.kernels.row(tap)[..channels];
            for c in 0..channels {
                sums[c] += values[c].into() * weights[c].into();
            }
        }
        for (out, &sum) in out.iter_mut().zip(&sums) {
            *out = round_sum(sum);
        }
    }
    Ok(Values::Float(out))
}
