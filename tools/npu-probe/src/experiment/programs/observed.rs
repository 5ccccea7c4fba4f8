// SPDX-License-Identifier: MIT OR Apache-2.0
//! Experiments on unmeasured behaviour, for which the model has one variant only. They show
//! whether the device does the same.

use rknpu_regcmd::regs::{cna, dpu, dpu_rdma};
use rknpu_regcmd::{Precision, TaskType};

use super::flying::{FP16, FlyingOperation, combined, flying, operand};
use super::matmuls::{groups, int16_matmul, small};
use super::pooling::fp16_average;
use crate::experiment::matmul::{fp16, int8, matmul};
use crate::experiment::{Experiment, OUT, change, put};
use crate::matmul::data::SplitMix64;

/// Sums from -16 to 15, halved to int8: ties of both signs, with both values of CVT_ROUND.
pub(crate) fn int8_ties() -> anyhow::Result<Experiment> {
    const ROWS: u32 = 4;
    const DEPTH: usize = 32;
    const COLUMNS: i8 = 32;
    /// Atoms per pixel: 32 columns of one byte.
    const GROUP_ATOMS: u32 = 2;
    let mut experiment = small()?;
    let task = experiment.task();
    change!(task; dpu::DataFormat { out_precision: Precision::Int8.code() });
    put!(task; dpu::OutCvtShift { out_cvt_shift: 1 });
    groups(task, GROUP_ATOMS, ROWS)?;
    let mut other = task.clone();
    change!(other; dpu::OutCvtShift { cvt_round: 1 });
    experiment.jobs.push(vec![other]);
    // Only channel 0 counts: it is 1 in each row of A, and the sum itself in each kernel.
    let mut a = vec![0; ROWS as usize * DEPTH];
    a.chunks_mut(16)
        .take(ROWS as usize)
        .for_each(|atom| atom[0] = 1);
    let mut b = vec![0; COLUMNS as usize * DEPTH];
    for (kernel, sum) in b.chunks_mut(DEPTH).zip(-COLUMNS / 2..) {
        kernel[0] = sum.cast_unsigned();
    }
    experiment.inputs = vec![a, b];
    experiment.output = ROWS as usize * COLUMNS as usize;
    Ok(experiment)
}

/// An int8 matmul with fp16 results: 64 columns, in groups of four atoms.
pub(crate) fn int8_to_fp16() -> anyhow::Result<Experiment> {
    const ROWS: u32 = 8;
    const COLUMNS: u32 = 64;
    const GROUP_ATOMS: u32 = 4;
    let matmul = int8(ROWS, 32, &[COLUMNS]).without_spare_bank();
    let mut experiment = matmul.experiment()?;
    experiment.output = (ROWS * COLUMNS * 2) as usize;
    let task = experiment.task();
    change! { task;
        dpu::DataFormat { out_precision: FP16 }
        dpu::OutCvtScale { fp32tofp16_en: 1 }
    }
    groups(task, GROUP_ATOMS, ROWS)?;
    Ok(experiment)
}

/// An int16 matmul of 256 columns, in groups of four atoms.
pub(crate) fn int16_columns() -> anyhow::Result<Experiment> {
    int16_matmul(64, 32, 256)
}

/// 48 KiB of weights through one bank of 32 KiB.
pub(crate) fn one_weight_bank() -> anyhow::Result<Experiment> {
    const DATA_BANKS: u32 = 11;
    let mut experiment = fp16(4, 384, &[64]).experiment()?;
    put!(experiment.task(); cna::CbufCon0 { data_bank: DATA_BANKS, weight_bank: 1 });
    Ok(experiment)
}

/// A matmul, and behind it one with another output and no input lines.
pub(crate) fn no_lines() -> anyhow::Result<Experiment> {
    /// The most that the field holds, since 0 may mean one more.
    const MOST_LINES: u32 = 2047;
    let mut experiment = small()?;
    let mut empty = experiment.task().clone();
    let window = empty.value::<cna::DataSize0>();
    let fetch = empty.value::<cna::FcDataSize0>();
    empty
        .put_address::<dpu::DstBaseAddr>(OUT.at(experiment.output as u32))
        .prove_as(window.with_datain_height(MOST_LINES)?)
        .put(window.with_datain_height(0)?)
        .prove_as(fetch.with_dma_height(MOST_LINES)?)
        .put(fetch.with_dma_height(0)?);
    experiment.jobs[0].push(empty);
    experiment.output *= 2;
    Ok(experiment)
}

/// Maximum and minimum of zeros of either sign, infinities and subnormals.
pub(crate) fn signed_zeros() -> anyhow::Result<Experiment> {
    const TINY: f32 = 5.960_464_5e-8;
    const INF: f32 = f32::INFINITY;
    let a = [0.0, -0.0, 0.0, -0.0, INF, -INF, TINY, -TINY];
    let b = [-0.0, 0.0, 0.0, -0.0, 1.0, 1.0, 0.0, -0.0];
    let mut experiment = flying(FlyingOperation::Max, a, b)?;
    let minima = flying(FlyingOperation::Min, a, b)?;
    experiment.jobs.extend(minima.jobs);
    Ok(experiment)
}

/// Sums beyond fp16 on both sides, at its limit, and below its normal numbers.
pub(crate) fn fp16_overflow() -> anyhow::Result<Experiment> {
    /// The largest number, half the distance to the next, and the least number.
    const MAX: f32 = 65504.0;
    const HALF: f32 = 16.0;
    const LEAST: f32 = 5.960_464_5e-8;
    const INF: f32 = f32::INFINITY;
    const BELOW: f32 = HALF - 1.0;
    let a = [MAX, -MAX, MAX, MAX, MAX, INF, LEAST, -LEAST];
    let b = [MAX, -MAX, HALF, BELOW, -MAX, -INF, LEAST, LEAST];
    flying(FlyingOperation::Add, a, b)
}

/// Means of numbers of very different size, so that the order of additions affects the
/// result.
pub(crate) fn average_order() -> anyhow::Result<Experiment> {
    const BITS: u32 = 11;
    /// Exponents of two; the values take them in turn.
    const SCALES: [i32; 5] = [-10, -6, -2, 1, 4];
    let mut random = SplitMix64::new(5);
    let values: Vec<f32> = (0..super::pooling::VALUES)
        .map(|i| random.signed(BITS) as f32 * (SCALES[i % SCALES.len()] as f32).exp2())
        .collect();
    fp16_average(values)
}

/// An fp16 matmul that adds its own output (librocketnpu's accumulation, but in place).
pub(crate) fn in_place() -> anyhow::Result<Experiment> {
    const ROWS: u32 = 16;
    const ATOM: u32 = 16;
    let mut experiment = matmul(TaskType::Fp16ToFp16, ROWS, 32, &[32]).experiment()?;
    let task = experiment.task();
    operand(task, FlyingOperation::Add)?;
    task.put_address::<dpu_rdma::SrcBaseAddr>(OUT.at(0));
    task.put_address::<dpu_rdma::EwBaseAddr>(OUT.at(ATOM * ROWS));
    put! { task;
        dpu_rdma::EwSurfStride { ew_surf_stride: ROWS }
        dpu_rdma::SurfNotch { surf_notch_addr: ROWS }
        dpu_rdma::EwSurfNotch { ew_surf_notch: ROWS }
    }
    let mode = task
        .value::<dpu_rdma::FeatureModeCfg>()
        .with_mrdma_disable(0)?
        .with_mrdma_fp16tofp32_en(0)?
        .with_proc_precision(FP16)?
        .with_in_precision(FP16)?;
    // Both engines read the same data.
    combined(task, mode)?;
    Ok(experiment)
}
