// SPDX-License-Identifier: MIT OR Apache-2.0
//! One task: what the enable word starts.

use rknpu_regcmd::rules::ENABLE_MASK;
use rknpu_regcmd::task::Task;

pub(crate) use rknpu_regcmd::task::FLYING;
use rknpu_regcmd::{EnableMask, RegisterFile};

use super::conv::{self, CoreParts};
use super::trap::Stop;
use super::{flying, ppu};

/// Runs the blocks of `enable` with the registers they execute.
pub(crate) fn run(
    machine: &mut CoreParts<'_>,
    regs: &RegisterFile,
    enable: EnableMask,
) -> Result<(), Stop> {
    for task in Task::all(regs, enable) {
        match task {
            Ok(Task::Conv(task)) => conv::run(machine, regs, enable, &task)?,
            Ok(Task::Flying { reads, output }) => flying::run(machine, regs, &reads, output)?,
            Ok(Task::Pool(pool)) => ppu::run(machine, regs, &pool)?,
            Err(why) => {
                let values = format!("{why}: mask {:#x}", enable.bits());
                machine.report.broken(&ENABLE_MASK, regs, &values)?;
            }
        }
    }
    Ok(())
}
