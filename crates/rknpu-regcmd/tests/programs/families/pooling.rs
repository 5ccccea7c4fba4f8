// SPDX-License-Identifier: MIT OR Apache-2.0
//! fp16 pooling of librocketnpu.

use super::conv::words;
use super::{A, C, POOLING, Sample, trailer};
use rknpu_regcmd::Word;

/// A square window over a square cube.
#[derive(Clone, Copy)]
struct Pool {
    size: u32,
    channels: u32,
    kernel: u32,
    stride: u32,
    pad: u32,
    max: bool,
}

pub(crate) fn all() -> Vec<Sample> {
    let mut samples = Vec::new();
    for (size, channels, kernel, stride, pad, max) in [
        (8, 8, 2, 2, 0, true),
        (16, 32, 3, 2, 1, true),
        (16, 32, 3, 1, 1, false),
        (7, 64, 7, 1, 0, false),
    ] {
        let pool = Pool {
            size,
            channels,
            kernel,
            stride,
            pad,
            max,
        };
        let name = format!("librocketnpu pooling {size}x{size}x{channels} by {kernel}, max {max}");
        samples.push(Sample::new(name, pool.program()));
    }
    samples
}

impl Pool {
    fn program(self) -> Vec<Word> {
        let Self {
            size,
            channels,
            kernel,
            stride,
            pad,
            max,
        } = self;
        let out = (size + 2 * pad - kernel) / stride + 1;
        let (k, s) = (kernel - 1, stride - 1);
        let pads = pad | pad << 4 | pad << 8 | pad << 12;
        // fp16 bits of 65536 / kernel.
        let reciprocal = if max { 0 } else { reciprocal_bits(kernel) };
        let mut list = words(&[
            (0x6004, 0xe),
            (0x7004, 0xe),
            (0x600c, size - 1),
            (0x6010, size - 1),
            (0x6014, channels - 1),
            (0x6018, out - 1),
            (0x601c, out - 1),
            (0x6020, channels - 1),
            (0x6024, 0x10 + u32::from(max)),
            (0x6034, k | k << 8 | s << 16 | s << 20),
            (0x6038, reciprocal),
            (0x603c, reciprocal),
            (0x6040, pads),
            (0x6044, if max && pads != 0 { 0xfc00 } else { 0 }),
            (0x6048, 0),
            (0x6070, C),
            (0x607c, 16 * out * out),
            (0x6084, 16 * out * out + 2),
            (0x60dc, 3),
            (0x700c, size - 1),
            (0x7010, size - 1),
            (0x7014, channels - 1),
            (0x701c, A),
            (0x7024, 16 * size),
            (0x7028, 16 * size * size),
            (0x7030, 2),
        ]);
        trailer(&mut list, None, POOLING);
        list
    }
}

fn reciprocal_bits(kernel: u32) -> u32 {
    u32::from(half::f16::from_f32(65536.0 / kernel as f32).to_bits())
}
