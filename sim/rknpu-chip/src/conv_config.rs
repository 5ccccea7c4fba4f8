// SPDX-License-Identifier: MIT OR Apache-2.0
//! Configuration of a convolution task: geometry, arithmetic of CNA and CORE.

use rknpu_regcmd::regs::{cna, core};
use rknpu_regcmd::task::{
    ConvTask, Cube, DECOMPRESSOR_LANES, DEPTHWISE, FeatureFetch, compressed_lanes,
};
use rknpu_regcmd::{Register, RegisterFile};

use super::cna::CubeShape;
use super::contested::{Contested, OtherSide};
use super::mac_array::{Ties, Truncate};
use super::patches::ConvWindow;
use super::pixels::{ChannelCvt, InputCvt, PixelDma};
use super::precision::{ATOM, Precision, flush_fp16, round_tf32};
use super::trap::Stop;
use super::weights::WeightShape;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FeatureSource {
    /// A cube of atoms.
    Cube(Cube),
    /// Packed pixels (ARGB_IN).
    Pixels(PixelDma),
}

impl FeatureSource {
    /// The source that `features` describe.
    fn new(features: &FeatureFetch) -> Self {
        let cube = features.atoms(features.fetched);
        match features.packed {
            Some(packed) => Self::Pixels(PixelDma {
                base: features.base,
                // If a line is shorter than its window, the sequencer also
                // takes what lies behind the line (E-narrow-image).
                shape: CubeShape {
                    width: cube.width.max(features.window[0]),
                    height: cube.lines.count,
                    surfaces: cube.surfaces.count.max(1),
                },
                packed,
                element: ATOM / features.precision.per_atom().min(ATOM),
                line_stride: features.line_stride,
            }),
            None => Self::Cube(cube),
        }
    }

    /// Shape of the cube in CBUF.
    pub(crate) fn shape(&self) -> CubeShape {
        match self {
            Self::Cube(cube) => CubeShape::of(cube),
            Self::Pixels(dma) => dma.shape,
        }
    }

    /// Address of its first byte.
    pub(crate) fn base(&self) -> u32 {
        match self {
            Self::Cube(cube) => cube.base,
            Self::Pixels(dma) => dma.base,
        }
    }
}

/// Configuration of a convolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ConvConfig {
    pub(crate) task: ConvTask,
    pub(crate) source: FeatureSource,
    pub(crate) cvt: Option<InputCvt>,
    pub(crate) window: ConvWindow,
    pub(crate) weights: WeightShape,
    /// Bytes of each lane, if the weights in memory are compressed.
    pub(crate) compressed: Option<[u64; DECOMPRESSOR_LANES]>,
    pub(crate) truncate: Truncate,
    /// Whether tf32 operands are rounded instead of cut.
    pub(crate) rounds_tf32: bool,
    /// Whether subnormal fp16 operands count as 0.
    pub(crate) flushes_fp16: bool,
}

impl ConvConfig {
    /// Decodes `task`, and the registers that it does not cover.
    pub(crate) fn new(task: &ConvTask, regs: &RegisterFile, contested: Contested) -> Self {
        let con1 = regs.get::<cna::ConvCon1>();
        let clip = regs.get::<core::ClipTruncate>();
        let [width, height, channels] = task.features.window;
        Self {
            task: *task,
            source: FeatureSource::new(&task.features),
            cvt: input_cvt(regs),
            window: ConvWindow {
                moves: task.window,
                input: (width, height),
                kernel: (task.weights.kernel[0], task.weights.kernel[1]),
                channels,
                precision: task.features.precision,
                low_pad: con1.conv_mode() == DEPTHWISE
                    && !contested.has(OtherSide::DepthwisePadPattern),
            },
            weights: WeightShape {
                precision: task.weights.precision,
                kernels: task.weights.kernels,
                channels,
                taps: task.weights.taps(),
            },
            compressed: compressed_lanes(regs),
            truncate: Truncate {
                shift: clip.clip_truncate(),
                ties: Ties::from_round_type(clip.round_type()),
            },
            rounds_tf32: contested.has(OtherSide::Tf32OperandNearest),
            flushes_fp16: contested.has(OtherSide::Fp16SubnormalsFlushed),
        }
    }

    /// What happens to operands of this precision on their way to the MAC array, if anything.
    pub(crate) fn narrowing(&self, precision: Precision) -> Option<fn(&mut [u8])> {
        match precision {
            Precision::Tf32 if self.rounds_tf32 => Some(round_tf32),
            Precision::Fp16 if self.flushes_fp16 => Some(flush_fp16),
            _ => None,
        }
    }

    /// Address of the weights (DCOMP_ADDR0).
    pub(crate) fn weight_base(&self) -> u32 {
        self.task.weights.base
    }

    /// Bytes of the weights as the MAC array gets them.
    pub(crate) fn stream_len(&self) -> Result<usize, Stop> {
        usize::try_from(self.task.weights.bytes).map_err(|_| Stop::HostMemory)
    }

    /// Whether no integer operand exceeds 2^7: int8 and int4. Others are at most 2^15.
    pub(crate) fn has_bytes(&self) -> bool {
        let narrow = |p| matches!(p, Precision::Int8 | Precision::Int4);
        narrow(self.window.precision) && narrow(self.weights.precision)
    }
}

fn input_cvt(regs: &RegisterFile) -> Option<InputCvt> {
    let con0 = regs.get::<cna::CvtCon0>();
    if con0.cvt_bypass() == 1 {
        return None;
    }
    let truncate = [
        con0.cvt_truncate_0(),
        con0.cvt_truncate_1(),
        con0.cvt_truncate_2(),
        con0.cvt_truncate_3(),
    ];
    Some(InputCvt {
        add_first: con0.cvt_type() == 1,
        ties: Ties::from_round_type(con0.round_type()),
        signed: con0.data_sign() == 1,
        channels: std::array::from_fn(|c| {
            // The registers of the channels are alike and follow each other.
            let con = regs.value(cna::CvtCon1::OFFSET + 4 * c as u16);
            let con = cna::CvtCon1::from_bits(con);
            ChannelCvt {
                scale: con.cvt_scale() as u16,
                offset: con.cvt_offset() as i16,
                shift: truncate[c],
            }
        }),
        mask: regs.get::<cna::CvtCon5>().per_channel_cvt_en(),
    })
}
