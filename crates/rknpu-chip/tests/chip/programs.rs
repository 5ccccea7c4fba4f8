// SPDX-License-Identifier: MIT OR Apache-2.0
//! Register programs as the known generators emit them, from parameters.
//!
//! Values and defaults: librocketnpu (rocket-userspace) and mtx512/rk3588-npu
//! for convolutions and matrix products, happyme531/rknpu2_matmul_open for
//! the other layouts, allbilly for flying operations; all proven on silicon.
//! An independent witness of rknpu-regcmd's own generator.

use rknpu_regcmd::regs::{cna, core, dpu, dpu_rdma, pc, ppu, ppu_rdma};
use rknpu_regcmd::{EnableMask, Register, Word};

/// A program under construction.
#[derive(Clone, Debug, Default)]
pub(crate) struct Words(pub(crate) Vec<Word>);

impl Words {
    pub(crate) fn set<R: Register>(&mut self, value: u32) -> &mut Self {
        self.0
            .push(Word::new(R::INFO.block.target(), R::INFO.offset, value));
        self
    }

    /// Replaces the value of a register that the program writes.
    pub(crate) fn patch<R: Register>(&mut self, value: u32) -> &mut Self {
        let (target, offset) = (R::INFO.block.target(), R::INFO.offset);
        let word = self
            .0
            .iter_mut()
            .rfind(|w| w.target() == target && w.offset() == offset)
            .expect("the program writes the register");
        *word = Word::new(target, offset, value);
        self
    }

    /// Removes a register from the program.
    pub(crate) fn without<R: Register>(&mut self) -> &mut Self {
        let (target, offset) = (R::INFO.block.target(), R::INFO.offset);
        self.0
            .retain(|w| (w.target(), w.offset()) != (target, offset));
        self
    }

    /// The four words that end a task.
    pub(crate) fn finish(mut self, enable: u32) -> Vec<Word> {
        self.0.push(Word::NOP);
        self.finish_linked(&[], enable)
    }

    /// The words behind BASE_ADDRESS of the program `next`.
    pub(crate) fn finish_linked(mut self, next: &[Word], enable: u32) -> Vec<Word> {
        self.set::<pc::RegisterAmounts>((next.len() as u32).div_ceil(2).saturating_sub(1));
        self.0.push(Word::MARKER);
        self.0
            .push(Word::enable(EnableMask::from_bits_retain(enable)));
        self.0
    }
}

/// A convolution or matrix product.
#[derive(Clone, Debug)]
pub(crate) struct Conv {
    /// Precision codes: MAC array, DPU, output.
    pub(crate) p: u32,
    pub(crate) pd: u32,
    pub(crate) po: u32,
    pub(crate) depthwise: bool,
    pub(crate) group_line_off: bool,
    pub(crate) grains: u32,
    pub(crate) stride: (u32, u32),
    pub(crate) dilation: (u32, u32),
    pub(crate) pad: (u32, u32),
    pub(crate) pad_value: u32,
    pub(crate) input: (u32, u32, u32),
    pub(crate) output: (u32, u32, u32),
    pub(crate) kernel: (u32, u32),
    pub(crate) kernels: u32,
    pub(crate) weight_bytes: u32,
    pub(crate) kernel_bytes: u32,
    pub(crate) data_banks: u32,
    pub(crate) entries: u32,
    pub(crate) data_reuse: bool,
    pub(crate) weight_reuse: bool,
    pub(crate) line_stride: u32,
    pub(crate) surf_stride: i32,
    pub(crate) qd: u32,
    pub(crate) truncate: u32,
    pub(crate) bs_cfg: u32,
    pub(crate) ow_op: u32,
    pub(crate) od_bypass: u32,
    pub(crate) size_e: u32,
    pub(crate) ew_cfg: u32,
    pub(crate) out_offset: u32,
    pub(crate) out_scale: u32,
    pub(crate) out_shift: u32,
    /// Writer: width, height, surface stride, notch, surface add.
    pub(crate) writer: (u32, u32, u32, u32, u32),
    pub(crate) a: u32,
    pub(crate) b: u32,
    pub(crate) c: u32,
    /// The DPU_RDMA part; `None` leaves the block out.
    pub(crate) rdma: Option<Rdma>,
}

/// DPU_RDMA behind a convolution.
#[derive(Clone, Debug)]
pub(crate) struct Rdma {
    pub(crate) src: u32,
    pub(crate) brdma: u32,
    pub(crate) bias: u32,
    pub(crate) erdma: u32,
    pub(crate) ew: u32,
    pub(crate) ew_stride: u32,
    pub(crate) mode: u32,
    pub(crate) notch: u32,
}

impl Default for Rdma {
    fn default() -> Self {
        Self {
            src: 0,
            brdma: 0,
            bias: 0,
            erdma: 1,
            ew: 0,
            ew_stride: 0,
            mode: 0x7810,
            notch: 0,
        }
    }
}

impl Conv {
    pub(crate) fn words(&self) -> Words {
        let mut w = Words::default();
        let (iw, ih, ic) = self.input;
        let (ow, oh, oc) = self.output;
        let cm = if self.depthwise { 3 } else { 0 };
        let off = u32::from(self.group_line_off);
        w.set::<dpu::SPointer>(0xe);
        if self.rdma.is_some() {
            w.set::<dpu_rdma::SPointer>(0xe);
        }
        w.set::<cna::ConvCon1>(off << 29 | self.p << 7 | self.p << 4 | cm)
            .set::<cna::ConvCon2>(self.grains << 4)
            .set::<cna::ConvCon3>(
                (self.dilation.1 - 1) << 21
                    | (self.dilation.0 - 1) << 16
                    | self.stride.1 << 3
                    | self.stride.0,
            )
            .set::<cna::DataSize0>(iw << 16 | ih)
            .set::<cna::DataSize1>((ic - 1) << 16 | ic)
            .set::<cna::DataSize2>(ow)
            .set::<cna::DataSize3>(ow * oh)
            .set::<cna::WeightSize0>(self.weight_bytes)
            .set::<cna::WeightSize1>(self.kernel_bytes)
            .set::<cna::WeightSize2>(self.kernel.0 << 24 | self.kernel.1 << 16 | self.kernels)
            .set::<cna::CbufCon0>(
                u32::from(self.weight_reuse) << 13
                    | u32::from(self.data_reuse) << 12
                    | (12 - self.data_banks.min(12)) << 4
                    | self.data_banks,
            )
            .set::<cna::CbufCon1>(self.entries)
            .set::<cna::CvtCon0>(0xb)
            .set::<cna::CvtCon1>(0x10000)
            .set::<cna::CvtCon2>(0x10000)
            .set::<cna::CvtCon3>(0x10000)
            .set::<cna::CvtCon4>(0x10000)
            .set::<cna::FcCon0>(0)
            .set::<cna::FcCon1>(0)
            .set::<cna::PadCon0>(self.pad.0 << 4 | self.pad.1)
            .set::<cna::FeatureDataAddr>(self.a)
            .set::<cna::FcCon2>(0)
            .set::<cna::DmaCon0>(0xf000f)
            .set::<cna::DmaCon1>(self.line_stride)
            .set::<cna::DmaCon2>(self.surf_stride as u32 & 0x0fff_ffff)
            .set::<cna::FcDataSize0>(iw << 16 | ih)
            .set::<cna::FcDataSize1>(ic)
            .set::<cna::DcompCtrl>(0)
            .set::<cna::DcompRegnum>(0)
            .set::<cna::DcompAddr0>(self.b)
            .set::<cna::CvtCon5>(0)
            .set::<cna::PadCon1>(self.pad_value);
        w.set::<core::MiscCfg>(self.p << 8 | u32::from(self.depthwise) << 1 | self.qd)
            .set::<core::DataoutSize0>((oh - 1) << 16 | (ow - 1))
            .set::<core::DataoutSize1>(oc - 1)
            .set::<core::ClipTruncate>(self.truncate)
            .set::<core::Unknown3030>(0);
        self.dpu(&mut w, cm);
        if let Some(rdma) = &self.rdma {
            rdma.emit(&mut w, self.output);
        }
        w
    }

    fn dpu(&self, w: &mut Words, cm: u32) {
        let (ww, wh, stride, notch, add) = self.writer;
        let oc = self.output.2;
        let se = self.size_e;
        w.set::<dpu::FeatureModeCfg>(15 << 5 | cm << 3 | 2 << 1)
            .set::<dpu::DataFormat>(self.po << 29 | self.pd << 26 | self.pd)
            .set::<dpu::OffsetPend>(0)
            .set::<dpu::DstBaseAddr>(self.c)
            .set::<dpu::DstSurfStride>(stride << 4)
            .set::<dpu::DataCubeWidth>(ww - 1)
            .set::<dpu::DataCubeHeight>(wh - 1)
            .set::<dpu::DataCubeNotchAddr>(notch << 16 | notch)
            .set::<dpu::DataCubeChannel>((oc - 1) << 16 | (oc - 1))
            .set::<dpu::BsCfg>(self.bs_cfg)
            .set::<dpu::BsAluCfg>(0)
            .set::<dpu::BsMulCfg>(0)
            .set::<dpu::BsReluxCmpValue>(0)
            .set::<dpu::BsOwCfg>(se << 8 | se << 5 | se << 2 | self.od_bypass << 1)
            .set::<dpu::BsOwOp>(self.ow_op)
            .set::<dpu::WdmaSize0>(oc - 1)
            .set::<dpu::WdmaSize1>((wh - 1) << 16 | (ww - 1))
            .set::<dpu::BnCfg>(0x53)
            .set::<dpu::BnAluCfg>(0)
            .set::<dpu::BnMulCfg>(0)
            .set::<dpu::BnReluxCmpValue>(0)
            .set::<dpu::EwCfg>(self.ew_cfg)
            .set::<dpu::EwCvtOffsetValue>(0)
            .set::<dpu::EwCvtScaleValue>(1)
            .set::<dpu::EwReluxCmpValue>(0)
            .set::<dpu::OutCvtOffset>(self.out_offset)
            .set::<dpu::OutCvtScale>(self.out_scale)
            .set::<dpu::OutCvtShift>(self.out_shift)
            .set::<dpu::SurfaceAdd>(add << 4)
            .set::<dpu::Unknown40c4>(0)
            .set::<dpu::LutCfg>(0)
            .set::<dpu::LutInfo>(0);
    }

    /// The whole program; DPU_RDMA is enabled where it is set up.
    pub(crate) fn program(&self) -> Vec<Word> {
        let enable = if self.rdma.is_some() { 0x1d } else { 0x0d };
        self.words().finish(enable)
    }
}

impl Rdma {
    fn emit(&self, w: &mut Words, (ow, oh, oc): (u32, u32, u32)) {
        w.set::<dpu_rdma::DataCubeWidth>(ow - 1)
            .set::<dpu_rdma::DataCubeHeight>(oh - 1)
            .set::<dpu_rdma::DataCubeChannel>(oc - 1)
            .set::<dpu_rdma::SrcBaseAddr>(self.src)
            .set::<dpu_rdma::BrdmaCfg>(self.brdma)
            .set::<dpu_rdma::BsBaseAddr>(self.bias)
            .set::<dpu_rdma::NrdmaCfg>(0)
            .set::<dpu_rdma::BnBaseAddr>(0)
            .set::<dpu_rdma::ErdmaCfg>(self.erdma)
            .set::<dpu_rdma::EwBaseAddr>(self.ew)
            .set::<dpu_rdma::EwSurfStride>(self.ew_stride << 4)
            .set::<dpu_rdma::FeatureModeCfg>(self.mode)
            .set::<dpu_rdma::SrcDmaCfg>(0)
            .set::<dpu_rdma::SurfNotch>(self.notch << 4)
            .set::<dpu_rdma::PadCfg>(0)
            .set::<dpu_rdma::Weight>(0x0101_0101)
            .set::<dpu_rdma::EwSurfNotch>(self.notch << 4);
    }
}

/// Types of a matrix product: input, result, and what follows for the
/// registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MatType {
    Fp16Fp32,
    Fp16Fp16,
    Int8Int32,
    Int8Fp32,
    Int4Int16,
    Bf16Fp32,
    Tf32Fp32,
    Int16Int32,
}

impl MatType {
    pub(crate) const ALL: [Self; 8] = [
        Self::Fp16Fp32,
        Self::Fp16Fp16,
        Self::Int8Int32,
        Self::Int8Fp32,
        Self::Int4Int16,
        Self::Bf16Fp32,
        Self::Tf32Fp32,
        Self::Int16Int32,
    ];

    /// p, pd, po, QD_EN, SIZE_E, fp16 output.
    fn codes(self) -> (u32, u32, u32, u32, u32, u32) {
        match self {
            Self::Fp16Fp32 => (2, 2, 5, 1, 3, 0),
            Self::Fp16Fp16 => (2, 2, 2, 1, 1, 1),
            Self::Int8Int32 => (0, 0, 4, 0, 7, 0),
            Self::Int8Fp32 => (0, 0, 5, 0, 7, 0),
            Self::Int4Int16 => (6, 6, 1, 0, 7, 0),
            Self::Bf16Fp32 => (3, 3, 5, 1, 3, 0),
            Self::Tf32Fp32 => (7, 5, 5, 1, 3, 0),
            Self::Int16Int32 => (1, 1, 4, 1, 3, 0),
        }
    }

    /// Multiples that K and N are padded to.
    pub(crate) fn multiples(self) -> (usize, usize) {
        match self {
            Self::Fp16Fp32 | Self::Fp16Fp16 | Self::Bf16Fp32 | Self::Int16Int32 => (32, 16),
            Self::Int8Int32 | Self::Int8Fp32 => (32, 32),
            Self::Int4Int16 => (32, 64),
            Self::Tf32Fp32 => (16, 16),
        }
    }

    /// Half bytes of an input element.
    pub(crate) fn half_bytes(self) -> usize {
        match self {
            Self::Int4Int16 => 1,
            Self::Int8Int32 | Self::Int8Fp32 => 2,
            Self::Tf32Fp32 => 8,
            _ => 4,
        }
    }

    /// Bytes of an output element.
    pub(crate) fn out_bytes(self) -> usize {
        match self {
            Self::Fp16Fp16 | Self::Int4Int16 => 2,
            _ => 4,
        }
    }

    /// The 1x1 convolution that multiplies M x K by the transpose of N x K.
    pub(crate) fn matmul(self, m: u32, k: u32, n: u32, (a, b, c): (u32, u32, u32)) -> Conv {
        let (p, pd, po, qd, size_e, fp16) = self.codes();
        let kernel_bytes = (k * self.half_bytes() as u32).div_ceil(2);
        let entries = kernel_bytes.div_ceil(64);
        Conv {
            p,
            pd,
            po,
            depthwise: false,
            group_line_off: false,
            grains: m + 1,
            stride: (1, 1),
            dilation: (1, 1),
            pad: (0, 0),
            pad_value: 0,
            input: (1, m, k),
            output: (1, m, n),
            kernel: (1, 1),
            kernels: n,
            weight_bytes: kernel_bytes * n,
            kernel_bytes,
            data_banks: (m * entries * 64).div_ceil(32768),
            entries,
            data_reuse: false,
            weight_reuse: false,
            line_stride: 4,
            surf_stride: m as i32 - 4,
            qd,
            truncate: 0,
            bs_cfg: 0x53,
            ow_op: 0,
            od_bypass: 1,
            size_e,
            ew_cfg: 0x383,
            out_offset: 0,
            out_scale: fp16 << 16 | 1,
            out_shift: 0,
            writer: (1, m, m, 0, (size_e + 1) * m),
            a,
            b,
            c,
            rdma: None,
        }
    }
}

/// A flying program: main input from memory.
#[derive(Clone, Debug)]
pub(crate) struct Flying {
    pub(crate) format: u32,
    pub(crate) dst: u32,
    pub(crate) dst_stride: u32,
    /// Width, height, channels.
    pub(crate) cube: (u32, u32, u32),
    pub(crate) bs: (u32, u32),
    pub(crate) bn: (u32, u32, u32),
    pub(crate) ew_cfg: u32,
    pub(crate) out: (u32, u32, u32),
    pub(crate) src: u32,
    pub(crate) brdma: u32,
    pub(crate) nrdma: (u32, u32),
    pub(crate) erdma: u32,
    pub(crate) ew: u32,
    pub(crate) ew_stride: u32,
    pub(crate) mode: u32,
    pub(crate) notch: u32,
}

impl Flying {
    pub(crate) fn words(&self) -> Words {
        let (w, h, c) = self.cube;
        let mut words = Words::default();
        words
            .set::<dpu::SPointer>(0xe)
            .set::<dpu_rdma::SPointer>(0xe)
            .set::<dpu::FeatureModeCfg>(0x1e5)
            .set::<dpu::DataFormat>(self.format)
            .set::<dpu::OffsetPend>(0)
            .set::<dpu::DstBaseAddr>(self.dst)
            .set::<dpu::DstSurfStride>(self.dst_stride << 4)
            .set::<dpu::DataCubeWidth>(w - 1)
            .set::<dpu::DataCubeHeight>(h - 1)
            .set::<dpu::DataCubeNotchAddr>(0)
            .set::<dpu::DataCubeChannel>((c - 1) << 16 | (c - 1))
            .set::<dpu::BsCfg>(self.bs.0)
            .set::<dpu::BsAluCfg>(0)
            .set::<dpu::BsMulCfg>(self.bs.1)
            .set::<dpu::BsReluxCmpValue>(0)
            .set::<dpu::BsOwCfg>(2)
            .set::<dpu::BsOwOp>(0)
            .set::<dpu::WdmaSize0>(c - 1)
            .set::<dpu::WdmaSize1>((h - 1) << 16 | (w - 1))
            .set::<dpu::BnCfg>(self.bn.0)
            .set::<dpu::BnAluCfg>(self.bn.1)
            .set::<dpu::BnMulCfg>(self.bn.2)
            .set::<dpu::BnReluxCmpValue>(0)
            .set::<dpu::EwCfg>(self.ew_cfg)
            .set::<dpu::EwCvtOffsetValue>(0)
            .set::<dpu::EwCvtScaleValue>(1)
            .set::<dpu::EwReluxCmpValue>(0)
            .set::<dpu::OutCvtOffset>(self.out.0)
            .set::<dpu::OutCvtScale>(self.out.1)
            .set::<dpu::OutCvtShift>(self.out.2)
            .set::<dpu::SurfaceAdd>(self.dst_stride << 4)
            .set::<dpu::Unknown40c4>(0)
            .set::<dpu_rdma::DataCubeWidth>(w - 1)
            .set::<dpu_rdma::DataCubeHeight>(h - 1)
            .set::<dpu_rdma::DataCubeChannel>(c - 1)
            .set::<dpu_rdma::SrcBaseAddr>(self.src)
            .set::<dpu_rdma::BrdmaCfg>(self.brdma)
            .set::<dpu_rdma::BsBaseAddr>(0)
            .set::<dpu_rdma::NrdmaCfg>(self.nrdma.0)
            .set::<dpu_rdma::BnBaseAddr>(self.nrdma.1)
            .set::<dpu_rdma::ErdmaCfg>(self.erdma)
            .set::<dpu_rdma::EwBaseAddr>(self.ew)
            .set::<dpu_rdma::EwSurfStride>(self.ew_stride << 4)
            .set::<dpu_rdma::FeatureModeCfg>(self.mode)
            .set::<dpu_rdma::SrcDmaCfg>(0)
            .set::<dpu_rdma::SurfNotch>(self.notch << 4)
            .set::<dpu_rdma::PadCfg>(0)
            .set::<dpu_rdma::Weight>(0x0101_0101)
            .set::<dpu_rdma::EwSurfNotch>(0);
        words
    }

    pub(crate) fn program(&self) -> Vec<Word> {
        self.words().finish(0x18)
    }

    /// fp16 operation on flat vectors of `8 * cols` elements (allbilly).
    pub(crate) fn fp16(cols: u32, ew_cfg: u32, (a, b, d): (u32, u32, u32)) -> Self {
        Self {
            format: 2 << 29 | 2 << 26 | 2,
            dst: d,
            dst_stride: cols,
            cube: (cols, 1, 8),
            bs: (0x53, 0),
            bn: (0x53, 0, 0),
            ew_cfg,
            out: (0, 0x10001, 0),
            src: a,
            brdma: 0,
            nrdma: (0, 0),
            erdma: 0x4000_0008,
            ew: b,
            ew_stride: cols,
            mode: 0x17849,
            notch: 0,
        }
    }

    /// int32 addition of native cubes of `rows` rows (happyme531).
    pub(crate) fn int32_add(rows: u32, channels: u32, (a, b, d): (u32, u32, u32)) -> Self {
        Self {
            format: 4 << 29 | 4 << 26 | 4,
            dst: d,
            dst_stride: rows,
            cube: (rows, 1, channels),
            bs: (0x53, 0),
            bn: (0x53, 0, 0),
            ew_cfg: 0x10c2_03c0,
            out: (0, 1, 0),
            src: a,
            brdma: 0,
            nrdma: (0, 0),
            erdma: 0x4000_000c,
            ew: b,
            ew_stride: rows,
            mode: 0x27881,
            notch: 0,
        }
    }
}

/// fp16 pooling (librocketnpu).
#[derive(Clone, Debug)]
pub(crate) struct Pool {
    pub(crate) input: (u32, u32),
    pub(crate) output: (u32, u32),
    pub(crate) channels: u32,
    /// 0 average, 1 maximum, 2 minimum.
    pub(crate) method: u32,
    pub(crate) kernel: (u32, u32),
    pub(crate) stride: (u32, u32),
    /// Left, top, right, bottom.
    pub(crate) pad: (u32, u32, u32, u32),
    pub(crate) pad_value: u32,
    pub(crate) src: u32,
    pub(crate) dst: u32,
}

impl Pool {
    pub(crate) fn words(&self) -> Words {
        let ((iw, ih), (ow, oh)) = (self.input, self.output);
        let (l, t, r, b) = self.pad;
        let reciprocal = |size: u32| {
            if self.method == 0 {
                half::f16::from_f32(65536.0 / size as f32).to_bits().into()
            } else {
                0
            }
        };
        let mut w = Words::default();
        w.set::<ppu::SPointer>(0xe)
            .set::<ppu_rdma::SPointer>(0xe)
            .set::<ppu::DataCubeInWidth>(iw - 1)
            .set::<ppu::DataCubeInHeight>(ih - 1)
            .set::<ppu::DataCubeInChannel>(self.channels - 1)
            .set::<ppu::DataCubeOutWidth>(ow - 1)
            .set::<ppu::DataCubeOutHeight>(oh - 1)
            .set::<ppu::DataCubeOutChannel>(self.channels - 1)
            .set::<ppu::OperationModeCfg>(0x10 + self.method)
            .set::<ppu::PoolingKernelCfg>(
                (self.kernel.0 - 1)
                    | (self.kernel.1 - 1) << 8
                    | (self.stride.0 - 1) << 16
                    | (self.stride.1 - 1) << 20,
            )
            .set::<ppu::RecipKernelWidth>(reciprocal(self.kernel.0))
            .set::<ppu::RecipKernelHeight>(reciprocal(self.kernel.1))
            .set::<ppu::PoolingPaddingCfg>(l | t << 4 | r << 8 | b << 12)
            .set::<ppu::PaddingValue1>(self.pad_value)
            .set::<ppu::PaddingValue2>(0)
            .set::<ppu::DstBaseAddr>(self.dst)
            .set::<ppu::DstSurfStride>(16 * ow * oh)
            .set::<ppu::DataFormat>(16 * ow * oh + 2)
            .set::<ppu::MiscCtrl>(3)
            .set::<ppu_rdma::CubeInWidth>(iw - 1)
            .set::<ppu_rdma::CubeInHeight>(ih - 1)
            .set::<ppu_rdma::CubeInChannel>(self.channels - 1)
            .set::<ppu_rdma::SrcBaseAddr>(self.src)
            .set::<ppu_rdma::SrcLineStride>(16 * iw)
            .set::<ppu_rdma::SrcSurfStride>(16 * iw * ih)
            .set::<ppu_rdma::DataFormat>(2);
        w
    }

    pub(crate) fn program(&self) -> Vec<Word> {
        self.words().finish(0x60)
    }
}
