// SPDX-License-Identifier: MIT OR Apache-2.0
//! The complete convolution program of mtx512/rk3588-npu (without DPU_RDMA)
//! and librocketnpu (with it), and the convolutions of the latter.

use super::{A, B, C, CONV, CONV_RDMA, D, Sample, ceil_div, trailer, write};
use rknpu_regcmd::Word;

/// The parameters that the two generators have, under the names that the
/// registers suggest.
#[derive(Clone, Debug)]
pub(crate) struct Conv {
    pub(crate) precision: u32,
    pub(crate) dpu_precision: u32,
    pub(crate) out_precision: u32,
    pub(crate) depthwise: bool,
    pub(crate) qd: u32,
    pub(crate) grains: u32,
    pub(crate) stride: u32,
    pub(crate) dilation: u32,
    pub(crate) pad: u32,
    pub(crate) input: (u32, u32),
    pub(crate) channels: u32,
    pub(crate) output: (u32, u32),
    pub(crate) out_channels: u32,
    pub(crate) kernel: (u32, u32),
    pub(crate) kernels: u32,
    pub(crate) weight_bytes: u32,
    pub(crate) kernel_bytes: u32,
    pub(crate) banks: (u32, u32),
    pub(crate) reuse: (u32, u32),
    pub(crate) entries: u32,
    pub(crate) surf_stride: u32,
    pub(crate) pad_value: u32,
    pub(crate) bs: u32,
    pub(crate) size_e: u32,
    /// SURF_ADD in units of the surface.
    pub(crate) surf_add: u32,
    pub(crate) od_bypass: u32,
    pub(crate) ow_op: u32,
    pub(crate) ew: u32,
    pub(crate) out_cvt: (u32, u32, u32),
    pub(crate) narrow: u32,
    pub(crate) feature_mode: Option<u32>,
    pub(crate) erdma: u32,
    pub(crate) brdma: u32,
    pub(crate) source: u32,
    pub(crate) ew_base: u32,
    pub(crate) bias: u32,
    pub(crate) ew_stride: u32,
    pub(crate) notch: u32,
}

impl Default for Conv {
    fn default() -> Self {
        Self {
            precision: 0,
            dpu_precision: 0,
            out_precision: 4,
            depthwise: false,
            qd: 0,
            grains: 0,
            stride: 1,
            dilation: 1,
            pad: 0,
            input: (1, 1),
            channels: 32,
            output: (1, 1),
            out_channels: 32,
            kernel: (1, 1),
            kernels: 32,
            weight_bytes: 0,
            kernel_bytes: 0,
            banks: (1, 11),
            reuse: (0, 0),
            entries: 1,
            surf_stride: 0,
            pad_value: 0,
            bs: 0x53,
            size_e: 7,
            surf_add: 8,
            od_bypass: 1,
            ow_op: 0,
            ew: 0x383,
            out_cvt: (0, 1, 0),
            narrow: 0,
            feature_mode: None,
            erdma: 1,
            brdma: 0,
            source: 0,
            ew_base: 0,
            bias: 0,
            ew_stride: 0,
            notch: 0,
        }
    }
}

impl Conv {
    fn mode(&self) -> u32 {
        if self.depthwise { 3 } else { 0 }
    }

    /// The words without the trailer.
    pub(crate) fn body(&self, with_rdma: bool) -> Vec<Word> {
        let mut words = vec![write(0x4004, 0xe)];
        if with_rdma {
            words.push(write(0x5004, 0xe));
        }
        words.extend(self.cna());
        words.extend(self.core());
        words.extend(self.dpu());
        if with_rdma {
            words.extend(self.rdma());
        }
        words
    }

    /// The whole program.
    pub(crate) fn program(&self, with_rdma: bool) -> Vec<Word> {
        let mut words = self.body(with_rdma);
        let enable = if with_rdma { CONV_RDMA } else { CONV };
        trailer(&mut words, None, enable);
        words
    }

    fn cna(&self) -> Vec<Word> {
        let p = self.precision;
        let (w, h) = self.input;
        let (ow, oh) = self.output;
        let (kw, kh) = self.kernel;
        let (data, weight) = self.banks;
        let (data_reuse, weight_reuse) = self.reuse;
        let s = self.stride;
        let d = self.dilation - 1;
        let mut list = vec![
            (0x100c, p << 7 | p << 4 | self.mode()),
            (0x1010, self.grains << 4),
            (0x1014, d << 21 | d << 16 | s << 3 | s),
            (0x1020, w << 16 | h),
            (0x1024, (self.channels - 1) << 16 | self.channels),
            (0x1028, ow),
            (0x102c, ow * oh),
            (0x1030, self.weight_bytes),
            (0x1034, self.kernel_bytes),
            (0x1038, kw << 24 | kh << 16 | self.kernels),
            (
                0x1040,
                weight_reuse << 13 | data_reuse << 12 | weight << 4 | data,
            ),
            (0x1044, self.entries),
            (0x104c, 0xb),
            (0x1050, 0x10000),
            (0x1054, 0x10000),
            (0x1058, 0x10000),
            (0x105c, 0x10000),
            (0x1060, 0),
            (0x1064, 0),
            (0x1068, self.pad << 4 | self.pad),
            (0x1070, A),
            (0x1074, 0),
            (0x1078, 0xf000f),
            (0x107c, 4 * w),
            (0x1080, self.surf_stride),
            (0x1084, w << 16 | h),
            (0x1088, self.channels),
            (0x1100, 0),
            (0x1104, 0),
            (0x1110, B),
        ];
        list.extend((0x1140..=0x117c).step_by(4).map(|offset| (offset, 0)));
        list.extend([(0x1180, 0), (0x1184, self.pad_value)]);
        words(&list)
    }

    fn core(&self) -> Vec<Word> {
        let (ow, oh) = self.output;
        let dw = u32::from(self.depthwise);
        words(&[
            (0x3010, self.precision << 8 | dw << 1 | self.qd),
            (0x3014, (oh - 1) << 16 | (ow - 1)),
            (0x3018, self.out_channels - 1),
            (0x301c, 0),
            (0x3030, 0),
        ])
    }

    fn dpu(&self) -> Vec<Word> {
        let (ow, oh) = self.output;
        let pd = self.dpu_precision;
        let n = self.out_channels - 1;
        let e = self.size_e;
        let (offset, scale, shift) = self.out_cvt;
        let mut list = vec![
            (0x400c, 15 << 5 | self.mode() << 3 | 2 << 1),
            (0x4010, self.out_precision << 29 | pd << 26 | pd),
            (0x4014, 0),
            (0x4020, C),
            (0x4024, (ow * oh) << 4),
            (0x4030, ow - 1),
            (0x4034, oh - 1),
            (0x4038, 0),
            (0x403c, n << 16 | n),
            (0x4040, self.bs),
            (0x4044, 0),
            (0x4048, 0),
            (0x404c, 0),
            (0x4050, e << 8 | e << 5 | e << 2 | self.od_bypass << 1),
            (0x4054, self.ow_op),
            (0x4058, n),
            (0x405c, (oh - 1) << 16 | (ow - 1)),
            (0x4060, 0x53),
            (0x4064, 0),
            (0x4068, 0),
            (0x406c, 0),
            (0x4070, self.ew),
            (0x4074, 0),
            (0x4078, 1),
            (0x407c, 0),
            (0x4080, offset),
            (0x4084, self.narrow << 16 | scale),
            (0x4088, shift),
        ];
        list.extend((0x4090..=0x40ac).step_by(4).map(|offset| (offset, 0)));
        list.extend([(0x40c0, (self.surf_add * ow * oh) << 4), (0x40c4, 0)]);
        list.extend((0x4100..=0x411c).step_by(4).map(|offset| (offset, 0)));
        list.extend((0x4120..=0x412c).step_by(4).map(|offset| (offset, 0)));
        words(&list)
    }

    fn rdma(&self) -> Vec<Word> {
        let (ow, oh) = self.output;
        let off = 0x7810 + 8 * self.narrow + (self.mode() << 1);
        words(&[
            (0x500c, ow - 1),
            (0x5010, oh - 1),
            (0x5014, self.out_channels - 1),
            (0x5018, self.source),
            (0x501c, self.brdma),
            (0x5020, self.bias),
            (0x5028, 0),
            (0x502c, 0),
            (0x5034, self.erdma),
            (0x5038, self.ew_base),
            (0x5040, self.ew_stride),
            (0x5044, self.feature_mode.unwrap_or(off)),
            (0x5048, 0),
            (0x504c, self.notch),
            (0x5064, 0),
            (0x5068, 0x0101_0101),
            (0x506c, self.notch),
        ])
    }
}

pub(crate) fn words(list: &[(u16, u32)]) -> Vec<Word> {
    list.iter().map(|&(o, v)| write(o, v)).collect()
}

/// Convolutions of librocketnpu: fp16, fp16 depthwise, int8, int8 depthwise
/// with requantisation.
pub(crate) fn all() -> Vec<Sample> {
    let mut samples = Vec::new();
    for (size, ic, oc, k, pad, dilation) in [
        (8, 32, 16, 1, 0, 1),
        (16, 64, 32, 3, 1, 1),
        (12, 32, 48, 3, 2, 2),
        (28, 32, 16, 5, 2, 1),
    ] {
        let name = |what: &str| format!("librocketnpu {what} {size}x{size}x{ic} {k}x{k} -> {oc}");
        samples.push(Sample::new(
            name("fp16 conv"),
            fp16(size, ic, oc, k, pad, dilation).program(true),
        ));
        samples.push(Sample::new(
            name("int8 conv"),
            int8(size, ic, oc.max(32), k, pad, dilation).program(true),
        ));
    }
    for (size, c) in [(8, 32), (14, 64), (20, 96)] {
        let name = format!("librocketnpu fp16 depthwise {size}x{size}x{c}");
        samples.push(Sample::new(name, fp16_depthwise(size, c).program(true)));
    }
    let name = "captured int8 depthwise 8x8x64".to_owned();
    samples.push(Sample::new(name, captured_depthwise().program(true)));
    samples
}

fn fp16(size: u32, ic: u32, oc: u32, k: u32, pad: u32, dilation: u32) -> Conv {
    let out = size + 2 * pad - (k - 1) * dilation;
    let bytes = 2 * size * size * ic;
    let data = ceil_div(bytes, 32768);
    Conv {
        precision: 2,
        dpu_precision: 2,
        out_precision: 2,
        qd: 1,
        grains: size + 1,
        dilation,
        pad,
        input: (size, size),
        channels: ic,
        output: (out, out),
        out_channels: oc,
        kernel: (k, k),
        kernels: oc,
        kernel_bytes: 2 * k * k * ic,
        weight_bytes: 2 * k * k * ic * oc,
        banks: (data, 12 - data),
        entries: ceil_div(size * ic, 32),
        surf_stride: size * (size - 4),
        size_e: 1,
        surf_add: 2,
        narrow: 1,
        ..Conv::default()
    }
}

fn int8(size: u32, ic: u32, oc: u32, k: u32, pad: u32, dilation: u32) -> Conv {
    let data = ceil_div(size * size * ic, 32768) + 1;
    Conv {
        precision: 0,
        dpu_precision: 0,
        out_precision: 4,
        qd: 0,
        kernel_bytes: k * k * ic,
        weight_bytes: k * k * ic * oc,
        banks: (data, 12 - data),
        entries: ceil_div(size * ic, 64),
        size_e: 7,
        surf_add: 8,
        narrow: 0,
        ..fp16(size, ic, oc, k, pad, dilation)
    }
}

fn fp16_depthwise(size: u32, c: u32) -> Conv {
    Conv {
        depthwise: true,
        kernels: 1,
        weight_bytes: 2 * ceil_div(c, 32) * 32 * 9,
        grains: 50 + 1 + 1,
        size_e: 3,
        surf_add: 4,
        od_bypass: 0,
        ow_op: 0x80,
        ..fp16(size, c, c, 3, 1, 1)
    }
}

/// The int8 depthwise convolution whose output was captured on silicon (a
/// fixture of librocketnpu).
fn captured_depthwise() -> Conv {
    Conv {
        out_precision: 0,
        depthwise: true,
        qd: 1,
        grains: 52,
        pad: 1,
        input: (8, 8),
        channels: 64,
        output: (8, 8),
        out_channels: 64,
        kernel: (3, 3),
        kernels: 1,
        weight_bytes: 576,
        kernel_bytes: 576,
        banks: (2, 10),
        entries: 8,
        surf_stride: 32,
        pad_value: 0x7e,
        bs: 0x20150,
        size_e: 3,
        surf_add: 4,
        od_bypass: 0,
        ow_op: 0x80,
        out_cvt: (-123i32 as u32, 17675, 22),
        brdma: 2,
        bias: D,
        ..Conv::default()
    }
}
