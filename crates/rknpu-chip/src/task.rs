// SPDX-License-Identifier: MIT OR Apache-2.0
//! One task: what the enable word starts.

use rknpu_regcmd::regs::dpu;
use rknpu_regcmd::task::{Task, TaskError};

pub(crate) use rknpu_regcmd::task::FLYING;
use rknpu_regcmd::{EnableMask, RegisterFile};

use super::Effect;
use super::check::shown;
use super::conv::{self, Machine};
use super::trap::Stop;
use super::{flying, ppu};

/// OUTPUT_MODE: to memory.
const OUTPUT_MEMORY: u32 = 2;
/// OUTPUT_MODE: to the PPU.
const OUTPUT_PPU: u32 = 1;

/// Runs the blocks of `enable` with the registers they execute.
pub(crate) fn run(
    machine: &mut Machine<'_>,
    regs: &RegisterFile,
    enable: EnableMask,
) -> Result<(), Stop> {
    for task in Task::all(regs, enable) {
        if matches!(task, Ok(Task::Conv(_) | Task::Flying { .. })) {
            output(machine, regs)?;
        }
        match task {
            Ok(Task::Conv(task)) => conv::run(machine, regs, enable, &task)?,
            Ok(Task::Flying { reads, output }) => flying::run(machine, regs, &reads, output)?,
            Ok(Task::Pool(pool)) => ppu::run(machine, regs, &pool)?,
            Err(why) => wait(machine, enable, why)?,
        }
    }
    Ok(())
}

/// A set of blocks of which none ends the task.
fn wait(machine: &mut Machine<'_>, enable: EnableMask, why: TaskError) -> Result<(), Stop> {
    machine.report.note(
        "H05-enable-mask",
        Effect::Hang,
        &[("enable", enable.bits())],
        why.to_string(),
        "0x0D convolution, 0x1D with DPU_RDMA, 0x18 flying, 0x60 pooling",
    )
}

/// Where the DPU's output goes: only memory is modelled.
fn output(machine: &mut Machine<'_>, regs: &RegisterFile) -> Result<(), Stop> {
    let mode = regs.get::<dpu::FeatureModeCfg>().output_mode();
    let show = [shown::<dpu::FeatureModeCfg>(regs)];
    if mode & OUTPUT_PPU != 0 || mode & OUTPUT_MEMORY == 0 {
        return machine.report.note(
            "H05-output-mode",
            Effect::Hang,
            &show,
            format!("OUTPUT_MODE {mode}: only output to memory is modelled"),
            "set output_mode to 2",
        );
    }
    Ok(())
}
