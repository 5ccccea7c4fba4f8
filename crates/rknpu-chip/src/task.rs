// SPDX-License-Identifier: MIT OR Apache-2.0
//! One task: what the enable word starts.

use rknpu_regcmd::task::{Task, TaskError};

pub(crate) use rknpu_regcmd::task::FLYING;
use rknpu_regcmd::{EnableMask, RegisterFile};

use super::Effect;
use super::conv::{self, Machine};
use super::trap::Stop;
use super::{flying, ppu};

/// Runs the blocks of `enable` with the registers they execute.
pub(crate) fn run(
    machine: &mut Machine<'_>,
    regs: &RegisterFile,
    enable: EnableMask,
) -> Result<(), Stop> {
    for task in Task::all(regs, enable) {
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
