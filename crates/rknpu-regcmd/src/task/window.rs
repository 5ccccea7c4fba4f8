// SPDX-License-Identifier: MIT OR Apache-2.0
//! The window of a convolution: the input pixel that each tap reads.
//!
//! For output pixel (oy, ox), tap (ky, kx) is at the place `(oy*SY - PAD_TOP + ky*DY,
//! ox*SX - PAD_LEFT + kx*DX)`. There are no registers for padding right and below: it
//! follows from the number of output pixels. (E-window; outside the input a tap reads
//! the pad value.)

use super::registers::ReadRegisters;
use crate::regs::cna;

/// How the window moves over the input, as (across, down).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowSteps {
    /// DATAOUT_WIDTH, at least 1.
    pub out_width: usize,
    /// Places from one output pixel to the next.
    pub stride: (usize, usize),
    /// Places from one tap to the next.
    pub dilation: (usize, usize),
    /// DECONV: the distance of the input's pixels, with zeros between them.
    pub spread: (usize, usize),
    /// PAD_LEFT and PAD_TOP.
    pub pad: (usize, usize),
    /// PAD_CON1.
    pub pad_value: u32,
}

impl WindowSteps {
    pub(super) fn decode(regs: &impl ReadRegisters) -> Self {
        let con3 = regs.get::<cna::ConvCon3>();
        let pad = regs.get::<cna::PadCon0>();
        Self {
            out_width: (regs.get::<cna::DataSize2>().dataout_width() as usize).max(1),
            stride: (con3.conv_x_stride() as usize, con3.conv_y_stride() as usize),
            dilation: (
                con3.atrous_x_dilation() as usize + 1,
                con3.atrous_y_dilation() as usize + 1,
            ),
            spread: if regs.get::<cna::ConvCon1>().deconv() == 1 {
                (
                    spread(con3.deconv_x_stride()),
                    spread(con3.deconv_y_stride()),
                )
            } else {
                (1, 1)
            },
            pad: (pad.pad_left() as usize, pad.pad_top() as usize),
            pad_value: regs.get::<cna::PadCon1>().pad_value(),
        }
    }

    /// Whether a tap of the first `pixels` windows is outside the input of `size`
    /// pixels. Checks the first window and those that reach furthest.
    pub(super) fn pads(&self, size: [usize; 2], kernel: [usize; 2], pixels: usize) -> bool {
        let Some(last) = pixels.checked_sub(1).filter(|_| !kernel.contains(&0)) else {
            return false;
        };
        let outside = |place: usize, pad: usize, size: usize, spread: usize| {
            let end = (size * spread).saturating_sub(spread - 1);
            place.checked_sub(pad).is_none_or(|at| at >= end)
        };
        let across = |place| outside(place, self.pad.0, size[0], self.spread.0);
        let down = |place| outside(place, self.pad.1, size[1], self.spread.1);
        let right = (self.out_width.min(pixels) - 1) * self.stride.0;
        let below = last / self.out_width * self.stride.1;
        across(0)
            || down(0)
            || across(right + (kernel[0] - 1) * self.dilation.0)
            || down(below + (kernel[1] - 1) * self.dilation.1)
    }
}

/// The distance that a DECONV_X/Y_STRIDE field selects. The field holds a power of
/// two, less one; other values have no effect (measured by rockchip-npu-notes).
const fn spread(field: u32) -> usize {
    match field {
        1 | 3 | 7 => field as usize + 1,
        _ => 1,
    }
}
