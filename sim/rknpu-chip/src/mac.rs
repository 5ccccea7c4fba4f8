// SPDX-License-Identifier: MIT OR Apache-2.0
//! Computes a tile of results from windows and kernels: the inner products of
//! CORE, the weight zero point correction, and the shift on the way out.

use std::ops::{AddAssign, Mul, Range};

use super::conv_config::ConvConfig;
use super::dma;
use super::dpu::stage::ChannelOperand;
use super::dpu::tile::Values;
use super::gemm::{self, DotElement};
use super::mac_array::{INT8_ROW_MAX, INT8_TAPS_MAX, dot_int, round_sum};
use super::rows::{MacOperand, OperandRows};
use super::trap::Stop;
use super::vectors::{self, Loop, Vectors};

/// Input of the computation of a tile.
pub(crate) struct MacInput<'a, T> {
    pub(crate) conv: &'a ConvConfig,
    /// Windows of the tile's pixels, (tap, channel).
    pub(crate) windows: &'a OperandRows<T>,
    /// Direct: a row for each kernel. Depthwise: a row for each tap.
    pub(crate) kernels: &'a OperandRows<T>,
    pub(crate) pixels: usize,
    /// Output channels.
    pub(crate) channels: Range<usize>,
    /// BS_OW_OP, added to every weight (CPEND).
    pub(crate) weight_offset: Option<&'a ChannelOperand>,
}

/// Function that computes a tile: [`integers`] or [`floats`].
pub(crate) type Compute<T> = fn(&MacInput<'_, T>) -> Result<Values, Stop>;

impl<T> MacInput<'_, T> {
    /// The offset of the weights of the tile's channel `c`.
    fn offset(&self, c: usize) -> i16 {
        let operand = self.weight_offset;
        operand.map_or(0, |operand| operand.at(self.channels.start + c) as i16)
    }
}

/// Computes a tile of integers.
pub(crate) fn integers(input: &MacInput<'_, i16>) -> Result<Values, Stop> {
    if input.conv.task.depthwise {
        depthwise_int(input)
    } else {
        direct_int(input)
    }
}

/// Computes a tile of floats.
pub(crate) fn floats<T: DotElement<Total = f64> + Into<f64>>(
    input: &MacInput<'_, T>,
) -> Result<Values, Stop> {
    if input.conv.task.depthwise {
        // The products of the taps are added in float64, in their order.
        Ok(Values::Float(sum_taps(input, |w, _| w.into(), round_sum)?))
    } else {
        direct_float(input)
    }
}

/// Computes every pixel with every kernel.
fn direct_int(input: &MacInput<'_, i16>) -> Result<Values, Stop> {
    let truncate = input.conv.truncate;
    let channels = input.channels.len();
    // CPEND: the sum of each window times the offset of each channel.
    let offsets: Vec<i64> = (0..channels).map(|n| input.offset(n).into()).collect();
    let mut sums = dma::buffer::<i64>(input.pixels)?;
    let corrects = input.weight_offset.is_some();
    if corrects {
        for (pixel, sum) in sums.iter_mut().enumerate() {
            *sum = input.windows.row(pixel).iter().map(|&v| i64::from(v)).sum();
        }
    }
    let mut out = dma::buffer::<i32>(input.pixels * channels)?;
    let mut put = |pixel: usize, n: usize, sum: i64| {
        let offset = if corrects {
            sums[pixel] * offsets[n]
        } else {
            0
        };
        out[pixel * channels + n] = truncate.apply(sum + offset);
    };
    if input.conv.has_bytes() && input.conv.weights.row_len() <= INT8_ROW_MAX {
        let windows = (input.windows, input.pixels);
        let kernels = (input.kernels, channels);
        let vectors = Vectors::detect();
        gemm::dot_products(vectors, windows, kernels, |pixel, first, totals| {
            for (n, &total) in (first..).zip(totals) {
                put(pixel, n, total.into());
            }
        })?;
    } else {
        for pixel in 0..input.pixels {
            for n in 0..channels {
                let sum = dot_int(input.windows.row(pixel), input.kernels.row(n));
                put(pixel, n, sum);
            }
        }
    }
    Ok(Values::Int(out))
}

/// Computes each channel of a pixel with its own kernel. `windows` holds the tile's
/// channels only.
fn depthwise_int(input: &MacInput<'_, i16>) -> Result<Values, Stop> {
    let truncate = input.conv.truncate;
    let out = if input.conv.has_bytes() && input.conv.window.taps() <= INT8_TAPS_MAX {
        let weight = |w, c| i32::from(w) + i32::from(input.offset(c));
        sum_taps(input, weight, |sum| truncate.apply(sum.into()))
    } else {
        let weight = |w, c| i64::from(w) + i64::from(input.offset(c));
        sum_taps(input, weight, |sum| truncate.apply(sum))
    };
    Ok(Values::Int(out?))
}

/// The inner products of [`super::gemm`], each rounded once.
fn direct_float<T: DotElement<Total = f64>>(input: &MacInput<'_, T>) -> Result<Values, Stop> {
    let channels = input.channels.len();
    let mut out = dma::buffer::<f32>(input.pixels * channels)?;
    let windows = (input.windows, input.pixels);
    let kernels = (input.kernels, channels);
    let vectors = Vectors::detect();
    gemm::dot_products(vectors, windows, kernels, |pixel, first, totals| {
        let out = &mut out[pixel * channels + first..];
        for (out, &total) in out.iter_mut().zip(totals) {
            *out = round_sum(total);
        }
    })?;
    Ok(Values::Float(out))
}

/// Sums the taps of a depthwise convolution in a type that holds the sums, and
/// applies `finish`. `weight` converts a weight of a channel.
fn sum_taps<T, S, O>(
    input: &MacInput<'_, T>,
    weight: impl Fn(T, usize) -> S,
    finish: impl Fn(S) -> O,
) -> Result<Vec<O>, Stop>
where
    T: MacOperand + Into<S>,
    S: Copy + Default + AddAssign + Mul<Output = S>,
    O: Copy + Default,
{
    let (channels, taps) = (input.channels.len(), input.conv.window.taps());
    let mut out = dma::buffer::<O>(input.pixels * channels)?;
    let mut weights = dma::buffer::<S>(taps * channels)?;
    for (tap, weights) in weights.chunks_exact_mut(channels).enumerate() {
        for (c, (out, &w)) in weights.iter_mut().zip(input.kernels.row(tap)).enumerate() {
            *out = weight(w, c);
        }
    }
    let work = SumTaps {
        windows: input.windows,
        weights: &weights,
        sums: &mut dma::buffer::<S>(channels)?,
        finish,
        out: &mut out,
    };
    vectors::run(Vectors::detect(), work);
    Ok(out)
}

/// The loop of [`sum_taps`].
struct SumTaps<'a, T, S, O, F> {
    windows: &'a OperandRows<T>,
    weights: &'a [S],
    /// Sums of a pixel's channels.
    sums: &'a mut [S],
    finish: F,
    out: &'a mut [O],
}

impl<T, S, O, F> Loop for SumTaps<'_, T, S, O, F>
where
    T: MacOperand + Into<S>,
    S: Copy + Default + AddAssign + Mul<Output = S>,
    F: Fn(S) -> O,
{
    #[inline(always)]
    fn run(self, _: Vectors) {
        let channels = self.sums.len();
        for (pixel, out) in self.out.chunks_exact_mut(channels).enumerate() {
            self.sums.fill(S::default());
            let values = self.windows.row(pixel).chunks_exact(channels);
            for (values, weights) in values.zip(self.weights.chunks_exact(channels)) {
                for ((sum, &value), &weight) in self.sums.iter_mut().zip(values).zip(weights) {
                    *sum += value.into() * weight;
                }
            }
            for (out, &sum) in out.iter_mut().zip(&*self.sums) {
                *out = (self.finish)(sum);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The sums of a depthwise tile in a type that holds them, by the loop.
    fn summed<S>(
        vectors: Vectors,
        windows: &OperandRows<i16>,
        weights: &[S],
        channels: usize,
    ) -> Vec<i64>
    where
        S: Copy + Default + AddAssign + Mul<Output = S> + Into<i64>,
        i16: Into<S>,
    {
        let pixels = 3;
        let mut out = vec![0; pixels * channels];
        let work = SumTaps {
            windows,
            weights,
            sums: &mut vec![S::default(); channels],
            finish: S::into,
            out: &mut out,
        };
        vectors::run(vectors, work);
        out
    }

    proptest! {
        #![proptest_config(test_support::cases(64))]

        /// The definition of a depthwise sum, for bytes in 32 bits and for any integers in 64. A
        /// weight is the sum of a byte and of an offset of 16 bits.
        #[test]
        fn depthwise_sums_are_exact(
            channels in 1..70_usize,
            taps in 1..12_usize,
            seed in prop::collection::vec((any::<i8>(), any::<i16>(), any::<i8>(), any::<i16>()), 61),
        ) {
            let number = |index: usize| seed[index * index % 61];
            let mut bytes = OperandRows::zeroed(3, taps * channels).unwrap();
            let mut wide = bytes.clone();
            for pixel in 0..3 {
                for at in 0..taps * channels {
                    let (byte, integer, ..) = number(pixel * 1000 + at);
                    bytes.row_mut(pixel)[at] = i16::from(byte);
                    wide.row_mut(pixel)[at] = integer;
                }
            }
            let weights: Vec<i32> = (0..taps * channels)
                .map(|at| i32::from(number(at + 7).2) + i32::from(number(at % channels).3))
                .collect();
            let in_64: Vec<i64> = weights.iter().map(|&weight| weight.into()).collect();
            for vectors in [Vectors::Plain, Vectors::detect()] {
                let sums = [
                    (&bytes, summed(vectors, &bytes, &weights, channels)),
                    (&wide, summed(vectors, &wide, &in_64, channels)),
                ];
                for (windows, got) in sums {
                    for (index, &got) in got.iter().enumerate() {
                        let (row, c) = (windows.row(index / channels), index % channels);
                        let products = (0..taps).map(|tap| tap * channels + c);
                        let sum: i64 = products.map(|at| i64::from(row[at]) * in_64[at]).sum();
                        prop_assert_eq!(got, sum);
                    }
                }
            }
        }
    }
}
