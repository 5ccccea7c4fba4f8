// SPDX-License-Identifier: MIT OR Apache-2.0
//! A convolution: CNA to CORE to DPU to memory.

use super::Registers;
use super::features::Features;
use super::output::Output;
use super::reads::Reads;
use crate::precision::Precision;
use crate::regs::{cna, core};

/// The weights as the MAC array gets them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weights {
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
}

impl Weights {
    pub(crate) fn decode(regs: &impl Registers) -> Self {
        let size = regs.get::<cna::WeightSize2>();
        Self {
            base: regs.get::<cna::DcompAddr0>().decompress_addr0(),
            bytes: regs.get::<cna::WeightSize0>().weight_bytes(),
            kernel_bytes: regs.get::<cna::WeightSize1>().weight_bytes_per_kernel(),
            kernels: size.weight_kernels() as usize,
            kernel: [size.weight_width(), size.weight_height()].map(|taps| taps as usize),
        }
    }

    /// Pixels under a kernel.
    #[must_use]
    pub const fn taps(&self) -> usize {
        self.kernel[0] * self.kernel[1]
    }
}

/// How CBUF is divided, and what is in it already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffering {
    /// Banks of features and of weights.
    pub banks: [usize; 2],
    /// FC_DATA_BANK.
    pub fc_bank: u32,
    /// The features of an earlier task are used.
    pub data_reuse: bool,
    /// Its weights are.
    pub weight_reuse: bool,
    /// 64-byte entries of a line.
    pub entries: usize,
    /// Lines that must be present before the computation starts.
    pub grains: usize,
}

impl Buffering {
    pub(crate) fn decode(regs: &impl Registers) -> Self {
        let con0 = regs.get::<cna::CbufCon0>();
        Self {
            banks: [con0.data_bank(), con0.weight_bank()].map(|banks| banks as usize),
            fc_bank: con0.fc_data_bank(),
            data_reuse: con0.data_reuse() == 1,
            weight_reuse: con0.weight_reuse() == 1,
            entries: regs.get::<cna::CbufCon1>().data_entries() as usize,
            grains: regs.get::<cna::ConvCon2>().feature_grains() as usize,
        }
    }
}

/// A convolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conv {
    /// What is convolved.
    pub features: Features,
    /// With what.
    pub weights: Weights,
    /// Through which buffer.
    pub cbuf: Buffering,
    /// PROC_PRECISION of CORE.
    pub precision: Precision,
    /// DW_EN of CORE.
    pub depthwise: bool,
    /// DATAOUT_ATOMICS: pixels that the sequencer produces.
    pub pixels: usize,
    /// What the DPU takes beside the sums, if DPU_RDMA runs.
    pub reads: Option<Reads>,
    /// What is written.
    pub output: Output,
}

impl Conv {
    pub(crate) fn decode(regs: &impl Registers, with_reads: bool) -> Self {
        let misc = regs.get::<core::MiscCfg>();
        Self {
            features: Features::decode(regs),
            weights: Weights::decode(regs),
            cbuf: Buffering::decode(regs),
            precision: Precision::from_code(misc.proc_precision()),
            depthwise: misc.dw_en() == 1,
            pixels: regs.get::<cna::DataSize3>().dataout_atomics() as usize,
            reads: with_reads.then(|| Reads::decode(regs)),
            output: Output::decode(regs),
        }
    }
}
