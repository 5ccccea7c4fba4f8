// SPDX-License-Identifier: MIT OR Apache-2.0
//! int8 convolutions of Mesa's rocket driver (Teflon), requantised, in one or
//! more tasks: channels padded to 16, kernels to an even number, results to 32
//! channels.

use super::conv::{ConvProgram, Rdma, WriterWalk};
use super::{CONV_RDMA, D, Sample, Words};
use rknpu_regcmd::Word;

/// A convolution, or one of its slices.
#[derive(Clone, Copy, Debug)]
pub struct MesaLayer {
    pub width: u32,
    /// Lines of the whole input, and of this task.
    pub height: (u32, u32),
    pub channels: u32,
    pub out: u32,
    pub kernel: u32,
    pub stride: u32,
    pub pad: u32,
    pub depthwise: bool,
    /// Adds a second tensor.
    pub add: bool,
    pub reuse_weights: bool,
    pub link: Option<(u32, u32)>,
}

pub const LAYER: MesaLayer = MesaLayer {
    width: 4,
    height: (4, 4),
    channels: 8,
    out: 8,
    kernel: 1,
    stride: 1,
    pad: 0,
    depthwise: false,
    add: false,
    reuse_weights: false,
    link: None,
};

#[must_use]
pub fn smallest() -> Sample {
    Sample::new("Mesa 1x1 4x4x8", LAYER.program())
}

pub(crate) fn all() -> Vec<Sample> {
    let square = |size, channels, out, kernel| MesaLayer {
        width: size,
        height: (size, size),
        channels,
        out,
        kernel,
        ..LAYER
    };
    let first = MesaLayer {
        height: (16, 10),
        link: Some((0x2000, 67)),
        ..square(16, 32, 64, 3)
    };
    let second = MesaLayer {
        height: (16, 8),
        reuse_weights: true,
        link: None,
        ..first
    };
    let padded = MesaLayer {
        pad: 1,
        ..square(16, 32, 64, 3)
    };
    let depthwise = MesaLayer {
        depthwise: true,
        pad: 1,
        ..square(8, 64, 64, 3)
    };
    let add = MesaLayer {
        add: true,
        ..square(10, 32, 32, 1)
    };
    let sample = |name, words| Sample::new(format!("Mesa {name}"), words);
    vec![
        smallest(),
        sample("3x3 16x16x32", padded.program()),
        sample("depthwise 8x8x64", depthwise.program()),
        sample("1x1 with add", add.program()),
        sample("image of one channel", square(28, 1, 32, 3).program()),
        sample(
            "3x3 in two tasks",
            [first.program(), second.program()].concat(),
        ),
    ]
}

impl MesaLayer {
    /// Channels that the task reads and writes.
    #[must_use]
    pub fn padded(&self) -> (u32, u32) {
        (
            self.channels.max(16).next_multiple_of(16),
            self.out.max(32).next_multiple_of(32),
        )
    }

    /// Output pixels for `size` input pixels.
    #[must_use]
    pub fn output(&self, size: u32) -> u32 {
        (size + 2 * self.pad - self.kernel) / self.stride + 1
    }

    /// The registers that Mesa has in common with other convolutions.
    #[must_use]
    pub fn conv(&self) -> ConvProgram {
        let (w, h) = (self.width, self.height.1);
        let (ow, oh) = (self.output(w), self.output(h));
        let whole = self.output(self.height.0);
        let (ic, oc) = self.padded();
        let kk = self.kernel * self.kernel;
        let (kernels, weight_banks) = if self.depthwise {
            (1, 2)
        } else {
            let banks = (kk * self.channels * self.out).div_ceil(128).div_ceil(256) + 1;
            (self.out.next_multiple_of(2), banks)
        };
        let (group, size_e) = if self.depthwise { (4, 3) } else { (2, 1) };
        let pixels = ow * oh;
        let operand = Rdma {
            mode: Some(0x7d00),
            erdma: Some(0x4000_0004),
            ..Rdma::operand(D, pixels, pixels.max(12) + ow * (whole - oh))
        };
        ConvProgram {
            po: 0,
            depthwise: self.depthwise,
            qd: 1,
            grains: 50 + self.stride + 1,
            stride: (self.stride, self.stride),
            pad: (self.pad, self.pad),
            pad_value: 0xffff_ff8b,
            kernels,
            weight_bytes: kk * ic * kernels,
            kernel_bytes: kk * ic,
            data_banks: 12 - weight_banks,
            weight_reuse: self.reuse_weights,
            entries: (w * 2 * self.channels.div_ceil(16)).div_ceil(8),
            surf_stride: w as i32 * (self.height.0 as i32 - 4),
            bs_cfg: 0x20150,
            od_bypass: 0,
            ow_op: 0x80 - 0x71,
            size_e,
            ew_cfg: if self.add { 0x9042_02c0 } else { 0x383 },
            out_offset: -27i32 as u32,
            out_scale: 0x5a5a,
            out_shift: 24,
            // The distance of kernel groups is that of the whole output.
            writer: WriterWalk {
                width: ow,
                height: oh,
                stride: ow * whole,
                notch: 0,
                add: group * ow * whole,
            },
            rdma: Some(Rdma {
                brdma: 2,
                bias: D + 0x100_0000,
                ew_stride: if self.add { pixels.max(12) } else { 0 },
                ..if self.add { operand } else { Rdma::default() }
            }),
            ..ConvProgram::new((w, h, ic), (ow, oh, oc), (self.kernel, self.kernel))
        }
    }

    /// The words of `conv`, which is [`Self::conv`] with changes. They have the
    /// unpadded numbers of channels. An image of one channel has packed pixels,
    /// converted from uint8 on input.
    #[must_use]
    pub fn words(&self, conv: &ConvProgram) -> Words {
        let mut words = prefix(conv);
        words.0.extend(conv.words().0);
        let (ic, oc) = self.padded();
        words.change(0x1024, (self.channels - 1) << 16 | ic);
        words.change(0x403c, (self.out - 1) << 16 | (oc - 1));
        if self.channels == 1 {
            let line = self.width.max(16);
            words
                .change(0x100c, 0x6000_8000)
                .change(0x1044, self.width * self.height.1)
                .change(0x104c, 0x038e_38e0)
                .change(0x107c, line)
                .change(0x1080, line * (self.height.0 - 1))
                .change(0x1180, 0xffff);
            for offset in (0x1050..=0x105c).step_by(4) {
                words.change(offset, 16384 << 16 | 65408);
            }
        }
        if self.add {
            words.change(0x4074, 0x10).change(0x4078, 15 << 16 | 0x4321);
        }
        words
    }

    fn program(&self) -> Vec<Word> {
        let words = self.words(&self.conv());
        let mut program = words.finish_linked(self.link, CONV_RDMA);
        if self.link.is_some() {
            program.resize(program.len().next_multiple_of(8), Word::NOP);
        }
        program
    }
}

/// The registers that Mesa and happyme531 write first.
pub(crate) fn prefix(conv: &ConvProgram) -> Words {
    let mut words = Words::default();
    words.extend(&[
        (0x1040, conv.cbuf()),
        (0x1104, 0),
        (0x1100, 0),
        (0x100c, conv.con1()),
    ]);
    words
}
