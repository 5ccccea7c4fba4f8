// SPDX-License-Identifier: MIT OR Apache-2.0
//! A depthwise int8 convolution. Its shape and registers are those of a run that
//! Mesa's project captured on silicon (64 channels of 8 x 8, 3 x 3, padded); its
//! weights are others.

use rknpu_regcmd::regs::{cna, core, dpu, dpu_rdma};
use rknpu_regcmd::{FieldRangeError, Precision, Register};

use crate::experiment::matmul::int8;
use crate::experiment::{ALU_ADD, Experiment, TaskTemplate, change, input, put};
use crate::matmul::data::SplitMix64;

const CHANNELS: u32 = 64;
const SIDE: u32 = 8;
const PIXELS: u32 = SIDE * SIDE;
const KERNEL: u32 = 3;
const TAPS: u32 = KERNEL * KERNEL;
/// CONV_MODE: depthwise.
const DEPTHWISE: u32 = 3;
/// The padding byte, far from the input bytes.
const PAD: u32 = 0x7e;
const INPUT_BYTE: u8 = 0x80;
/// Lines that CNA may prefetch, entries per line, and banks, as captured.
const GRAINS: u32 = 52;
const ENTRIES: u32 = 8;
const DATA_BANKS: u32 = 2;
const WEIGHT_BANKS: u32 = 10;
/// Atoms from one line group, and from one surface, to the next, as captured.
const STRIDE: u32 = 32;
/// Atoms per pixel and group, minus one: 64 channels of one byte.
const SIZE_E: u32 = 3;
/// Added to every weight, so that bytes from 0x80 up count from 0.
const WEIGHT_ZERO: i32 = 0x80;
/// Real weights are below this.
const WEIGHT_BITS: u32 = 5;
/// The output is the sum times SCALE, shifted right by SHIFT bits.
const SCALE: i32 = 17675;
const SHIFT: u32 = 22;
/// BRDMA reads only the operand of the ALU.
const USE_ALU_OPERAND: u32 = 1;

/// A run on an RK3588: bias, weights and results of each channel.
const CAPTURE: &str =
    include_str!("../../../../../sim/rknpu-chip/tests/chip/data/depthwise-64x8x8.txt");
/// Added to each result of the captured run.
const CAPTURED_OFFSET: i32 = -123;

/// The columns of [`CAPTURE`], by channel.
fn capture() -> anyhow::Result<Vec<Vec<i32>>> {
    let lines = CAPTURE.lines();
    let lines = lines.filter(|line| line.starts_with(|c: char| c.is_ascii_digit()));
    let numbers = lines.map(|line| line.split_whitespace().map(str::parse).collect());
    Ok(numbers.collect::<Result<_, _>>()?)
}

/// The captured run, with its weights.
pub(crate) fn captured() -> anyhow::Result<Experiment> {
    let mut experiment = depthwise_pad()?;
    let channels = capture()?;
    let column = |index| channels.iter().filter_map(move |row| row.get(index));
    let weights = (2..).take(TAPS as usize).flat_map(column);
    let bias = column(1).flat_map(|bias| bias.to_le_bytes());
    experiment.inputs[1] = weights.map(|weight| *weight as u8).collect();
    experiment.inputs[2] = bias.collect();
    let offset = dpu::OutCvtOffset::from_bits(CAPTURED_OFFSET as u32);
    experiment.task().put(offset);
    Ok(experiment)
}

/// A run in which the padding affects the results at every border.
pub(crate) fn depthwise_pad() -> anyhow::Result<Experiment> {
    let mut random = SplitMix64::new(4);
    let weight = |random: &mut SplitMix64| {
        let real = random.signed(WEIGHT_BITS + 1).unsigned_abs() as i32;
        (real - WEIGHT_ZERO) as i8 as u8
    };
    let weights = (0..TAPS * CHANNELS).map(|_| weight(&mut random)).collect();
    let input = vec![INPUT_BYTE; (PIXELS * CHANNELS) as usize];
    let bias = (0..CHANNELS as i32).flat_map(|channel| (channel * 16).to_le_bytes());
    // A matmul of as many rows as pixels, changed to a depthwise convolution.
    let matmul = int8(PIXELS, CHANNELS, &[CHANNELS]).without_spare_bank();
    let mut experiment = matmul.experiment()?;
    experiment.output = input.len();
    experiment.inputs = vec![input, weights, bias.collect()];
    make_depthwise(experiment.task())?;
    Ok(experiment)
}

fn make_depthwise(task: &mut TaskTemplate) -> Result<(), FieldRangeError> {
    change! { task;
        cna::ConvCon1 { conv_mode: DEPTHWISE }
        core::MiscCfg { dw_en: 1, qd_en: 1 }
        dpu::FeatureModeCfg { conv_mode: DEPTHWISE }
        dpu::DataFormat { out_precision: Precision::Int8.code() }
        dpu_rdma::FeatureModeCfg { conv_mode: DEPTHWISE }
    }
    put! { task;
        cna::ConvCon2 { feature_grains: GRAINS }
        cna::DataSize0 { datain_width: SIDE, datain_height: SIDE }
        cna::DataSize2 { dataout_width: SIDE }
        cna::DataSize3 { dataout_atomics: PIXELS }
        cna::WeightSize0 { weight_bytes: TAPS * CHANNELS }
        cna::WeightSize1 { weight_bytes_per_kernel: TAPS * CHANNELS }
        cna::WeightSize2 { weight_width: KERNEL, weight_height: KERNEL, weight_kernels: 1 }
        cna::CbufCon0 { data_bank: DATA_BANKS, weight_bank: WEIGHT_BANKS }
        cna::CbufCon1 { data_entries: ENTRIES }
        cna::PadCon0 { pad_left: 1, pad_top: 1 }
        cna::PadCon1 { pad_value: PAD }
        cna::DmaCon1 { line_stride: STRIDE }
        cna::DmaCon2 { surf_stride: STRIDE as i32 }
        cna::FcDataSize0 { dma_width: SIDE, dma_height: SIDE }
        core::DataoutSize0 { dataout_width: SIDE - 1, dataout_height: SIDE - 1 }
        dpu::DataCubeWidth { width: SIDE - 1 }
        dpu::DataCubeHeight { height: SIDE - 1 }
        dpu::WdmaSize1 { width_wdma: SIDE - 1, height_wdma: SIDE - 1 }
        dpu::BsCfg { bs_alu_algo: ALU_ADD, bs_alu_src: 1, bs_mul_bypass: 1, bs_relu_bypass: 1 }
        dpu::BsOwCfg { size_e_0: SIZE_E, size_e_1: SIZE_E, size_e_2: SIZE_E }
        dpu::BsOwOp { ow_op: WEIGHT_ZERO }
        dpu::OutCvtScale { out_cvt_scale: SCALE }
        dpu::OutCvtShift { out_cvt_shift: SHIFT }
        dpu::SurfaceAdd { surf_add: (SIZE_E + 1) * PIXELS }
        dpu_rdma::DataCubeWidth { width: SIDE - 1 }
        dpu_rdma::DataCubeHeight { height: SIDE - 1 }
        dpu_rdma::BrdmaCfg { brdma_data_use: USE_ALU_OPERAND }
    }
    task.put_address::<dpu_rdma::BsBaseAddr>(input(2).at(0));
    Ok(())
}

#[cfg(test)]
mod tests {
    use rknpu_chip::Contested;

    use super::*;
    use crate::experiment::runner::{GUARD, run_on_model};

    /// The model gives silicon's results at the first, inner and last rows and
    /// columns.
    #[test]
    fn the_captured_run_comes_out_as_captured() {
        let seen = run_on_model(&captured().unwrap(), Contested::default()).unwrap();
        let out = &seen[0].output[GUARD..];
        let class = |at: u32| usize::from(at > 0) + usize::from(at == SIDE - 1);
        for values in capture().unwrap() {
            let channel = values[0] as u32;
            for (y, x) in (0..SIDE).flat_map(|y| (0..SIDE).map(move |x| (y, x))) {
                let at = ((channel / 16) * PIXELS + y * SIDE + x) * 16 + channel % 16;
                let want = values[11 + 3 * class(y) + class(x)];
                assert_eq!(i32::from(out[at as usize].cast_signed()), want);
            }
        }
    }
}
