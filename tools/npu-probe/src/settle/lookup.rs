// SPDX-License-Identifier: MIT OR Apache-2.0
//! An activation by look-up tables, as librocketnpu computes a sigmoid.

use half::f16;
use rknpu_regcmd::RegisterSet;
use rknpu_regcmd::regs::dpu;

use super::Experiment;
use super::flying::{dpu_registers, fp16_bytes, program, reader};
use super::recipe::single;

/// Index steps of one unit of the argument.
const STEPS_PER_UNIT: f32 = 2596.0;
/// Entries of a table; the last is there to interpolate towards.
const ENTRIES: i32 = 513;
/// Index steps between entries, and its logarithm.
const STEP: i32 = 32;
const STEP_LOG2: u32 = 5;
/// Index of the ends of both tables.
const END: i32 = (ENTRIES - 1) * STEP;
/// Entries are fractions of 2^15.
const FRACTION_BITS: u32 = 15;
/// ALU_ALGO: addition.
const ADD: u32 = 2;
/// fp32 minus zero: added, it changes nothing.
const MINUS_ZERO: u32 = 0x8000_0000;
/// LUT_LO_LE_MUX as activation programs write it.
const MUX: u32 = 2;

/// Atoms of arguments.
const PIXELS: u32 = 8;

fn entry(index: i32) -> anyhow::Result<u32> {
    let scale = f64::from(f16::from_f32(STEPS_PER_UNIT));
    let argument = f64::from(index) / scale;
    let one = f64::from(1 << FRACTION_BITS);
    let value = (one / (1.0 + (-argument).exp())).round();
    Ok(value.clamp(0.0, one - 1.0) as u32)
}

/// 64 arguments between table entries, most of them between index steps.
pub(super) fn lut_index() -> anyhow::Result<Experiment> {
    let mut dpu = dpu_registers(PIXELS)?;
    dpu.set(
        dpu::BnCfg::new()
            .with_bn_relu_bypass(1)?
            .with_bn_alu_algo(ADD)?,
    )
    .set(dpu::BnAluCfg::new().with_bn_alu_operand(MINUS_ZERO)?)
    .set(dpu::BnMulCfg::new().with_bn_mul_operand(f16::from_f32(STEPS_PER_UNIT).to_bits().into())?)
    .set(
        dpu::EwCfg::new()
            .with_ew_op_cvt_bypass(1)?
            .with_ew_relu_bypass(1)?,
    )
    .set(dpu::OutCvtOffset::new().with_out_cvt_offset(1)?)
    .set(
        dpu::OutCvtShift::new()
            .with_cvt_type(1)?
            .with_minus_exp(FRACTION_BITS)?,
    )
    .set(
        dpu::LutCfg::new()
            .with_lut_lo_le_mux(MUX)?
            .with_lut_oflow_priority(1)?
            .with_lut_hybrid_priority(1)?,
    )
    .set(
        dpu::LutInfo::new()
            .with_lut_le_index_select(STEP_LOG2)?
            .with_lut_lo_index_select(STEP_LOG2)?,
    )
    .set(dpu::LutLeStart::new().with_lut_le_start(-END)?)
    .set(dpu::LutLoEnd::new().with_lut_lo_end(END)?);
    let mut rdma = RegisterSet::new();
    reader(&mut rdma, PIXELS)?;
    let mut task = program(&dpu, &rdma);

    // The tables go first, and nothing may touch their registers again.
    task.leave_out::<dpu::LutAccessCfg>()
        .leave_out::<dpu::LutAccessData>();
    let mut words = Vec::new();
    for (table, start) in [(0, -END), (1, 0)] {
        words.push(single(
            dpu::LutAccessCfg::new()
                .with_lut_table_id(table)?
                .with_lut_access_type(1)?,
        ));
        for number in 0..ENTRIES {
            let value = entry(start + number * STEP)?;
            words.push(single(
                dpu::LutAccessData::new().with_lut_access_data(value)?,
            ));
        }
    }
    task.begin_with(words);
    let arguments = (0..PIXELS * 8).map(|i| i as f32 * 0.0137);
    let inputs = vec![fp16_bytes(arguments)];
    let output = inputs[0].len();
    Ok(Experiment::of(inputs, output, task))
}
