// SPDX-License-Identifier: MIT OR Apache-2.0
//! Experiments with the PPU: average pooling, as librocketnpu's programs have
//! it.

use half::f16;
use rknpu_regcmd::regs::{ppu, ppu_rdma};
use rknpu_regcmd::task::POOLING;
use rknpu_regcmd::{ATOM_BYTES, Precision, RegisterSet};

use super::flying::fp16_bytes;
use crate::data::SplitMix64;
use crate::experiment::{Experiment, OUT, TaskTemplate, input};

/// Beats less one of a burst, as known pooling programs have it.
const BURST_4: u32 = 3;
/// Width and height of the input, of the kernel, and of the output. 8 and more
/// are known to be read right wherever they come from.
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

/// The mean of each 3 x 3 window of one atom of `channels`, read as `read` and
/// computed in `precision`.
fn average(channels: u32, read: u32, precision: u32) -> anyhow::Result<TaskTemplate> {
    let reciprocal = u32::from(f16::from_f32(RECIPROCAL_ONE / KERNEL as f32).to_bits());
    let mut set = RegisterSet::new();
    set.set(ppu::DataCubeInWidth::new().with_cube_in_width(INPUT - 1)?)
        .set(ppu::DataCubeInHeight::new().with_cube_in_height(INPUT - 1)?)
        .set(ppu::DataCubeInChannel::new().with_cube_in_channel(channels - 1)?)
        .set(ppu::DataCubeOutWidth::new().with_cube_out_width(OUTPUT - 1)?)
        .set(ppu::DataCubeOutHeight::new().with_cube_out_height(OUTPUT - 1)?)
        .set(ppu::DataCubeOutChannel::new().with_cube_out_channel(channels - 1)?)
        .set(ppu::OperationModeCfg::new().with_flying_mode(1)?)
        .set(
            ppu::PoolingKernelCfg::new()
                .with_kernel_width(KERNEL - 1)?
                .with_kernel_height(KERNEL - 1)?,
        )
        .set(ppu::RecipKernelWidth::new().with_recip_kernel_width(reciprocal)?)
        .set(ppu::RecipKernelHeight::new().with_recip_kernel_height(reciprocal)?)
        .set_address::<ppu::DstBaseAddr>(OUT.at(0));
    set.set(ppu::DstSurfStride::new().with_dst_surf_stride(OUTPUT * OUTPUT)?)
        .set(
            ppu::DataFormat::new()
                .with_proc_precision(precision)?
                .with_index_add(OUTPUT * OUTPUT)?,
        )
        .set(ppu::MiscCtrl::new().with_burst_len(BURST_4)?)
        .set(ppu_rdma::CubeInWidth::new().with_cube_in_width(INPUT - 1)?)
        .set(ppu_rdma::CubeInHeight::new().with_cube_in_height(INPUT - 1)?)
        .set(ppu_rdma::CubeInChannel::new().with_cube_in_channel(channels - 1)?)
        .set_address::<ppu_rdma::SrcBaseAddr>(input(0).at(0));
    set.set(ppu_rdma::SrcLineStride::new().with_src_line_stride(INPUT)?)
        .set(ppu_rdma::SrcSurfStride::new().with_src_surf_stride(INPUT * INPUT)?)
        .set(ppu_rdma::DataFormat::new().with_in_precision(read)?);
    Ok(TaskTemplate::of(&set.program(POOLING)))
}

/// Values of a channel group of the input.
pub(super) const VALUES: usize = INPUT_BYTES / 2;

/// Means of [`VALUES`] numbers.
pub(super) fn fp16_average(values: impl IntoIterator<Item = f32>) -> anyhow::Result<Experiment> {
    let task = average(8, READ_16_BITS, Precision::Fp16.code())?;
    Ok(Experiment::of(vec![fp16_bytes(values)], OUTPUT_BYTES, task))
}

/// Means of zeroes, which are 0 however they are rounded, and whether the job
/// ends.
pub(super) fn pooling_interrupt() -> anyhow::Result<Experiment> {
    fp16_average([0.0; VALUES])
}

/// Means of numbers whose sums need more bits than fp16 has.
pub(super) fn average_rounding() -> anyhow::Result<Experiment> {
    const BITS: u32 = 12;
    let mut random = SplitMix64::new(3);
    let step = (-10_f32).exp2();
    fp16_average((0..VALUES).map(|_| random.signed(BITS) as f32 * step))
}

/// Means of bytes below 100, pairs of which are fp16 numbers too.
pub(super) fn byte_pooling() -> anyhow::Result<Experiment> {
    const BELOW: usize = 100;
    const STEP: usize = 37;
    let bytes = (0..INPUT_BYTES).map(|i| (i * STEP % BELOW) as u8).collect();
    let mut task = average(16, READ_8_BITS, Precision::Int8.code())?;
    // As fp16, 16 channels are two surfaces; as bytes, one.
    task.prove_as(ppu_rdma::DataFormat::new().with_in_precision(READ_16_BITS)?)
        .prove_as(ppu::DataFormat::new().with_proc_precision(Precision::Fp16.code())?);
    Ok(Experiment::of(vec![bytes], OUTPUT_BYTES, task))
}
