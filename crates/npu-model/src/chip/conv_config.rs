// SPDX-License-Identifier: MIT OR Apache-2.0
//! The registers of CNA and CORE, decoded: what convolution a task asks for.

use rknpu_regcmd::RegisterFile;
use rknpu_regcmd::regs::{cna, core};

use super::cna::FeatureDma;
use super::core::{IntRange, Ties, Truncate};
use super::dcomp::Compressed;
use super::patches::Window;
use super::pixels::{InputCvt, PixelDma};
use super::precision::{ATOM, Precision};
use super::trap::Stop;
use super::weights::WeightShape;

/// CONV_MODE of a depthwise convolution (Mesa, librocketnpu).
const CONV_MODE_DEPTHWISE: u32 = 3;
/// ARGB_IN for pixels of one channel; up to three more for more channels.
const ARGB_IN_FIRST: u32 = 8;

/// How CBUF is divided and what is in it already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CbufConfig {
    pub(crate) data_banks: usize,
    pub(crate) weight_banks: usize,
    pub(crate) fc_data_bank: u32,
    pub(crate) data_reuse: bool,
    pub(crate) weight_reuse: bool,
    /// 64-byte entries of a line.
    pub(crate) entries: usize,
    /// Lines that must be present before the computation starts.
    pub(crate) grains: usize,
}

/// Where the features come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FeatureSource {
    /// A cube of atoms.
    Cube(FeatureDma),
    /// Packed pixels (ARGB_IN).
    Pixels(PixelDma),
}

impl FeatureSource {
    /// Width, height and atoms of a pixel of the cube that CBUF gets.
    pub(crate) fn shape(&self) -> (usize, usize, usize) {
        match self {
            Self::Cube(dma) => (dma.width, dma.height, dma.surfaces),
            Self::Pixels(dma) => (dma.width, dma.height, dma.surfaces),
        }
    }

    /// Address of its first byte.
    pub(crate) fn base(&self) -> u32 {
        match self {
            Self::Cube(dma) => dma.base,
            Self::Pixels(dma) => dma.base,
        }
    }
}

/// A convolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ConvConfig {
    pub(crate) source: FeatureSource,
    pub(crate) cvt: Option<InputCvt>,
    pub(crate) window: Window,
    pub(crate) weights: WeightShape,
    /// DCOMP_ADDR0.
    pub(crate) weight_base: u32,
    /// WEIGHT_BYTES.
    pub(crate) weight_bytes: u64,
    /// Set where the weights in memory are compressed.
    pub(crate) compressed: Option<Compressed>,
    /// WEIGHT_BYTES_PER_KERNEL.
    pub(crate) bytes_per_kernel: u64,
    pub(crate) cbuf: CbufConfig,
    /// PROC_PRECISION of CORE.
    pub(crate) precision: Precision,
    pub(crate) depthwise: bool,
    /// DATAOUT_ATOMICS: pixels that the sequencer produces.
    pub(crate) pixels: usize,
    /// Pixels that CORE expects to hand to the DPU.
    pub(crate) core_pixels: usize,
    /// QD_EN.
    pub(crate) sum_features: bool,
    pub(crate) truncate: Truncate,
}

impl ConvConfig {
    /// Reads the registers. Total: every value means something.
    pub(crate) fn decode(regs: &RegisterFile) -> Self {
        let con1 = regs.get::<cna::ConvCon1>();
        let con3 = regs.get::<cna::ConvCon3>();
        let size0 = regs.get::<cna::DataSize0>();
        let kernels = regs.get::<cna::WeightSize2>();
        let pad = regs.get::<cna::PadCon0>();
        let misc = regs.get::<core::MiscCfg>();
        let out = regs.get::<core::DataoutSize0>();
        let clip = regs.get::<core::ClipTruncate>();

        let feature_precision = Precision::from_code(con1.in_precision());
        let precision = Precision::from_code(misc.proc_precision());
        let depthwise = misc.dw_en() == 1;
        let channels = regs.get::<cna::DataSize1>().datain_channel() as usize;
        let kernel = (
            kernels.weight_width() as usize,
            kernels.weight_height() as usize,
        );
        Self {
            source: feature_source(regs, feature_precision),
            cvt: input_cvt(regs),
            window: Window {
                in_width: size0.datain_width() as usize,
                in_height: size0.datain_height() as usize,
                out_width: (regs.get::<cna::DataSize2>().dataout_width() as usize).max(1),
                stride: (con3.conv_x_stride() as usize, con3.conv_y_stride() as usize),
                dilation: (
                    con3.atrous_x_dilation() as usize + 1,
                    con3.atrous_y_dilation() as usize + 1,
                ),
                spread: if con1.deconv() == 1 {
                    (
                        deconv_spread(con3.deconv_x_stride()),
                        deconv_spread(con3.deconv_y_stride()),
                    )
                } else {
                    (1, 1)
                },
                pad: (pad.pad_left() as usize, pad.pad_top() as usize),
                kernel,
                channels,
                precision: feature_precision,
                pad_value: regs.get::<cna::PadCon1>().pad_value(),
                low_pad: con1.conv_mode() == CONV_MODE_DEPTHWISE,
            },
            weights: WeightShape {
                precision: Precision::from_code(con1.proc_precision()),
                kernels: kernels.weight_kernels() as usize,
                channels,
                taps: kernel.0 * kernel.1,
            },
            weight_base: regs.get::<cna::DcompAddr0>().decompress_addr0(),
            weight_bytes: regs.get::<cna::WeightSize0>().weight_bytes().into(),
            compressed: Compressed::decode(regs),
            bytes_per_kernel: regs
                .get::<cna::WeightSize1>()
                .weight_bytes_per_kernel()
                .into(),
            cbuf: cbuf_config(regs),
            precision,
            depthwise,
            pixels: regs.get::<cna::DataSize3>().dataout_atomics() as usize,
            core_pixels: (out.dataout_width() as usize + 1) * (out.dataout_height() as usize + 1),
            sum_features: misc.qd_en() == 1,
            truncate: Truncate {
                shift: clip.clip_truncate(),
                ties: Ties::from_round_type(clip.round_type()),
            },
        }
    }

    /// Bytes of the weights as the MAC array gets them.
    pub(crate) fn stream_len(&self) -> Result<usize, Stop> {
        usize::try_from(self.weight_bytes).map_err(|_| Stop::HostMemory)
    }

    /// Range of the integer operands.
    pub(crate) fn int_range(&self) -> IntRange {
        let narrow = |p| matches!(p, Precision::Int8 | Precision::Int4);
        if narrow(self.window.precision) && narrow(self.weights.precision) {
            IntRange::Byte
        } else {
            IntRange::Word
        }
    }
}

/// Distance that DECONV_X/Y_STRIDE ask for: less one, and powers of two only;
/// other values do nothing (measured by rockchip-npu-notes).
fn deconv_spread(field: u32) -> usize {
    match field {
        1 | 3 | 7 => field as usize + 1,
        _ => 1,
    }
}

fn feature_source(regs: &RegisterFile, precision: Precision) -> FeatureSource {
    let con1 = regs.get::<cna::ConvCon1>();
    let size = regs.get::<cna::FcDataSize0>();
    let channels = regs.get::<cna::FcDataSize1>().dma_channel() as usize;
    let base = regs.get::<cna::FeatureDataAddr>().feature_base_addr();
    let (width, height) = (size.dma_width() as usize, size.dma_height() as usize);
    let surfaces = channels.div_ceil(precision.per_atom());
    let line_stride = regs.get::<cna::DmaCon1>().line_stride();
    if con1.argb_in() >= ARGB_IN_FIRST {
        // The sequencer takes what lies behind a line shorter than its window
        // (Mesa: images narrower than 16).
        let window = regs.get::<cna::DataSize0>().datain_width() as usize;
        return FeatureSource::Pixels(PixelDma {
            base,
            width: width.max(window),
            height,
            packed: ((con1.argb_in() - ARGB_IN_FIRST) % 4 + 1) as usize,
            element: ATOM / precision.per_atom().min(ATOM),
            surfaces: surfaces.max(1),
            line_stride,
        });
    }
    FeatureSource::Cube(FeatureDma {
        base,
        width,
        height,
        surfaces,
        grouped: con1.group_line_off() == 0,
        line_stride,
        surf_stride: regs.get::<cna::DmaCon2>().surf_stride(),
    })
}

fn input_cvt(regs: &RegisterFile) -> Option<InputCvt> {
    let con0 = regs.get::<cna::CvtCon0>();
    if con0.cvt_bypass() == 1 {
        return None;
    }
    let (c1, c2, c3, c4) = (
        regs.get::<cna::CvtCon1>(),
        regs.get::<cna::CvtCon2>(),
        regs.get::<cna::CvtCon3>(),
        regs.get::<cna::CvtCon4>(),
    );
    let low = |value: i32| value as i16;
    Some(InputCvt {
        add_first: con0.cvt_type() == 1,
        ties: Ties::from_round_type(con0.round_type()),
        signed: con0.data_sign() == 1,
        channels: [
            (
                c1.cvt_scale() as u16,
                low(c1.cvt_offset()),
                con0.cvt_truncate_0(),
            ),
            (
                c2.cvt_scale() as u16,
                low(c2.cvt_offset()),
                con0.cvt_truncate_1(),
            ),
            (
                c3.cvt_scale() as u16,
                low(c3.cvt_offset()),
                con0.cvt_truncate_2(),
            ),
            (
                c4.cvt_scale() as u16,
                low(c4.cvt_offset()),
                con0.cvt_truncate_3(),
            ),
        ],
        mask: regs.get::<cna::CvtCon5>().per_channel_cvt_en(),
    })
}

fn cbuf_config(regs: &RegisterFile) -> CbufConfig {
    let con0 = regs.get::<cna::CbufCon0>();
    CbufConfig {
        data_banks: con0.data_bank() as usize,
        weight_banks: con0.weight_bank() as usize,
        fc_data_bank: con0.fc_data_bank(),
        data_reuse: con0.data_reuse() == 1,
        weight_reuse: con0.weight_reuse() == 1,
        entries: regs.get::<cna::CbufCon1>().data_entries() as usize,
        grains: regs.get::<cna::ConvCon2>().feature_grains() as usize,
    }
}
