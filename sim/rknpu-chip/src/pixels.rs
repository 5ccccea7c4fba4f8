// SPDX-License-Identifier: MIT OR Apache-2.0
//! CNA, feature side: images of packed pixels, and the input converter.

use std::ops::Range;

use rknpu_regcmd::DmaEngine;

use super::cna::{CubeShape, FeatureCube};
use super::dma::{self, Dma};
use super::mac_array::{Ties, shift_right_rounded};
use super::precision::Precision;
use super::trap::Stop;

/// The input converter (CVT), for integer features.
///
/// Programs that use it want `x - 128`. That works only if the offset is added
/// after the shift (E-argb-offset).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InputCvt {
    /// CVT_TYPE: add, then multiply.
    pub(crate) add_first: bool,
    /// ROUND_TYPE.
    pub(crate) ties: Ties,
    /// DATA_SIGN.
    pub(crate) signed: bool,
    /// Conversion of channel `c % 4`.
    pub(crate) channels: [ChannelCvt; 4],
    /// CVT_CON5: channels (modulo 32) that are converted.
    pub(crate) mask: u32,
}

/// The conversion of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChannelCvt {
    pub(crate) scale: u16,
    pub(crate) offset: i16,
    pub(crate) shift: u32,
}

impl InputCvt {
    /// Converts a byte of channel `c`, saturated to int8.
    pub(crate) fn apply(&self, byte: u8, c: usize) -> i8 {
        let x = if self.signed {
            i64::from(byte as i8)
        } else {
            i64::from(byte)
        };
        if self.mask >> (c % 32) & 1 == 0 {
            return byte as i8;
        }
        let channel = self.channels[c % 4];
        let (scale, offset) = (i64::from(channel.scale), i64::from(channel.offset));
        let shifted = |value| shift_right_rounded(value, channel.shift, self.ties);
        let y = if self.add_first {
            shifted((x + offset) * scale)
        } else {
            shifted(x * scale) + offset
        };
        y.clamp(i8::MIN.into(), i8::MAX.into()) as i8
    }
}

/// Packed pixels of 1 to 4 channels (ARGB_IN): dense lines, widened to the
/// atoms of a cube. Elements are bytes or fp16; LINE_STRIDE counts pixels here
/// (E-argb-lines).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PixelDma {
    pub(crate) base: u32,
    /// Shape of the cube in CBUF.
    pub(crate) shape: CubeShape,
    /// Channels of a packed pixel, 1..=4.
    pub(crate) packed: usize,
    /// Bytes of a channel.
    pub(crate) element: usize,
    pub(crate) line_stride: u32,
}

impl PixelDma {
    /// Byte address of a line.
    fn address(&self, y: usize) -> i64 {
        let pixels = y as i64 * i64::from(self.line_stride);
        i64::from(self.base) + pixels * (self.packed * self.element) as i64
    }

    /// Checks that all of the image can be read.
    pub(crate) fn check(&self, dma: &Dma<'_>) -> Result<(), Stop> {
        let len = self.shape.width * self.packed * self.element;
        (0..self.shape.height)
            .try_for_each(|y| dma.check_read(DmaEngine::Feature, self.address(y), len))
    }

    /// Reads and converts lines of the image.
    pub(crate) fn fetch(
        &self,
        dma: &Dma<'_>,
        cvt: Option<&InputCvt>,
        lines: Range<usize>,
        memory: Vec<u8>,
    ) -> Result<FeatureCube, Stop> {
        let mut cube = FeatureCube::in_memory(memory, self.shape, lines)?;
        cube.atoms_mut().fill(0);
        let bytes = self.packed * self.element;
        let mut line = dma::buffer::<u8>(self.shape.width * bytes)?;
        let pixel = cube.pixel_bytes();
        for y in cube.lines() {
            dma.read(DmaEngine::Feature, self.address(y), &mut line)?;
            let targets = cube.line_mut(y).chunks_exact_mut(pixel);
            // The converter works on bytes only.
            let cvt = cvt.filter(|_| self.element == 1);
            for (target, source) in targets.zip(line.chunks_exact(bytes)) {
                for (c, (target, &byte)) in target.iter_mut().zip(source).enumerate() {
                    *target = cvt.map_or(byte, |cvt| cvt.apply(byte, c) as u8);
                }
            }
        }
        Ok(cube)
    }
}

/// Applies the converter to a cube of bytes that came as atoms.
pub(crate) fn convert(cube: &mut FeatureCube, precision: Precision, cvt: &InputCvt) {
    if precision != Precision::Int8 {
        return;
    }
    let pixel = cube.pixel_bytes();
    for atoms in cube.atoms_mut().chunks_exact_mut(pixel.max(1)) {
        for (c, byte) in atoms.iter_mut().enumerate() {
            *byte = cvt.apply(*byte, c) as u8;
        }
    }
}
