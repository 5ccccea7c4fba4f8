// SPDX-License-Identifier: MIT OR Apache-2.0
//! PPU and PPU_RDMA: pooling of a cube in memory, of fp16, int8 or int16.
//!
//! Window of output (oy, ox): input `oy*SY - TOP + ky`, `ox*SX - LEFT + kx`. Maximum and
//! minimum take the pad value outside the input. Of a NaN and a number they take the
//! number (not characterised, but every host has to do the same). The average counts
//! padding as zeros. It is summed in float64, multiplied by both reciprocals and 2^-32,
//! and rounded once to fp16 (E-pooling-fp16). Integers use reciprocals of 16 fractional
//! bits, and round the result half to even (E-pooling-int8).

mod extremes;
mod pooling;

use rknpu_regcmd::RegisterFile;
use rknpu_regcmd::rules::POOLING_PRECISION;
use rknpu_regcmd::task::{POOLING, PoolTask, Task};

use pooling::{Method, Pooling};

use super::check;
use super::core_parts::CoreParts;
use super::precision::Precision;
use super::trap::Stop;

/// Runs the task that `regs` describe.
pub(crate) fn run(
    parts: &mut CoreParts<'_>,
    regs: &RegisterFile,
    task: &PoolTask,
) -> Result<(), Stop> {
    let pooling = Pooling::new(task, regs, parts.contested);
    let all = Task::Pool(*task);
    check::registers(parts.report, &all, regs, parts.contested)?;
    if task.precision != Precision::Fp16 && pooling.element == Precision::Fp16 {
        let values = format!("{} with a width of {}", task.precision, task.read_size);
        parts.report.broken(&POOLING_PRECISION, regs, &values)?;
    }
    parts.clock.spend(regs, POOLING)?;
    let dma = &parts.dma;
    match (pooling.method, pooling.element) {
        (Method::Extreme(extreme), Precision::Int8) => pooling.run_extremes::<16>(dma, extreme),
        (Method::Extreme(extreme), _) => pooling.run_extremes::<8>(dma, extreme),
        _ => pooling.each_line(
            dma,
            |bytes| pooling.line(bytes),
            |lines, oy, out| {
                for ox in 0..pooling.target.width {
                    pooling.store(pooling.window(lines, oy, ox), out);
                }
            },
        ),
    }
}
