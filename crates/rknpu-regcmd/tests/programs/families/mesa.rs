// SPDX-License-Identifier: MIT OR Apache-2.0
//! int8 convolutions of Mesa's rocket driver (Teflon), requantised, in one or
//! more tasks.

use super::conv::words;
use super::{A, B, C, CONV_RDMA, D, Sample, align, ceil_div, stride28, trailer, write};
use rknpu_regcmd::Word;

/// A convolution, or one of its slices.
#[derive(Clone, Copy)]
struct Layer {
    width: u32,
    /// Lines of the whole input, and of this task.
    height: (u32, u32),
    channels: u32,
    out: u32,
    kernel: u32,
    pad: u32,
    depthwise: bool,
    /// Adds a second tensor.
    add: bool,
    reuse_weights: bool,
    link: Option<(u32, u32)>,
}

const LAYER: Layer = Layer {
    width: 4,
    height: (4, 4),
    channels: 8,
    out: 8,
    kernel: 1,
    pad: 0,
    depthwise: false,
    add: false,
    reuse_weights: false,
    link: None,
};

/// One small convolution.
pub(crate) fn smallest() -> Sample {
    Sample::new("Mesa 1x1 4x4x8", LAYER.program())
}

pub(crate) fn all() -> Vec<Sample> {
    let sample = |name: &str, layer: Layer| Sample::new(format!("Mesa {name}"), layer.program());
    let two = {
        let first = Layer {
            width: 16,
            height: (16, 10),
            channels: 32,
            out: 64,
            kernel: 3,
            link: Some((0x2000, 67)),
            ..LAYER
        };
        let second = Layer {
            height: (16, 8),
            reuse_weights: true,
            link: None,
            ..first
        };
        let mut words = first.program();
        words.extend(second.program());
        words
    };
    let image = Layer {
        width: 28,
        height: (28, 28),
        channels: 1,
        out: 32,
        kernel: 3,
        ..LAYER
    };
    vec![
        smallest(),
        sample(
            "3x3 16x16x32",
            Layer {
                width: 16,
                height: (16, 16),
                channels: 32,
                out: 64,
                kernel: 3,
                pad: 1,
                ..LAYER
            },
        ),
        sample(
            "depthwise 8x8x64",
            Layer {
                width: 8,
                height: (8, 8),
                channels: 64,
                out: 64,
                kernel: 3,
                pad: 1,
                depthwise: true,
                ..LAYER
            },
        ),
        sample(
            "1x1 with add",
            Layer {
                width: 10,
                height: (10, 10),
                channels: 32,
                out: 32,
                add: true,
                ..LAYER
            },
        ),
        sample("image of one channel", image),
        Sample::new("Mesa 3x3 in two tasks", two),
    ]
}

impl Layer {
    fn program(&self) -> Vec<Word> {
        let image = self.channels == 1;
        let (w, h) = (self.width, self.height.1);
        let (ow, oh) = (
            w + 2 * self.pad - self.kernel + 1,
            h + 2 * self.pad - self.kernel + 1,
        );
        let whole = self.height.0 + 2 * self.pad - self.kernel + 1;
        let ic = align(self.channels.max(16), 16);
        let oc = align(self.out.max(32), 32);
        let kernels = if self.depthwise {
            1
        } else {
            align(self.out, 2)
        };
        let kk = self.kernel * self.kernel;
        let mode = if self.depthwise { 3 } else { 0 };
        let line = if image { w.max(16) } else { 4 * w };
        let surf = if image {
            line as i32 * (self.height.0 as i32 - 1)
        } else {
            w as i32 * (self.height.0 as i32 - 4)
        };
        let con1 = if image { 0x6000_8000 } else { mode };
        let entries = if image {
            w * h
        } else {
            ceil_div(w * 2 * ceil_div(self.channels, 16), 8)
        };
        let weight_banks = ceil_div(ceil_div(kk * self.channels * self.out, 128), 256) + 1;
        let weight_banks = if self.depthwise { 2 } else { weight_banks };
        let cbuf = u32::from(self.reuse_weights) << 13 | weight_banks << 4 | (12 - weight_banks);
        let (cvt0, cvt, cvt5) = if image {
            (0x038e_38e0, 16384 << 16 | 65408, 0xffff)
        } else {
            (0xb, 0x10000, 0)
        };
        let (fmc, ew, erdma) = if self.add {
            (0x7d00, 0x9042_02c0, 0x4000_0004)
        } else {
            (0x7810 + (mode << 1), 0x383, 1)
        };
        let pixels = ow * oh;
        let (source, ew_base, ew_stride, notch) = if self.add {
            let notch = pixels.max(12) + ow * (whole - oh);
            (D, D + 16 * pixels, pixels.max(12) << 4, notch << 4)
        } else {
            (0, 0, 0, 0)
        };
        let group = if self.depthwise { 4 } else { 2 };
        let mut list = words(&[
            (0x1040, cbuf),
            (0x1104, 0),
            (0x1100, 0),
            (0x100c, con1),
            (0x4004, 0xe),
            (0x5004, 0xe),
            (0x100c, con1),
            (0x1010, (50 + 1 + 1) << 4),
            (0x1014, 9),
            (0x1020, w << 16 | h),
            (0x1024, (self.channels - 1) << 16 | ic),
            (0x1028, ow),
            (0x102c, pixels),
            (0x1030, kk * ic * kernels),
            (0x1034, kk * ic),
            (0x1038, self.kernel << 24 | self.kernel << 16 | kernels),
            (0x1040, cbuf),
            (0x1044, entries),
            (0x104c, cvt0),
            (0x1050, cvt),
            (0x1054, cvt),
            (0x1058, cvt),
            (0x105c, cvt),
            (0x1060, 0),
            (0x1064, 0),
            (0x1068, self.pad << 4 | self.pad),
            (0x1070, A),
            (0x1074, 0),
            (0x1078, 0xf000f),
            (0x107c, line),
            (0x1080, stride28(surf)),
            (0x1084, w << 16 | h),
            (0x1088, ic),
            (0x1100, 0),
            (0x1104, 0),
            (0x1110, B),
        ]);
        list.extend((0x1140..=0x117c).step_by(4).map(|offset| write(offset, 0)));
        list.extend(words(&[
            (0x1180, cvt5),
            (0x1184, 0xffff_ff8b),
            (0x3010, 1 | u32::from(self.depthwise) << 1),
            (0x3014, (oh - 1) << 16 | (ow - 1)),
            (0x3018, oc - 1),
            (0x301c, 0),
            (0x3030, 0),
            (0x400c, 0x1e4 | mode << 3),
            (0x4010, 0),
            (0x4014, 0),
            (0x4020, C),
            (0x4024, (ow * whole) << 4),
            (0x4030, ow - 1),
            (0x4034, oh - 1),
            (0x4038, 0),
            (0x403c, (self.out - 1) << 16 | (oc - 1)),
            (0x4040, 0x20150),
            (0x4044, 0),
            (0x4048, 0),
            (0x404c, 0),
            (0x4050, if self.depthwise { 0x36c } else { 0x124 }),
            (0x4054, 0x80 - 0x71),
            (0x4058, oc - 1),
            (0x405c, (oh - 1) << 16 | (ow - 1)),
            (0x4060, 0x53),
            (0x4064, 0),
            (0x4068, 0),
            (0x406c, 0),
            (0x4070, ew),
            (0x4074, if self.add { 0x10 } else { 0 }),
            (0x4078, if self.add { 15 << 16 | 0x4321 } else { 1 }),
            (0x407c, 0),
            (0x4080, -27i32 as u32),
            (0x4084, 0x5a5a),
            (0x4088, 24),
        ]));
        list.extend((0x4090..=0x40ac).step_by(4).map(|offset| write(offset, 0)));
        // The distance of kernel groups is that of the whole output.
        list.extend(words(&[(0x40c0, (group * ow * whole) << 4), (0x40c4, 0)]));
        list.extend((0x4100..=0x412c).step_by(4).map(|offset| write(offset, 0)));
        list.extend(words(&[
            (0x500c, ow - 1),
            (0x5010, oh - 1),
            (0x5014, oc - 1),
            (0x5018, source),
            (0x501c, 2),
            (0x5020, D + 0x100_0000),
            (0x5028, 0),
            (0x502c, 0),
            (0x5034, erdma),
            (0x5038, ew_base),
            (0x5040, ew_stride),
            (0x5044, fmc),
            (0x5048, 0),
            (0x504c, notch),
            (0x5064, 0),
            (0x5068, 0x0101_0101),
            (0x506c, notch),
        ]));
        trailer(&mut list, self.link, CONV_RDMA);
        if self.link.is_some() {
            while !list.len().is_multiple_of(8) {
                list.push(Word::NOP);
            }
        }
        list
    }
}
