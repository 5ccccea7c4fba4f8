// SPDX-License-Identifier: MIT OR Apache-2.0
//! The complete convolution program. mtx512/rk3588-npu (without DPU_RDMA), librocketnpu (with it),
//! Mesa and happyme531 write its registers in one order.

use super::{A, B, C, CONV, CONV_RDMA, D, Words, stride28};
use rknpu_regcmd::Word;

/// A convolution or matmul. Sizes are width, height and channels.
#[derive(Clone, Debug, Default)]
pub struct ConvProgram {
    /// Precision codes: MAC array, DPU, output.
    pub p: u32,
    pub pd: u32,
    pub po: u32,
    pub depthwise: bool,
    pub group_line_off: bool,
    pub qd: u32,
    pub grains: u32,
    pub stride: (u32, u32),
    pub dilation: (u32, u32),
    pub pad: (u32, u32),
    pub pad_value: u32,
    pub input: (u32, u32, u32),
    pub output: (u32, u32, u32),
    pub kernel: (u32, u32),
    pub kernels: u32,
    pub weight_bytes: u32,
    pub kernel_bytes: u32,
    /// Banks of the features; the weights have the others.
    pub data_banks: u32,
    pub data_reuse: bool,
    pub weight_reuse: bool,
    pub entries: u32,
    pub line_stride: u32,
    pub surf_stride: i32,
    pub truncate: u32,
    pub bs_cfg: u32,
    pub od_bypass: u32,
    pub ow_op: u32,
    pub size_e: u32,
    pub ew_cfg: u32,
    pub out_offset: u32,
    pub out_scale: u32,
    pub out_shift: u32,
    pub writer: WriterWalk,
    pub a: u32,
    pub b: u32,
    pub c: u32,
    /// The DPU_RDMA part; `None` leaves the block out.
    pub rdma: Option<Rdma>,
}

/// How the DPU writes its output.
#[derive(Clone, Copy, Debug, Default)]
pub struct WriterWalk {
    pub width: u32,
    pub height: u32,
    /// DST_SURF_STRIDE, atoms.
    pub stride: u32,
    /// Atoms.
    pub notch: u32,
    /// SURFACE_ADD, atoms.
    pub add: u32,
}

/// DPU_RDMA behind a convolution. Strides are in atoms.
#[derive(Clone, Debug, Default)]
pub struct Rdma {
    pub src: u32,
    pub brdma: u32,
    pub bias: u32,
    /// ERDMA_CFG; with `None` the engine is off.
    pub erdma: Option<u32>,
    pub ew: u32,
    pub ew_stride: u32,
    /// FEATURE_MODE_CFG; with `None` only the bias is read.
    pub mode: Option<u32>,
    pub notch: u32,
}

impl Rdma {
    /// The operand of EW: a cube of fp16 at `src`, of `rows` rows, which MRDMA and
    /// ERDMA share.
    #[must_use]
    pub fn operand(src: u32, rows: u32, notch: u32) -> Self {
        Self {
            src,
            ew: src + 16 * rows,
            erdma: Some(0x4000_0008),
            ew_stride: notch,
            mode: Some(0x17d40),
            notch,
            ..Self::default()
        }
    }

    /// An int32 bias for each channel, of the form that BS_CFG 0x20150 adds.
    #[must_use]
    pub fn bias(bias: u32) -> Self {
        Self {
            brdma: 2,
            bias,
            ..Self::default()
        }
    }
}

impl ConvProgram {
    /// An int8 convolution of `input` with kernels of `kernel` pixels, in one group,
    /// with dense strides. It may exceed CBUF.
    #[must_use]
    pub fn new(input: (u32, u32, u32), output: (u32, u32, u32), kernel: (u32, u32)) -> Self {
        let (iw, ih, _) = input;
        let (ow, oh, _) = output;
        Self {
            po: 4,
            grains: ih + 1,
            stride: (1, 1),
            dilation: (1, 1),
            input,
            output,
            kernel,
            kernels: output.2,
            data_banks: 1,
            entries: 1,
            line_stride: 4 * iw,
            surf_stride: (iw * ih) as i32 - 4 * iw as i32,
            bs_cfg: 0x53,
            od_bypass: 1,
            size_e: 7,
            ew_cfg: 0x383,
            out_scale: 1,
            writer: WriterWalk {
                width: ow,
                height: oh,
                stride: ow * oh,
                notch: 0,
                add: 8 * ow * oh,
            },
            a: A,
            b: B,
            c: C,
            ..Self::default()
        }
    }

    /// With groups of SIZE_E + 1 surfaces that follow each other.
    #[must_use]
    pub fn groups(self, size_e: u32) -> Self {
        let writer = WriterWalk {
            add: (size_e + 1) * self.writer.stride,
            ..self.writer
        };
        Self {
            size_e,
            writer,
            ..self
        }
    }

    /// With depthwise weights of `weight_bytes`, and the registers that librocketnpu
    /// writes for them.
    #[must_use]
    pub fn depthwise(self, weight_bytes: u32) -> Self {
        let conv = Self {
            depthwise: true,
            grains: 50 + self.stride.1 + 1,
            kernels: 1,
            weight_bytes,
            od_bypass: 0,
            ow_op: 0x80,
            ..self
        };
        conv.groups(3)
    }

    fn mode(&self) -> u32 {
        if self.depthwise { 3 } else { 0 }
    }

    pub(crate) fn con1(&self) -> u32 {
        u32::from(self.group_line_off) << 29 | self.p << 7 | self.p << 4 | self.mode()
    }

    pub(crate) fn cbuf(&self) -> u32 {
        u32::from(self.weight_reuse) << 13
            | u32::from(self.data_reuse) << 12
            | (12 - self.data_banks.min(12)) << 4
            | self.data_banks
    }

    /// The same with DPU_RDMA, which reads nothing unless `rdma` says what.
    #[must_use]
    pub fn with_rdma(mut self) -> Self {
        self.rdma.get_or_insert_default();
        self
    }

    /// The words without trailer.
    #[must_use]
    pub fn words(&self) -> Words {
        let mut words = Words::default();
        words.extend(&[(0x4004, 0xe)]);
        if self.rdma.is_some() {
            words.extend(&[(0x5004, 0xe)]);
        }
        self.cna(&mut words);
        self.dpu(&mut words);
        if let Some(rdma) = &self.rdma {
            self.rdma(rdma, &mut words);
        }
        words
    }

    /// The whole program; DPU_RDMA is enabled if `rdma` is set.
    #[must_use]
    pub fn task(&self) -> Vec<Word> {
        let enable = self.rdma.as_ref().map_or(CONV, |_| CONV_RDMA);
        self.words().finish(enable)
    }

    /// CNA and CORE.
    fn cna(&self, words: &mut Words) {
        let (w, h, channels) = self.input;
        let (ow, oh, oc) = self.output;
        let dw = u32::from(self.depthwise);
        words
            .extend(&[
                (0x100c, self.con1()),
                (0x1010, self.grains << 4),
                (
                    0x1014,
                    (self.dilation.1 - 1) << 21
                        | (self.dilation.0 - 1) << 16
                        | self.stride.1 << 3
                        | self.stride.0,
                ),
                (0x1020, w << 16 | h),
                (0x1024, (channels - 1) << 16 | channels),
                (0x1028, ow),
                (0x102c, ow * oh),
                (0x1030, self.weight_bytes),
                (0x1034, self.kernel_bytes),
                (
                    0x1038,
                    self.kernel.0 << 24 | self.kernel.1 << 16 | self.kernels,
                ),
                (0x1040, self.cbuf()),
                (0x1044, self.entries),
                (0x104c, 0xb),
                (0x1050, 0x10000),
                (0x1054, 0x10000),
                (0x1058, 0x10000),
                (0x105c, 0x10000),
                (0x1060, 0),
                (0x1064, 0),
                (0x1068, self.pad.0 << 4 | self.pad.1),
                (0x1070, self.a),
                (0x1074, 0),
                (0x1078, 0xf000f),
                (0x107c, self.line_stride),
                (0x1080, stride28(self.surf_stride)),
                (0x1084, w << 16 | h),
                (0x1088, channels),
                (0x1100, 0),
                (0x1104, 0),
                (0x1110, self.b),
            ])
            .zeros(0x1140, 0x117c)
            .extend(&[
                (0x1180, 0),
                (0x1184, self.pad_value),
                (0x3010, self.p << 8 | dw << 1 | self.qd),
                (0x3014, (oh - 1) << 16 | (ow - 1)),
                (0x3018, oc - 1),
                (0x301c, self.truncate),
                (0x3030, 0),
            ]);
    }

    fn dpu(&self, words: &mut Words) {
        let writer = self.writer;
        let (w, h) = (writer.width, writer.height);
        let n = self.output.2 - 1;
        let e = self.size_e;
        words
            .extend(&[
                (0x400c, 15 << 5 | self.mode() << 3 | 2 << 1),
                (0x4010, self.po << 29 | self.pd << 26 | self.pd),
                (0x4014, 0),
                (0x4020, self.c),
                (0x4024, writer.stride << 4),
                (0x4030, w - 1),
                (0x4034, h - 1),
                (0x4038, writer.notch << 16 | writer.notch),
                (0x403c, n << 16 | n),
                (0x4040, self.bs_cfg),
                (0x4044, 0),
                (0x4048, 0),
                (0x404c, 0),
                (0x4050, e << 8 | e << 5 | e << 2 | self.od_bypass << 1),
                (0x4054, self.ow_op),
                (0x4058, n),
                (0x405c, (h - 1) << 16 | (w - 1)),
                (0x4060, 0x53),
                (0x4064, 0),
                (0x4068, 0),
                (0x406c, 0),
                (0x4070, self.ew_cfg),
                (0x4074, 0),
                (0x4078, 1),
                (0x407c, 0),
                (0x4080, self.out_offset),
                (0x4084, self.out_scale),
                (0x4088, self.out_shift),
            ])
            .zeros(0x4090, 0x40ac)
            .extend(&[(0x40c0, writer.add << 4), (0x40c4, 0)])
            .zeros(0x4100, 0x412c);
    }

    fn rdma(&self, rdma: &Rdma, words: &mut Words) {
        let (ow, oh, oc) = self.output;
        // FP32TOFP16_EN: the operands are as narrow as the results.
        let narrow = self.out_scale >> 16 & 1;
        let off = 0x7810 + 8 * narrow + (self.mode() << 1);
        words.extend(&[
            (0x500c, ow - 1),
            (0x5010, oh - 1),
            (0x5014, oc - 1),
            (0x5018, rdma.src),
            (0x501c, rdma.brdma),
            (0x5020, rdma.bias),
            (0x5028, 0),
            (0x502c, 0),
            (0x5034, rdma.erdma.unwrap_or(1)),
            (0x5038, rdma.ew),
            (0x5040, rdma.ew_stride << 4),
            (0x5044, rdma.mode.unwrap_or(off)),
            (0x5048, 0),
            (0x504c, rdma.notch << 4),
            (0x5064, 0),
            (0x5068, 0x0101_0101),
            (0x506c, rdma.notch << 4),
        ]);
    }
}

/// The int8 depthwise convolution whose output was captured on silicon (a
/// fixture of librocketnpu).
#[must_use]
pub fn captured_depthwise() -> ConvProgram {
    let conv = ConvProgram {
        po: 0,
        qd: 1,
        pad: (1, 1),
        kernel_bytes: 576,
        data_banks: 2,
        entries: 8,
        pad_value: 0x7e,
        bs_cfg: 0x20150,
        out_offset: -123i32 as u32,
        out_scale: 17675,
        out_shift: 22,
        rdma: Some(Rdma::bias(D)),
        ..ConvProgram::new((8, 8, 64), (8, 8, 64), (3, 3))
    };
    conv.depthwise(576)
}
