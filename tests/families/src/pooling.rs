// SPDX-License-Identifier: MIT OR Apache-2.0
//! fp16 pooling of librocketnpu.

use super::{A, C, POOLING, Sample, Words};
use rknpu_regcmd::Word;

/// A pooling of a cube of fp16.
#[derive(Clone, Debug)]
pub struct PoolProgram {
    /// Width and height.
    pub input: (u32, u32),
    pub output: (u32, u32),
    pub channels: u32,
    /// 0 average, 1 maximum, 2 minimum.
    pub method: u32,
    pub kernel: (u32, u32),
    pub stride: (u32, u32),
    pub pad: Padding,
    pub pad_value: u32,
    pub src: u32,
    pub dst: u32,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Padding {
    pub left: u32,
    pub top: u32,
    pub right: u32,
    pub bottom: u32,
}

impl PoolProgram {
    /// A pooling of one surface, with stride 1 and without padding.
    #[must_use]
    pub fn new(method: u32, input: (u32, u32), kernel: (u32, u32), at: (u32, u32)) -> Self {
        let out = |size: u32, kernel| size.saturating_sub(kernel) + 1;
        Self {
            input,
            output: (out(input.0, kernel.0), out(input.1, kernel.1)),
            channels: 8,
            method,
            kernel,
            stride: (1, 1),
            pad: Padding::default(),
            pad_value: 0,
            src: at.0,
            dst: at.1,
        }
    }

    #[must_use]
    pub fn words(&self) -> Words {
        let ((iw, ih), (ow, oh)) = (self.input, self.output);
        let pad = self.pad;
        // fp16 bits of 65536 / size.
        let reciprocal = |size: u32| match self.method {
            0 => half::f16::from_f32(65536.0 / size as f32).to_bits().into(),
            _ => 0,
        };
        let mut words = Words::default();
        words.extend(&[
            (0x6004, 0xe),
            (0x7004, 0xe),
            (0x600c, iw - 1),
            (0x6010, ih - 1),
            (0x6014, self.channels - 1),
            (0x6018, ow - 1),
            (0x601c, oh - 1),
            (0x6020, self.channels - 1),
            (0x6024, 0x10 + self.method),
            (
                0x6034,
                (self.kernel.0 - 1)
                    | (self.kernel.1 - 1) << 8
                    | (self.stride.0 - 1) << 16
                    | (self.stride.1 - 1) << 20,
            ),
            (0x6038, reciprocal(self.kernel.0)),
            (0x603c, reciprocal(self.kernel.1)),
            (
                0x6040,
                pad.left | pad.top << 4 | pad.right << 8 | pad.bottom << 12,
            ),
            (0x6044, self.pad_value),
            (0x6048, 0),
            (0x6070, self.dst),
            (0x607c, 16 * ow * oh),
            (0x6084, 16 * ow * oh + 2),
            (0x60dc, 3),
            (0x700c, iw - 1),
            (0x7010, ih - 1),
            (0x7014, self.channels - 1),
            (0x701c, self.src),
            (0x7024, 16 * iw),
            (0x7028, 16 * iw * ih),
            (0x7030, 2),
        ]);
        words
    }

    #[must_use]
    pub fn program(&self) -> Vec<Word> {
        self.words().finish(POOLING)
    }
}

pub(crate) fn all() -> Vec<Sample> {
    let mut samples = Vec::new();
    for (size, channels, kernel, stride, pad, max) in [
        (8, 8, 2, 2, 0, true),
        (16, 32, 3, 2, 1, true),
        (16, 32, 3, 1, 1, false),
        (7, 64, 7, 1, 0, false),
    ] {
        let out = (size + 2 * pad - kernel) / stride + 1;
        let pool = PoolProgram {
            output: (out, out),
            channels,
            stride: (stride, stride),
            pad: Padding {
                left: pad,
                top: pad,
                right: pad,
                bottom: pad,
            },
            pad_value: if max && pad != 0 { 0xfc00 } else { 0 },
            ..PoolProgram::new(max.into(), (size, size), (kernel, kernel), (A, C))
        };
        let name = format!("librocketnpu pooling {size}x{size}x{channels} by {kernel}, max {max}");
        samples.push(Sample::new(name, pool.program()));
    }
    samples
}
