// SPDX-License-Identifier: MIT OR Apache-2.0
//! Experiments with matmuls. Every difference comes from the fact in question, since all
//! sums are exact in every order.

use rknpu_regcmd::regs::{cna, core, dpu};
use rknpu_regcmd::task::CONVOLUTION;
use rknpu_regcmd::{EnableMask, FieldRangeError, Precision, Program, Register};

use crate::experiment::matmul::{fp16, fp16s, int8, int16s};
use crate::experiment::{Experiment, OUT, TaskTemplate, change, put, word_of};

const INT16: u32 = Precision::Int16.code();

/// An int16 matmul: an fp16 one, which has the same bytes and groups, changed.
pub(crate) fn int16_matmul(rows: u32, depth: u32, columns: u32) -> anyhow::Result<Experiment> {
    let mut experiment = fp16(rows, depth, &[columns]).experiment()?;
    change! { experiment.task();
        cna::ConvCon1 { in_precision: INT16, proc_precision: INT16 }
        core::MiscCfg { proc_precision: INT16 }
        dpu::DataFormat {
            proc_precision: INT16, in_precision: INT16, out_precision: Precision::Int32.code()
        }
    }
    let operands = [(rows, 1), (columns, 2)];
    let operands = operands.map(|(lines, seed)| int16s((lines * depth) as usize, seed));
    experiment.inputs = operands.into();
    Ok(experiment)
}

/// The int8 matmul that experiments change.
pub(crate) fn small() -> anyhow::Result<Experiment> {
    int8(4, 32, &[32]).without_spare_bank().experiment()
}

/// Sets the writer's groups: atoms per pixel, and lines.
pub(crate) fn groups(
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
pub(crate) fn wide_rounding() -> anyhow::Result<Experiment> {
    let mut experiment = small()?;
    change!(experiment.task(); dpu::OutCvtShift { out_cvt_shift: 1, cvt_type: 1 });
    Ok(experiment)
}

/// The same with CVT_ROUND 1, the other rule for ties, and CVT_TYPE 0, which is
/// uncontested.
pub(crate) fn output_ties() -> anyhow::Result<Experiment> {
    let mut experiment = small()?;
    change!(experiment.task(); dpu::OutCvtShift { out_cvt_shift: 1, cvt_round: 1 });
    Ok(experiment)
}

/// Sums times a scale of 0x8000, whose top bit may be a sign.
pub(crate) fn output_scale() -> anyhow::Result<Experiment> {
    let mut experiment = small()?;
    change! { experiment.task();
        dpu::OutCvtScale { out_cvt_scale: i16::MIN.into() }
        dpu::OutCvtShift { out_cvt_shift: 15 }
    }
    Ok(experiment)
}

/// int8 results of one group of 32 channels and half of another.
pub(crate) fn partial_group() -> anyhow::Result<Experiment> {
    const ROWS: u32 = 4;
    const COLUMNS: u32 = 64;
    const WRITTEN: u32 = 48;
    /// Atoms per pixel of 32 bytes.
    const GROUP_ATOMS: u32 = 2;
    let matmul = int8(ROWS, 32, &[COLUMNS]).without_spare_bank();
    let mut experiment = matmul.experiment()?;
    experiment.output = (ROWS * COLUMNS) as usize;
    let task = experiment.task();
    change! { task;
        core::MiscCfg { qd_en: 1 }
        dpu::DataFormat { out_precision: Precision::Int8.code() }
    }
    put! { task;
        core::DataoutSize1 { dataout_channel: WRITTEN - 1 }
        dpu::DataCubeChannel { channel: WRITTEN - 1, orig_channel: WRITTEN - 1 }
        dpu::WdmaSize0 { channel_wdma: WRITTEN - 1 }
    }
    groups(task, GROUP_ATOMS, ROWS)?;
    Ok(experiment)
}

/// A tf32 matmul; its operands take the bytes of an fp16 matmul of twice the depth.
pub(crate) fn tf32_operand() -> anyhow::Result<Experiment> {
    const DEPTH: u32 = 16;
    const COLUMNS: u32 = 16;
    const ROWS: u32 = 4;
    const TF32: u32 = Precision::Tf32.code();
    const FP32: u32 = Precision::Fp32.code();
    let mut experiment = fp16(ROWS, 2 * DEPTH, &[COLUMNS]).experiment()?;
    let task = experiment.task();
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
    experiment.inputs = vec![fill(operand, ROWS), fill(1.0, COLUMNS)];
    Ok(experiment)
}

/// An int16 matmul with QD_EN 0.
pub(crate) fn int16_without_sum() -> anyhow::Result<Experiment> {
    let mut experiment = int16_matmul(4, 32, 32)?;
    change!(experiment.task(); core::MiscCfg { qd_en: 0 });
    Ok(experiment)
}

/// Matmuls of two rows, then three: fewer than a group of lines. The surface stride follows from
/// the address formula.
pub(crate) fn short_height() -> anyhow::Result<Experiment> {
    const ROWS: u32 = 4;
    const DEPTH: u32 = 64;
    const COLUMNS: u32 = 16;
    const MOST: u32 = 3;
    /// Atoms per pixel of 16 columns of fp32.
    const GROUP_ATOMS: u32 = 4;
    let mut experiment = fp16(ROWS, DEPTH, &[COLUMNS]).experiment()?;
    let whole = experiment.task();
    let short = |rows: u32| -> anyhow::Result<_> {
        let mut task = whole.clone();
        change! { task;
            cna::ConvCon2 { feature_grains: rows + 1 }
            cna::DataSize0 { datain_height: rows }
            cna::DataSize3 { dataout_atomics: rows }
            cna::FcDataSize0 { dma_height: rows }
        }
        put! { task;
            cna::DmaCon2 { surf_stride: rows as i32 - ROWS as i32 }
            core::DataoutSize0 { dataout_height: rows - 1 }
            dpu::DstSurfStride { dst_surf_stride: rows }
            dpu::DataCubeHeight { height: rows - 1 }
            dpu::WdmaSize1 { height_wdma: rows - 1 }
            dpu::SurfaceAdd { surf_add: GROUP_ATOMS * rows }
        }
        Ok(vec![task])
    };
    experiment.jobs = vec![short(2)?, short(MOST)?];
    experiment.inputs[0].truncate((MOST * DEPTH * 2) as usize);
    experiment.output = (MOST * COLUMNS * 4) as usize;
    experiment.spoiled = &["garbage"];
    Ok(experiment)
}

/// 144 lines of 224 bytes: 31.5 KiB if packed densely, 36 KiB in units of 64 bytes.
pub(crate) fn line_rounding() -> anyhow::Result<Experiment> {
    let matmul = int8(144, 224, &[32]).without_spare_bank();
    let mut experiment = matmul.experiment()?;
    change!(experiment.task(); cna::CbufCon0 { data_bank: 1 });
    experiment.spoiled = &["entries"];
    Ok(experiment)
}

/// Half as many grains as lines, for several depths. At depth 3840 too few grains failed
/// (E-grains).
pub(crate) fn few_grains() -> anyhow::Result<Experiment> {
    const ROWS: u32 = 16;
    let few = |depth| -> anyhow::Result<Experiment> {
        let mut experiment = fp16(ROWS, depth, &[16]).experiment()?;
        change!(experiment.task(); cna::ConvCon2 { feature_grains: ROWS / 2 });
        Ok(experiment)
    };
    // The operands of the deepest are long enough for all.
    let mut experiment = few(3840)?;
    let shallower = [few(64)?.jobs, few(1024)?.jobs];
    experiment.jobs.splice(0..0, shallower.concat());
    experiment.spoiled = &["garbage"];
    Ok(experiment)
}

/// Two matmuls. Of the first, 16 kernels take 8 banks and 32 take 16; of the second, 32
/// take 5 and all 128 take 20. There are 12 banks, one of them for features.
pub(crate) fn weight_room() -> anyhow::Result<Experiment> {
    const ROWS: u32 = 4;
    let features = fp16s((ROWS * 8192) as usize, 1);
    let weights = fp16s(128 * 2560, 2); // the larger of the two
    let output = (ROWS * 128 * 4) as usize;
    let jobs = [deep_matmul(ROWS, 8192, 32)?, deep_matmul(ROWS, 2560, 128)?];
    Ok(Experiment::of(
        vec![features, weights],
        output,
        jobs.concat(),
    ))
}

/// An fp16 matmul whose depth or weights rknpu-regcmd refuses.
fn deep_matmul(rows: u32, depth: u32, columns: u32) -> anyhow::Result<Vec<Vec<TaskTemplate>>> {
    const BANKS: u32 = 12;
    const BANK_BYTES: u32 = 32 << 10;
    const ENTRY_BYTES: u32 = 64;
    let row_bytes = 2 * depth;
    let data_banks = (rows * row_bytes).div_ceil(BANK_BYTES);
    let mut experiment = fp16(rows, 32, &[columns]).experiment()?;
    let task = experiment.task();
    put! { task;
        cna::DataSize1 { datain_channel: depth, datain_channel_real: depth - 1 }
        cna::FcDataSize1 { dma_channel: depth }
        cna::WeightSize0 { weight_bytes: row_bytes * columns }
        cna::WeightSize1 { weight_bytes_per_kernel: row_bytes }
        cna::CbufCon1 { data_entries: row_bytes / ENTRY_BYTES }
    }
    change!(task; cna::CbufCon0 { data_bank: data_banks, weight_bank: BANKS - data_banks });
    Ok(experiment.jobs)
}

/// S_POINTER as programs write it: both pointers toggle.
const POINTER: u32 = 0xe;

/// Enough jobs to reach every core that a file uses: the scheduler moves an idle file to
/// another core with each job.
const ROUND: usize = 4;

/// A program that changes only the output address. Two whole programs before it set both
/// register groups, so it runs with their registers, if it runs.
pub(crate) fn delta_program() -> anyhow::Result<Experiment> {
    let mut experiment = small()?;
    let words = vec![
        word_of(dpu::SPointer::from_bits(POINTER)),
        word_of(dpu::DstBaseAddr::new()),
    ];
    let address = (1, OUT.at(experiment.output as u32));
    let delta = Program::of_words(words, vec![address], CONVOLUTION);
    let whole = experiment.task().clone();
    experiment.jobs[0].extend([whole, TaskTemplate::of(&delta)]);
    experiment.output *= 2;
    Ok(experiment)
}

/// Checks plain matmuls on every core that a file uses.
pub(crate) fn health() -> anyhow::Result<Experiment> {
    let mut experiment = small()?;
    experiment.jobs = vec![experiment.jobs.concat(); ROUND];
    Ok(experiment)
}

/// A job that hangs, since it does not start the DPU, and good jobs behind it.
pub(crate) fn wedge() -> anyhow::Result<Experiment> {
    let mut experiment = health()?;
    let mut hang = experiment.task().clone();
    hang.enable(EnableMask::CNA | EnableMask::CORE);
    experiment.jobs.insert(0, vec![hang]);
    experiment.unobserved = 1;
    experiment.is_unordered = true;
    Ok(experiment)
}
