// SPDX-License-Identifier: MIT OR Apache-2.0
//! Experiments with the PPU: average pooling, programmed like librocketnpu's
//! programs.

use half::f16;
use rknpu_regcmd::regs::{ppu, ppu_rdma};
use rknpu_regcmd::task::POOLING;
use rknpu_regcmd::{ATOM_BYTES, Precision};

use super::flying::FP16;
use crate::experiment::matmul::fp16_bytes;
use crate::experiment::{Experiment, OUT, TaskTemplate, input, put};
use crate::matmul::data::SplitMix64;

/// Beats of a burst, minus one, as in known pooling programs.
const BURST_4: u32 = 3;
/// Width and height of the input, of the kernel, and of the output. Inputs of 8
/// and more are known to be read right from any source.
const INPUT: u32 = 8;
const KERNEL: u32 = 3;
const OUTPUT: u32 = INPUT - KERNEL + 1;
/// RECIP_KERNEL is a fraction of this.
const RECIPROCAL_ONE: f32 = 65536.0;
/// IN_PRECISION of PPU_RDMA: 8 and 16 bits (E-pool-width-codes).
const READ_8_BITS: u32 = 1;
const READ_16_BITS: u32 = 2;

const INPUT_BYTES: usize = (INPUT * INPUT * ATOM_BYTES) as usize;
const OUTPUT_BYTES: usize = (OUTPUT * OUTPUT * ATOM_BYTES) as usize;

/// A task that averages each 3 x 3 window of one atom of `channels`. PPU_RDMA
/// reads with the code `read`; the PPU computes in `precision`.
fn average(channels: u32, read: u32, precision: u32) -> anyhow::Result<TaskTemplate> {
    let reciprocal = u32::from(f16::from_f32(RECIPROCAL_ONE / KERNEL as f32).to_bits());
    let mut task = TaskTemplate::blank(POOLING);
    put! { task;
        ppu::DataCubeInWidth { cube_in_width: INPUT - 1 }
        ppu::DataCubeInHeight { cube_in_height: INPUT - 1 }
        ppu::DataCubeInChannel { cube_in_channel: channels - 1 }
        ppu::DataCubeOutWidth { cube_out_width: OUTPUT - 1 }
        ppu::DataCubeOutHeight { cube_out_height: OUTPUT - 1 }
        ppu::DataCubeOutChannel { cube_out_channel: channels - 1 }
        ppu::OperationModeCfg { flying_mode: 1 }
        ppu::PoolingKernelCfg { kernel_width: KERNEL - 1, kernel_height: KERNEL - 1 }
        ppu::RecipKernelWidth { recip_kernel_width: reciprocal }
        ppu::RecipKernelHeight { recip_kernel_height: reciprocal }
        ppu::DstSurfStride { dst_surf_stride: OUTPUT * OUTPUT }
        ppu::DataFormat { proc_precision: precision, index_add: OUTPUT * OUTPUT }
        ppu::MiscCtrl { burst_len: BURST_4 }
        ppu_rdma::CubeInWidth { cube_in_width: INPUT - 1 }
        ppu_rdma::CubeInHeight { cube_in_height: INPUT - 1 }
        ppu_rdma::CubeInChannel { cube_in_channel: channels - 1 }
        ppu_rdma::SrcLineStride { src_line_stride: INPUT }
        ppu_rdma::SrcSurfStride { src_surf_stride: INPUT * INPUT }
        ppu_rdma::DataFormat { in_precision: read }
    }
    task.put_address::<ppu::DstBaseAddr>(OUT.at(0))
        .put_address::<ppu_rdma::SrcBaseAddr>(input(0).at(0));
    Ok(task)
}

/// Values of one channel group of the input.
pub(crate) const VALUES: usize = INPUT_BYTES / 2;

/// Means of [`VALUES`] numbers.
pub(crate) fn fp16_average(values: impl IntoIterator<Item = f32>) -> anyhow::Result<Experiment> {
    let task = average(8, READ_16_BITS, FP16)?;
    let inputs = vec![fp16_bytes(values)];
    Ok(Experiment::of(inputs, OUTPUT_BYTES, vec![vec![task]]))
}

/// Means of zeros, which any rounding leaves at 0. Shows whether the job ends.
pub(crate) fn pooling_interrupt() -> anyhow::Result<Experiment> {
    fp16_average([0.0; VALUES])
}

/// Means of numbers whose sums need more bits than fp16 has.
pub(crate) fn average_rounding() -> anyhow::Result<Experiment> {
    const BITS: u32 = 12;
    let mut random = SplitMix64::new(3);
    let step = (-10_f32).exp2();
    fp16_average((0..VALUES).map(|_| random.signed(BITS) as f32 * step))
}

/// Means of bytes below 100; pairs of them are valid fp16 numbers too.
pub(crate) fn byte_pooling() -> anyhow::Result<Experiment> {
    const BELOW: usize = 100;
    const STEP: usize = 37;
    let bytes = (0..INPUT_BYTES).map(|i| (i * STEP % BELOW) as u8).collect();
    let mut task = average(16, READ_8_BITS, Precision::Int8.code())?;
    // As fp16, 16 channels are two surfaces; as bytes, one.
    task.prove_as(ppu_rdma::DataFormat::new().with_in_precision(READ_16_BITS)?)
        .prove_as(ppu::DataFormat::new().with_proc_precision(FP16)?);
    Ok(Experiment::of(vec![bytes], OUTPUT_BYTES, vec![vec![task]]))
}
