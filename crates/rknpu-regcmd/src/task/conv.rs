// SPDX-License-Identifier: MIT OR Apache-2.0
//! A convolution: CNA to CORE to DPU to memory.

use super::features::FeatureFetch;
use super::output::DpuOutput;
use super::reads::Reads;
use super::registers::{ReadRegisters, sizes};
use super::window::WindowSteps;
use crate::chip::{ATOM_BYTES, CBUF_ENTRY_BYTES, ChipProfile};
use crate::field::Register;
use crate::precision::Precision;
use crate::regfile::RegisterFile;
use crate::regs::{cna, core as core_regs};

/// The weights of a convolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConvWeights {
    /// DCOMP_ADDR0.
    pub base: u32,
    /// WEIGHT_BYTES.
    pub bytes: u32,
    /// WEIGHT_BYTES_PER_KERNEL.
    pub kernel_bytes: u32,
    /// WEIGHT_KERNELS.
    pub kernels: usize,
    /// Width and height of a kernel.
    pub kernel: [usize; 2],
    /// The type of a weight.
    pub precision: Precision,
}

/// Lanes of the weight decompressor.
pub const DECOMPRESSOR_LANES: usize = 16;

/// Bytes of each lane of compressed weights; `None` for raw weights.
#[must_use]
pub fn compressed_lanes(regs: &RegisterFile) -> Option<[u64; DECOMPRESSOR_LANES]> {
    let control = regs.get::<cna::DcompCtrl>();
    if control.decomp_control() == 0 || control.wt_dec_bypass() == 1 {
        return None;
    }
    // The registers of the lanes have one layout and follow each other.
    Some(core::array::from_fn(|lane| {
        let amount = regs.value(cna::DcompAmount0::OFFSET + 4 * lane as u16);
        let amount = cna::DcompAmount0::from_bits(amount).amount();
        (u64::from(amount) + 1) * u64::from(ATOM_BYTES)
    }))
}

impl ConvWeights {
    pub(crate) fn decode(regs: &impl ReadRegisters) -> Self {
        let size = regs.get::<cna::WeightSize2>();
        Self {
            base: regs.get::<cna::DcompAddr0>().decompress_addr0(),
            bytes: regs.get::<cna::WeightSize0>().weight_bytes(),
            kernel_bytes: regs.get::<cna::WeightSize1>().weight_bytes_per_kernel(),
            kernels: size.weight_kernels() as usize,
            kernel: [size.weight_width(), size.weight_height()].map(|taps| taps as usize),
            precision: Precision::from_code(regs.get::<cna::ConvCon1>().proc_precision()),
        }
    }

    /// Pixels that a kernel covers.
    #[must_use]
    pub const fn taps(&self) -> usize {
        self.kernel[0] * self.kernel[1]
    }
}

/// The division of CBUF, and the operands that it holds already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffering {
    /// Banks of features.
    pub data_banks: usize,
    /// Banks of weights.
    pub weight_banks: usize,
    /// FC_DATA_BANK.
    pub fc_data_bank: u32,
    /// DATA_REUSE: the features of an earlier task are used.
    pub data_reuse: bool,
    /// WEIGHT_REUSE: the weights of an earlier task are used.
    pub weight_reuse: bool,
    /// 64-byte entries of a line.
    pub entries: usize,
    /// Lines that must be present before the computation starts.
    pub grains: usize,
}

impl Buffering {
    fn decode(regs: &impl ReadRegisters) -> Self {
        let con0 = regs.get::<cna::CbufCon0>();
        Self {
            data_banks: con0.data_bank() as usize,
            weight_banks: con0.weight_bank() as usize,
            fc_data_bank: con0.fc_data_bank(),
            data_reuse: con0.data_reuse() == 1,
            weight_reuse: con0.weight_reuse() == 1,
            entries: regs.get::<cna::CbufCon1>().data_entries() as usize,
            grains: regs.get::<cna::ConvCon2>().feature_grains() as usize,
        }
    }

    /// Banks of features and of weights.
    #[must_use]
    pub const fn split(&self) -> (usize, usize) {
        (self.data_banks, self.weight_banks)
    }

    /// Bytes between the starts of two lines.
    #[must_use]
    pub const fn line_bytes(&self) -> usize {
        self.entries * CBUF_ENTRY_BYTES as usize
    }

    /// Number of lines of `bytes` bytes that the data banks hold. The last line takes
    /// only its own bytes, not the space up to a next line.
    #[must_use]
    pub fn lines_that_fit(&self, bytes: usize) -> usize {
        let room = self.data_banks * ChipProfile::RK3588.cbuf_bank_bytes as usize;
        match room.checked_sub(bytes.min(self.line_bytes())) {
            None => 0,
            Some(rest) => rest
                .checked_div(self.line_bytes())
                .map_or(usize::MAX, |before| before + 1),
        }
    }
}

/// A convolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConvTask {
    /// The features that CNA fetches.
    pub features: FeatureFetch,
    /// How the kernels move over the features.
    pub window: WindowSteps,
    /// Sizes and addresses of the kernels.
    pub weights: ConvWeights,
    /// How CBUF is used.
    pub cbuf: Buffering,
    /// PROC_PRECISION of CORE.
    pub precision: Precision,
    /// DW_EN of CORE.
    pub depthwise: bool,
    /// DATAOUT_ATOMICS: pixels that the sequencer produces.
    pub pixels: usize,
    /// Width, height and channels that CORE computes.
    pub computed: [usize; 3],
    /// QD_EN: CORE also sums the features.
    pub sums_features: bool,
    /// The operands that DPU_RDMA reads, if it runs.
    pub reads: Option<Reads>,
    /// What the DPU writes.
    pub output: DpuOutput,
}

impl ConvTask {
    pub(crate) fn decode(regs: &impl ReadRegisters, with_reads: bool) -> Self {
        let misc = regs.get::<core_regs::MiscCfg>();
        let size = regs.get::<core_regs::DataoutSize0>();
        Self {
            features: FeatureFetch::decode(regs),
            window: WindowSteps::decode(regs),
            weights: ConvWeights::decode(regs),
            cbuf: Buffering::decode(regs),
            precision: Precision::from_code(misc.proc_precision()),
            depthwise: misc.dw_en() == 1,
            computed: sizes([
                size.dataout_width(),
                size.dataout_height(),
                regs.get::<core_regs::DataoutSize1>().dataout_channel(),
            ]),
            sums_features: misc.qd_en() == 1,
            pixels: regs.get::<cna::DataSize3>().dataout_atomics() as usize,
            reads: with_reads.then(|| Reads::decode(regs)),
            output: DpuOutput::decode(regs),
        }
    }

    /// Whether any tap of a computed window is outside the input.
    #[must_use]
    pub fn pads(&self) -> bool {
        let [width, height, _] = self.features.window;
        let kernel = self.weights.kernel;
        self.window.pads([width, height], kernel, self.pixels)
    }

    /// Pixels that CORE hands to the DPU.
    #[must_use]
    pub(crate) const fn core_pixels(&self) -> usize {
        self.computed[0] * self.computed[1]
    }
}
