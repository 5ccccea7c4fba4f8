// SPDX-License-Identifier: MIT OR Apache-2.0
//! CNA, sequencing side: finds the input pixel under each tap of the kernel, by
//! the formula of [`task::WindowSteps`].

use std::ops::Range;

use rknpu_regcmd::task;

use super::cna::FeatureCube;
use super::precision::{ATOM, Precision};
use super::rows::{MacOperand, OperandRows};
use super::trap::Stop;

/// The window that moves over the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ConvWindow {
    pub(crate) moves: task::WindowSteps,
    /// DATAIN_WIDTH and DATAIN_HEIGHT: inside is the input, outside the pad.
    pub(crate) input: (usize, usize),
    /// WEIGHT_WIDTH and WEIGHT_HEIGHT.
    pub(crate) kernel: (usize, usize),
    /// DATAIN_CHANNEL.
    pub(crate) channels: usize,
    pub(crate) precision: Precision,
    /// Depthwise: the upper channels of a group are padded with the low byte.
    pub(crate) low_pad: bool,
}

/// In a depthwise int8 task, channels from here on in each group of 64 are
/// padded with the low byte of PAD_CON1 only (E-depthwise-pad).
const DEPTHWISE_LOW_PAD_FROM: usize = 32;

/// What is under a tap, along one axis or in the plane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Under<T = usize> {
    #[default]
    Padding,
    /// Between the pixels of a deconvolution: no input, and no padding either. It
    /// counts as zero.
    Hole,
    /// A pixel of the input.
    Input(T),
}

impl Under {
    /// What is at `place` of an axis of `size` pixels that are `spread` apart.
    /// `place` counts from the edge of `pad` places of padding.
    fn new(place: usize, pad: usize, size: usize, spread: usize) -> Self {
        let end = (size * spread).saturating_sub(spread - 1);
        match place.checked_sub(pad) {
            Some(at) if at < end && at.is_multiple_of(spread) => Self::Input(at / spread),
            Some(at) if at < end => Self::Hole,
            _ => Self::Padding,
        }
    }
}

impl ConvWindow {
    /// Taps of the kernel.
    pub(crate) fn taps(&self) -> usize {
        self.kernel.0 * self.kernel.1
    }

    /// Line and column of a window's first tap, counted from the corner of
    /// the padding.
    pub(crate) fn corner(&self, pixel: usize) -> (usize, usize) {
        let (oy, ox) = (pixel / self.moves.out_width, pixel % self.moves.out_width);
        (oy * self.moves.stride.1, ox * self.moves.stride.0)
    }

    /// Lines of the input that may be under the windows of `count` pixels, at
    /// least one, from `first` on.
    pub(crate) fn lines_under(&self, first: usize, count: usize) -> Range<usize> {
        let above = self.corner(first).0;
        let below = self.corner(first + count - 1).0
            + self.kernel.1.saturating_sub(1) * self.moves.dilation.1
            + 1;
        let line = |place: usize| {
            let line = place
                .saturating_sub(self.moves.pad.1)
                .div_ceil(self.moves.spread.1);
            line.min(self.input.1)
        };
        line(above)..line(below)
    }

    /// Line and column of the input under a tap of the window at `corner`.
    pub(crate) fn under(
        &self,
        corner: (usize, usize),
        ky: usize,
        kx: usize,
    ) -> Under<(usize, usize)> {
        let moves = &self.moves;
        let down = corner.0 + ky * moves.dilation.1;
        let across = corner.1 + kx * moves.dilation.0;
        let line = Under::new(down, moves.pad.1, self.input.1, moves.spread.1);
        let column = Under::new(across, moves.pad.0, self.input.0, moves.spread.0);
        match (line, column) {
            (Under::Padding, _) | (_, Under::Padding) => Under::Padding,
            (Under::Input(y), Under::Input(x)) => Under::Input((y, x)),
            _ => Under::Hole,
        }
    }

    /// Value of a padded tap, for each channel.
    ///
    /// PAD_CON1 is a 16-bit pattern: even int8 channels take its low byte,
    /// odd ones its high byte (E-pad-pattern). Types of 4 bytes take the whole
    /// register (inferred).
    pub(crate) fn padding<T: MacOperand>(&self) -> Vec<T> {
        let low = self.moves.pad_value as u16;
        let word = match self.precision {
            Precision::Int32 | Precision::Fp32 | Precision::Tf32 => self.moves.pad_value,
            _ => u32::from(low) << 16 | u32::from(low),
        };
        let mut atom = [0; ATOM];
        for target in atom.chunks_exact_mut(4) {
            target.copy_from_slice(&word.to_le_bytes());
        }
        let mut values = vec![T::default(); self.channels];
        let per_atom = self.precision.per_atom();
        for chunk in values.chunks_mut(per_atom) {
            T::decode(self.precision, &atom, 0, chunk);
        }
        if self.low_pad && self.precision == Precision::Int8 {
            let even = values.first().copied().unwrap_or_default();
            let group = Precision::Int8.depthwise_group();
            for (c, value) in values.iter_mut().enumerate() {
                if c % group >= DEPTHWISE_LOW_PAD_FROM {
                    *value = even;
                }
            }
        }
        values
    }

    /// Fills `rows` with the windows of `pixels`, one row for each, of the
    /// given channels, in the order (tap, channel).
    pub(crate) fn rows<T: MacOperand>(
        &self,
        cube: &FeatureCube,
        padding: &[T],
        pixels: Range<usize>,
        channels: Range<usize>,
        rows: &mut OperandRows<T>,
    ) -> Result<(), Stop> {
        let width = channels.len();
        let padding = &padding[channels.clone()];
        rows.reshape(pixels.len(), self.taps() * width)?;
        for (index, pixel) in pixels.enumerate() {
            let row = rows.row_mut(index);
            let corner = self.corner(pixel);
            for ky in 0..self.kernel.1 {
                for kx in 0..self.kernel.0 {
                    let tap = ky * self.kernel.0 + kx;
                    let out = &mut row[tap * width..(tap + 1) * width];
                    match self.under(corner, ky, kx) {
                        Under::Padding => out.copy_from_slice(padding),
                        Under::Input((y, x)) if y < cube.shape.height && x < cube.shape.width => {
                            T::decode(self.precision, cube.pixel(y, x), channels.start, out);
                        }
                        // `Input`: the DMA fetched too little.
                        Under::Hole | Under::Input(_) => out.fill(T::default()),
                    }
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(test_support::cases(256))]

        #[test]
        fn windows_meet_no_other_lines(
            (in_height, pad, spread) in (0usize..12, 0usize..5, 1usize..4),
            (kernel, stride, dilation) in (0usize..5, 0usize..4, 1usize..4),
            (out_width, first, count) in (1usize..5, 0usize..20, 1usize..20),
        ) {
            let window = ConvWindow {
                moves: task::WindowSteps {
                    out_width,
                    pad: (0, pad),
                    spread: (1, spread),
                    stride: (1, stride),
                    dilation: (1, dilation),
                    pad_value: 0,
                },
                input: (4, in_height),
                kernel: (1, kernel),
                channels: 16,
                precision: Precision::Int8,
                low_pad: false,
            };
            let lines = window.lines_under(first, count);
            prop_assert!(lines.end <= in_height);
            for pixel in first..first + count {
                for ky in 0..kernel {
                    if let Under::Input((y, _)) = window.under(window.corner(pixel), ky, 0) {
                        prop_assert!(lines.contains(&y), "{y} not in {lines:?}");
                    }
                }
            }
        }
    }
}
