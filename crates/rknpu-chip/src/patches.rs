// SPDX-License-Identifier: MIT OR Apache-2.0
//! CNA, sequencing side: which input pixels meet which taps of the kernel.
//!
//! Output pixel (oy, ox) and tap (ky, kx) meet the input pixel
//! `(oy*SY - PAD_TOP + ky*DY, ox*SX - PAD_LEFT + kx*DX)`; outside the input
//! it is the pad value. There are no registers for padding right and below:
//! it follows from the number of output pixels (E-window).

use std::ops::Range;

use super::cna::FeatureCube;
use super::precision::{ATOM, Precision};
use super::rows::{Operand, Rows};
use super::trap::Stop;

/// The window that moves over the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    /// DATAIN_WIDTH and DATAIN_HEIGHT: inside is the input, outside the pad.
    pub(crate) in_width: usize,
    pub(crate) in_height: usize,
    /// DATAOUT_WIDTH.
    pub(crate) out_width: usize,
    pub(crate) stride: (usize, usize),
    pub(crate) dilation: (usize, usize),
    /// DECONV: pixels of the input lie so far apart on the surface that the
    /// window moves over, with zeros between them.
    pub(crate) spread: (usize, usize),
    /// PAD_LEFT and PAD_TOP.
    pub(crate) pad: (usize, usize),
    /// WEIGHT_WIDTH and WEIGHT_HEIGHT.
    pub(crate) kernel: (usize, usize),
    /// DATAIN_CHANNEL.
    pub(crate) channels: usize,
    pub(crate) precision: Precision,
    /// PAD_CON1.
    pub(crate) pad_value: u32,
    /// Depthwise: the upper channels of a group are padded with the low byte.
    pub(crate) low_pad: bool,
}

/// In a depthwise int8 task, channels from here on in each group of 64 are
/// padded with the low byte of PAD_CON1 only (E-depthwise-pad).
const DEPTHWISE_LOW_PAD_FROM: usize = 32;

/// A place without input that is no padding either: it counts as zero.
pub(crate) const HOLE: (usize, usize) = (usize::MAX, usize::MAX);

/// What is under a tap, along one axis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Under {
    #[default]
    Padding,
    /// Between the pixels of a deconvolution.
    Hole,
    /// A line or column of the input.
    Input(usize),
}

impl Under {
    /// At `place`, counted from the edge of `pad` places of padding, of an
    /// axis of `size` pixels that are `spread` apart.
    fn new(place: usize, pad: usize, size: usize, spread: usize) -> Self {
        let end = (size * spread).saturating_sub(spread - 1);
        match place.checked_sub(pad) {
            Some(at) if at < end && at.is_multiple_of(spread) => Self::Input(at / spread),
            Some(at) if at < end => Self::Hole,
            _ => Self::Padding,
        }
    }
}

impl Window {
    /// Taps of the kernel.
    pub(crate) fn taps(&self) -> usize {
        self.kernel.0 * self.kernel.1
    }

    /// Line and column of a window's first tap, counted from the corner of
    /// the padding.
    pub(crate) fn corner(&self, pixel: usize) -> (usize, usize) {
        let (oy, ox) = (pixel / self.out_width, pixel % self.out_width);
        (oy * self.stride.1, ox * self.stride.0)
    }

    /// What is under the taps of row `ky` of a window whose first line is
    /// `corner`.
    pub(crate) fn line_under(&self, corner: usize, ky: usize) -> Under {
        let place = corner + ky * self.dilation.1;
        Under::new(place, self.pad.1, self.in_height, self.spread.1)
    }

    /// What is under the taps of column `kx` of a window whose first column is
    /// `corner`.
    pub(crate) fn column_under(&self, corner: usize, kx: usize) -> Under {
        let place = corner + kx * self.dilation.0;
        Under::new(place, self.pad.0, self.in_width, self.spread.0)
    }

    /// Lines of the input that any of the windows of `count` pixels from
    /// `first` on, at least one, may meet.
    pub(crate) fn lines_under(&self, first: usize, count: usize) -> Range<usize> {
        let above = self.corner(first).0;
        let below = self.corner(first + count - 1).0
            + self.kernel.1.saturating_sub(1) * self.dilation.1
            + 1;
        let line = |place: usize| {
            let line = place.saturating_sub(self.pad.1).div_ceil(self.spread.1);
            line.min(self.in_height)
        };
        line(above)..line(below)
    }

    /// Input pixel under a tap of the window at `corner`, `None` where it is
    /// padding. Between the pixels of a deconvolution there is [`HOLE`].
    pub(crate) fn under(
        &self,
        corner: (usize, usize),
        ky: usize,
        kx: usize,
    ) -> Option<(usize, usize)> {
        let line = self.line_under(corner.0, ky);
        match (line, self.column_under(corner.1, kx)) {
            (Under::Padding, _) | (_, Under::Padding) => None,
            (Under::Input(y), Under::Input(x)) => Some((y, x)),
            _ => Some(HOLE),
        }
    }

    /// What a padded tap holds, for each channel.
    ///
    /// PAD_CON1 is a 16-bit pattern: even int8 channels take its low byte,
    /// odd ones its high byte (E-pad-pattern). Types of 4 bytes take the whole
    /// register (inferred).
    pub(crate) fn padding<T: Operand>(&self) -> Vec<T> {
        let low = self.pad_value as u16;
        let word = match self.precision {
            Precision::Int32 | Precision::Fp32 | Precision::Tf32 => self.pad_value,
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

    /// Makes `rows` the windows of the pixels `first..first + count`, one each
    /// in the order (tap, channel), of the given channels.
    pub(crate) fn rows<T: Operand>(
        &self,
        cube: &FeatureCube,
        padding: &[T],
        (first, count): (usize, usize),
        channels: Range<usize>,
        rows: &mut Rows<T>,
    ) -> Result<(), Stop> {
        let width = channels.len();
        let padding = &padding[channels.clone()];
        rows.reshape(count, self.taps() * width)?;
        for index in 0..count {
            let row = rows.row_mut(index);
            let corner = self.corner(first + index);
            for ky in 0..self.kernel.1 {
                for kx in 0..self.kernel.0 {
                    let tap = ky * self.kernel.0 + kx;
                    let out = &mut row[tap * width..(tap + 1) * width];
                    match self.under(corner, ky, kx) {
                        None => out.copy_from_slice(padding),
                        // A hole, or the DMA brought less than the window expects.
                        Some((y, x)) if y >= cube.height || x >= cube.width => {
                            out.fill(T::default());
                        }
                        Some((y, x)) => {
                            T::decode(self.precision, cube.pixel(y, x), channels.start, out);
                        }
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

    fn window(precision: Precision, channels: usize) -> Window {
        Window {
            in_width: 4,
            in_height: 4,
            out_width: 4,
            stride: (1, 1),
            dilation: (1, 1),
            spread: (1, 1),
            pad: (1, 1),
            kernel: (3, 3),
            channels,
            precision,
            pad_value: 0x0000_007e,
            low_pad: false,
        }
    }

    #[test]
    fn the_first_and_last_windows_reach_into_the_padding() {
        let window = window(Precision::Int8, 16);
        assert_eq!(window.under(window.corner(0), 0, 0), None);
        assert_eq!(window.under(window.corner(0), 1, 1), Some((0, 0)));
        assert_eq!(window.under(window.corner(15), 1, 1), Some((3, 3)));
        assert_eq!(window.under(window.corner(15), 2, 1), None);
        let strided = Window {
            stride: (2, 1),
            dilation: (2, 3),
            out_width: 2,
            ..window
        };
        assert_eq!(strided.under(strided.corner(3), 1, 1), Some((3, 3)));
        let spread = Window {
            spread: (2, 4),
            out_width: 9,
            ..window
        };
        // Row 0 of the spread surface has a pixel in every second place.
        assert_eq!(spread.under(spread.corner(0), 1, 1), Some((0, 0)));
        assert_eq!(spread.under(spread.corner(0), 1, 2), Some(HOLE));
        assert_eq!(spread.under(spread.corner(1), 1, 2), Some((0, 1)));
        assert_eq!(spread.under(spread.corner(9 * 4), 1, 1), Some((1, 0)));
        assert_eq!(spread.under(spread.corner(7), 1, 1), None, "7 of 7 columns");
    }

    proptest! {
        #![proptest_config(test_support::cases(256))]

        #[test]
        fn windows_meet_no_other_lines(
            (in_height, pad, spread) in (0usize..12, 0usize..5, 1usize..4),
            (kernel, stride, dilation) in (0usize..5, 0usize..4, 1usize..4),
            (out_width, first, count) in (1usize..5, 0usize..20, 1usize..20),
        ) {
            let window = Window {
                in_height,
                out_width,
                pad: (0, pad),
                spread: (1, spread),
                kernel: (1, kernel),
                stride: (1, stride),
                dilation: (1, dilation),
                ..window(Precision::Int8, 16)
            };
            let lines = window.lines_under(first, count);
            prop_assert!(lines.end <= in_height);
            for pixel in first..first + count {
                for ky in 0..kernel {
                    if let Under::Input(y) = window.line_under(window.corner(pixel).0, ky) {
                        prop_assert!(lines.contains(&y), "{y} not in {lines:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn the_pad_value_is_a_pattern_of_16_bits() {
        let direct = window(Precision::Int8, 64).padding::<i16>();
        assert!(direct.iter().step_by(2).all(|&v| v == 126));
        assert!(direct.iter().skip(1).step_by(2).all(|&v| v == 0));
        let depthwise = Window {
            low_pad: true,
            ..window(Precision::Int8, 64)
        };
        let values = depthwise.padding::<i16>();
        assert_eq!(values[..32], direct[..32]);
        assert!(values[32..].iter().all(|&v| v == 126));
        let one = Window {
            pad_value: 0x3c00,
            ..window(Precision::Fp16, 8)
        };
        assert_eq!(one.padding::<f64>(), [1.0; 8]);
    }
}
