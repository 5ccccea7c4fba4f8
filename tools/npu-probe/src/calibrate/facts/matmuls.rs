// SPDX-License-Identifier: MIT OR Apache-2.0
//! Experiments with matmuls.
//!
//! Operands are random, with sums that are exact in every order, so every difference comes
//! from the fact in question.

use rknpu_regcmd::regs::{cna, core, dpu};
use rknpu_regcmd::{ChipProfile, FieldRangeError, MatmulTask, MatmulType, Precision};

use crate::experiment::operands::{fp16s, int8s, int16s};
use crate::experiment::{Experiment, OUT, TaskTemplate, change, input, put};

/// The matmul that rknpu-regcmd builds: inputs 0 and 1, to the output.
pub(super) fn matmul(ty: MatmulType, (m, k, n): (u32, u32, u32)) -> anyhow::Result<TaskTemplate> {
    let task = MatmulTask {
        ty,
        m,
        k,
        n,
        a: input(0).at(0),
        b: input(1).at(0),
        c: OUT.at(0),
    };
    Ok(TaskTemplate::of(&task.program(&ChipProfile::RK3588)?))
}

/// A program, its operands, and the bytes of its sums of 32 bits.
pub(super) type KnownMatmul = (TaskTemplate, Vec<Vec<u8>>, usize);

/// Random operands of one kind, for A and B.
pub(super) fn inputs(
    random: fn(usize, u64) -> Vec<u8>,
    (m, k, n): (u32, u32, u32),
) -> Vec<Vec<u8>> {
    vec![random((m * k) as usize, 1), random((n * k) as usize, 2)]
}

/// An int8 matmul that is known to work, to be changed.
pub(super) fn int8_matmul(shape @ (m, _, n): (u32, u32, u32)) -> anyhow::Result<KnownMatmul> {
    let template = matmul(MatmulType::Int8ToInt32, shape)?;
    Ok((template, inputs(int8s, shape), (m * n * 4) as usize))
}

/// An fp16 matmul that is known to work, to be changed.
pub(super) fn fp16_matmul(shape @ (m, _, n): (u32, u32, u32)) -> anyhow::Result<KnownMatmul> {
    let template = matmul(MatmulType::Fp16ToFp32, shape)?;
    Ok((template, inputs(fp16s, shape), (m * n * 4) as usize))
}

const INT16: u32 = Precision::Int16.code();

/// An int16 matmul: an fp16 one, which has the same bytes and groups, changed.
pub(super) fn int16_matmul(shape: (u32, u32, u32)) -> anyhow::Result<KnownMatmul> {
    let (mut task, _, output) = fp16_matmul(shape)?;
    change! { task;
        cna::ConvCon1 { in_precision: INT16, proc_precision: INT16 }
        core::MiscCfg { proc_precision: INT16 }
        dpu::DataFormat {
            proc_precision: INT16, in_precision: INT16, out_precision: Precision::Int32.code()
        }
    }
    Ok((task, inputs(int16s, shape), output))
}

/// Sizes of the int8 matmul that experiments change.
const SMALL: (u32, u32, u32) = (4, 32, 32);

pub(super) fn small() -> anyhow::Result<KnownMatmul> {
    int8_matmul(SMALL)
}

/// Sets the writer's groups: atoms per pixel, and lines.
pub(super) fn groups(
    task: &mut TaskTemplate,
    atoms: u32,
    rows: u32,
) -> Result<(), FieldRangeError> {
    let size_e = atoms - 1;
    change!(task; dpu::BsOwCfg { size_e_0: size_e, size_e_1: size_e, size_e_2: size_e });
    put!(task; dpu::SurfaceAdd { surf_add: atoms * rows });
    Ok(())
}

/// Sums shifted right by one bit: every second one is a tie, half of these negative.
pub(super) fn wide_rounding() -> anyhow::Result<Experiment> {
    let (mut task, inputs, output) = small()?;
    change!(task; dpu::OutCvtShift { out_cvt_shift: 1, cvt_type: 1 });
    Ok(Experiment::of(inputs, output, task))
}

/// The same with CVT_ROUND 1, the other rule for ties, and CVT_TYPE 0, which is
/// uncontested.
pub(super) fn output_ties() -> anyhow::Result<Experiment> {
    let (mut task, inputs, output) = small()?;
    change!(task; dpu::OutCvtShift { out_cvt_shift: 1, cvt_round: 1 });
    Ok(Experiment::of(inputs, output, task))
}

/// Sums times a scale of 0x8000, whose top bit may be a sign.
pub(super) fn output_scale() -> anyhow::Result<Experiment> {
    let (mut task, inputs, output) = small()?;
    change! { task;
        dpu::OutCvtScale { out_cvt_scale: i16::MIN.into() }
        dpu::OutCvtShift { out_cvt_shift: 15 }
    }
    Ok(Experiment::of(inputs, output, task))
}

/// int8 results of one group of 32 channels and half of another.
pub(super) fn partial_group() -> anyhow::Result<Experiment> {
    const ROWS: u32 = 4;
    const COLUMNS: u32 = 64;
    const WRITTEN: u32 = 48;
    /// Atoms per pixel of 32 bytes.
    const GROUP_ATOMS: u32 = 2;
    let (mut task, inputs, _) = int8_matmul((ROWS, 32, COLUMNS))?;
    change! { task;
        core::MiscCfg { qd_en: 1 }
        dpu::DataFormat { out_precision: Precision::Int8.code() }
    }
    put! { task;
        core::DataoutSize1 { dataout_channel: WRITTEN - 1 }
        dpu::DataCubeChannel { channel: WRITTEN - 1, orig_channel: WRITTEN - 1 }
        dpu::WdmaSize0 { channel_wdma: WRITTEN - 1 }
    }
    groups(&mut task, GROUP_ATOMS, ROWS)?;
    Ok(Experiment::of(inputs, (ROWS * COLUMNS) as usize, task))
}

/// A tf32 matmul; its operands take the bytes of an fp16 matmul of twice the depth.
pub(super) fn tf32_operand() -> anyhow::Result<Experiment> {
    const DEPTH: u32 = 16;
    const COLUMNS: u32 = 16;
    const ROWS: u32 = 4;
    const TF32: u32 = Precision::Tf32.code();
    const FP32: u32 = Precision::Fp32.code();
    let (mut task, ..) = fp16_matmul((ROWS, 2 * DEPTH, COLUMNS))?;
    change! { task;
        cna::ConvCon1 { in_precision: TF32, proc_precision: TF32 }
        core::MiscCfg { proc_precision: TF32 }
        dpu::DataFormat { proc_precision: FP32, in_precision: FP32 }
    }
    put! { task;
        cna::DataSize1 { datain_channel: DEPTH, datain_channel_real: DEPTH - 1 }
        cna::FcDataSize1 { dma_channel: DEPTH }
    }
    // The result is 1 if the operand is cut to 10 mantissa bits, 1 + 2^-10 if rounded,
    // else more.
    let operand = 1.0 + (-11_f32).exp2() + (-20_f32).exp2();
    let fill = |value: f32, rows: u32| value.to_le_bytes().repeat((rows * DEPTH) as usize);
    let inputs = vec![fill(operand, ROWS), fill(1.0, COLUMNS)];
    Ok(Experiment::of(inputs, (ROWS * COLUMNS * 4) as usize, task))
}

/// An int16 matmul with QD_EN 0.
pub(super) fn int16_without_sum() -> anyhow::Result<Experiment> {
    let (mut task, inputs, output) = int16_matmul(SMALL)?;
    change!(task; core::MiscCfg { qd_en: 0 });
    Ok(Experiment::of(inputs, output, task))
}

/// Matmuls of two rows, then three: fewer than a group of lines. The surface stride follows from
/// the address formula.
pub(super) fn short_height() -> anyhow::Result<Experiment> {
    const SHAPE: (u32, u32, u32) = (4, 64, 16);
    /// Atoms per pixel of 16 columns of fp32.
    const GROUP_ATOMS: u32 = 4;
    let short = |rows: u32| -> anyhow::Result<TaskTemplate> {
        let (mut task, ..) = fp16_matmul(SHAPE)?;
        change! { task;
            cna::ConvCon2 { feature_grains: rows + 1 }
            cna::DataSize0 { datain_height: rows }
            cna::DataSize3 { dataout_atomics: rows }
            cna::FcDataSize0 { dma_height: rows }
        }
        put! { task;
            cna::DmaCon2 { surf_stride: rows as i32 - SHAPE.0 as i32 }
            core::DataoutSize0 { dataout_height: rows - 1 }
            dpu::DstSurfStride { dst_surf_stride: rows }
            dpu::DataCubeHeight { height: rows - 1 }
            dpu::WdmaSize1 { height_wdma: rows - 1 }
            dpu::SurfaceAdd { surf_add: GROUP_ATOMS * rows }
        }
        Ok(task)
    };
    const MOST: u32 = 3;
    let inputs = inputs(fp16s, (MOST, SHAPE.1, SHAPE.2));
    let output = (MOST * SHAPE.2 * 4) as usize;
    let tasks = [short(2)?, short(MOST)?];
    Ok(Experiment::of_each(inputs, output, tasks).spoiled_on(&["garbage"]))
}

/// 144 lines of 224 bytes: 31.5 KiB if packed densely, 36 KiB in units of 64 bytes.
pub(super) fn line_rounding() -> anyhow::Result<Experiment> {
    let (mut task, inputs, output) = int8_matmul((144, 224, 32))?;
    change!(task; cna::CbufCon0 { data_bank: 1 });
    Ok(Experiment::of(inputs, output, task).spoiled_on(&["entries"]))
}

/// Half as many grains as lines, for several depths. At depth 3840 too few grains failed
/// (E-grains).
pub(super) fn few_grains() -> anyhow::Result<Experiment> {
    const ROWS: u32 = 16;
    const COLUMNS: u32 = 16;
    const DEPTHS: [u32; 3] = [64, 1024, 3840];
    let few = |depth| -> anyhow::Result<TaskTemplate> {
        let (mut task, ..) = fp16_matmul((ROWS, depth, COLUMNS))?;
        change!(task; cna::ConvCon2 { feature_grains: ROWS / 2 });
        Ok(task)
    };
    let [.., deepest] = DEPTHS;
    let (_, inputs, output) = fp16_matmul((ROWS, deepest, COLUMNS))?;
    let tasks = DEPTHS.into_iter().map(few).collect::<Result<Vec<_>, _>>()?;
    Ok(Experiment::of_each(inputs, output, tasks).spoiled_on(&["garbage"]))
}

/// Two matmuls. Of the first, 16 kernels take 8 banks and 32 take 16; of the second, 32
/// take 5 and all 128 take 20. There are 12 banks, one of them for features.
pub(super) fn weight_room() -> anyhow::Result<Experiment> {
    const ROWS: u32 = 4;
    let features = fp16s((ROWS * 8192) as usize, 1);
    let weights = fp16s(128 * 2560, 2); // the larger of the two
    let output = (ROWS * 128 * 4) as usize;
    let tasks = [deep_matmul(ROWS, 8192, 32)?, deep_matmul(ROWS, 2560, 128)?];
    Ok(Experiment::of_each(vec![features, weights], output, tasks))
}

/// An fp16 matmul whose depth or weights rknpu-regcmd refuses.
fn deep_matmul(rows: u32, depth: u32, columns: u32) -> anyhow::Result<TaskTemplate> {
    const BANKS: u32 = 12;
    const BANK_BYTES: u32 = 32 << 10;
    const ENTRY_BYTES: u32 = 64;
    let row_bytes = 2 * depth;
    let data_banks = (rows * row_bytes).div_ceil(BANK_BYTES);
    let (mut task, ..) = fp16_matmul((rows, 32, columns))?;
    put! { task;
        cna::DataSize1 { datain_channel: depth, datain_channel_real: depth - 1 }
        cna::FcDataSize1 { dma_channel: depth }
        cna::WeightSize0 { weight_bytes: row_bytes * columns }
        cna::WeightSize1 { weight_bytes_per_kernel: row_bytes }
        cna::CbufCon1 { data_entries: row_bytes / ENTRY_BYTES }
    }
    change!(task; cna::CbufCon0 { data_bank: data_banks, weight_bank: BANKS - data_banks });
    Ok(task)
}
