// SPDX-License-Identifier: MIT OR Apache-2.0
//! Experiments with look-up tables, based on librocketnpu's program for a
//! sigmoid.

use half::f16;
use rknpu_regcmd::regs::dpu;

use super::flying::{reader, writer};
use crate::experiment::matmul::fp16_bytes;
use crate::experiment::{ALU_ADD, Experiment, TaskTemplate, put, word_of};

/// Index steps per unit of the argument.
const STEPS_PER_UNIT: f32 = 2596.0;
/// Entries of a table; the last one serves only for interpolation.
const ENTRIES: i32 = 513;
/// Index steps between entries, and their binary logarithm.
const STEP: i32 = 32;
const STEP_LOG2: u32 = 5;
/// Absolute index at the outer ends of both tables.
const END: i32 = (ENTRIES - 1) * STEP;
/// Entries are fractions of 2^15.
const FRACTION_BITS: u32 = 15;
/// fp32 minus zero; adding it changes nothing.
const MINUS_ZERO: u32 = 0x8000_0000;
/// LUT_LO_LE_MUX as activation programs write it.
const MUX: u32 = 2;

/// Atoms of arguments.
const PIXELS: u32 = 8;

/// A function as registers and tables.
struct Table {
    /// Index steps per unit of the argument.
    scale: f32,
    /// The table entry at an index.
    entry: fn(i32) -> i16,
    /// OUT_CVT_OFFSET and MINUS_EXP.
    output: (i32, u32),
    /// Scale and shift below LE and above LO.
    slopes: [(i32, u32); 2],
}

impl Table {
    fn task(&self) -> anyhow::Result<TaskTemplate> {
        let (offset, minus_exp) = self.output;
        let [below, above] = self.slopes;
        let mut task = writer(PIXELS)?;
        put! { task;
            dpu::BnCfg { bn_relu_bypass: 1, bn_alu_algo: ALU_ADD }
            dpu::BnAluCfg { bn_alu_operand: MINUS_ZERO }
            dpu::BnMulCfg { bn_mul_operand: f16::from_f32(self.scale).to_bits().into() }
            dpu::EwCfg { ew_op_cvt_bypass: 1, ew_relu_bypass: 1 }
            dpu::OutCvtOffset { out_cvt_offset: offset }
            dpu::OutCvtShift { cvt_type: 1, minus_exp: minus_exp }
            dpu::LutCfg { lut_lo_le_mux: MUX, lut_oflow_priority: 1, lut_hybrid_priority: 1 }
            dpu::LutInfo { lut_le_index_select: STEP_LOG2, lut_lo_index_select: STEP_LOG2 }
            dpu::LutLeStart { lut_le_start: -END }
            dpu::LutLoEnd { lut_lo_end: END }
            dpu::LutLeSlopeScale { lut_le_slope_uflow_scale: below.0 }
            dpu::LutLeSlopeShift { lut_le_slope_uflow_shift: below.1 }
            dpu::LutLoSlopeScale { lut_lo_slope_oflow_scale: above.0 }
            dpu::LutLoSlopeShift { lut_lo_slope_oflow_shift: above.1 }
        }
        reader(&mut task, PIXELS)?;
        // The tables are written first, and no later word may write their
        // registers.
        task.leave_out::<dpu::LutAccessCfg>()
            .leave_out::<dpu::LutAccessData>();
        let mut words = Vec::new();
        for (table, start) in [(0, -END), (1, 0)] {
            let access = dpu::LutAccessCfg::new().with_lut_table_id(table)?;
            words.push(word_of(access.with_lut_access_type(1)?));
            for number in 0..ENTRIES {
                let value = (self.entry)(start + number * STEP).cast_unsigned();
                let data = dpu::LutAccessData::new().with_lut_access_data(value.into())?;
                words.push(word_of(data));
            }
        }
        task.begin_with(words);
        Ok(task)
    }
}

/// The table entries of librocketnpu's sigmoid.
fn sigmoid(index: i32) -> i16 {
    let scale = f64::from(f16::from_f32(STEPS_PER_UNIT));
    let one = f64::from(1 << FRACTION_BITS);
    let value = one / (1.0 + (-f64::from(index) / scale).exp());
    value.round().clamp(0.0, one - 1.0) as i16
}

/// 64 arguments between table entries, most of them also between index steps.
pub(crate) fn lut_index() -> anyhow::Result<Experiment> {
    let table = Table {
        scale: STEPS_PER_UNIT,
        entry: sigmoid,
        output: (1, FRACTION_BITS),
        slopes: [(0, 0); 2],
    };
    let arguments = (0..PIXELS * 8).map(|i| i as f32 * 0.0137);
    let inputs = vec![fp16_bytes(arguments)];
    let output = inputs[0].len();
    Ok(Experiment::of(inputs, output, vec![vec![table.task()?]]))
}

/// Rises by 1 per step below 0, and by 1 per 16 steps above.
fn rising(index: i32) -> i16 {
    let value = if index < 0 { index } else { index / 16 };
    value as i16
}

/// Arguments that are indices: halves, steps between entries, and values far
/// beyond both ends. The first table has a negative first entry and a positive
/// last one; the second the opposite.
pub(crate) fn lut_ends() -> anyhow::Result<Experiment> {
    let arguments: [f32; (PIXELS * 8) as usize / 2] = [
        0.5, 1.5, 2.5, 3.5, 1.0, 2.0, 7.0, 8.0, 15.0, 16.0, 17.0, 24.0, 31.0, 32.0, 33.0, 47.0,
        16376.0, 16384.0, 16400.0, 16416.0, 18000.0, 20000.0, 24000.0, 24576.0, 25000.0, 30000.0,
        40000.0, 49152.0, 50000.0, 60000.0, 65000.0, 65504.0,
    ];
    let [one, other] = [rising, |index| -rising(index)].map(|entry| Table {
        scale: 1.0,
        entry,
        output: (0, 0),
        slopes: [(1, 1), (-1, 3)],
    });
    let both = arguments.into_iter().flat_map(|x| [x, -x]);
    let inputs = vec![fp16_bytes(both)];
    let output = inputs[0].len();
    let jobs = vec![vec![one.task()?], vec![other.task()?]];
    Ok(Experiment::of(inputs, output, jobs))
}
