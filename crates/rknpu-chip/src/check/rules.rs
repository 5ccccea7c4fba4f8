// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rows of the table of rules that the registers of a task break.

use rknpu_regcmd::rules::{self, FLYING_DUAL, PARTIAL_GROUP, Rule, TRANSPOSED_HANG, WEIGHT_ROOM};
use rknpu_regcmd::task::Task;
use rknpu_regcmd::{ChipProfile, RegisterFile};

use crate::trap::{DiagnosisReport, Stop};
use crate::{Contested, Effect, FlyingDual, WeightRoom};

/// The rules that a task breaks.
#[derive(Debug, Default)]
pub(crate) struct Broken(Vec<&'static Rule>);

impl Broken {
    /// Whether the task breaks `rule`.
    pub(crate) fn has(&self, rule: &Rule) -> bool {
        self.0.iter().any(|broken| broken.id == rule.id)
    }
}

/// Tells what the task breaks, up to what ends it. A row that depends on a
/// contested fact holds on the fact's first side.
pub(crate) fn registers(
    report: &mut DiagnosisReport,
    task: &Task,
    regs: &RegisterFile,
    contested: &Contested,
) -> Result<Broken, Stop> {
    let mut found = Broken::default();
    for (rule, values) in rules::broken(task, regs) {
        let fact = rule.contested;
        if fact.is_some_and(|fact| !contested.is_default(fact)) {
            if rule.id == FLYING_DUAL.id && contested.flying_dual == FlyingDual::Hangs {
                report.broken_with(rule, Effect::Hang, regs, &values)?;
            }
            continue;
        }
        found.0.push(rule);
        // End the task when the rest of it is written.
        if ![PARTIAL_GROUP.id, TRANSPOSED_HANG.id].contains(&rule.id) {
            report.broken(rule, regs, &values)?;
        }
    }
    let together = match contested.weight_room {
        WeightRoom::Group => return Ok(found),
        WeightRoom::Block => ChipProfile::RK3588.resident_kernels as usize,
        WeightRoom::All => usize::MAX,
    };
    if let Task::Conv(conv) = task
        && let Some(values) = rules::weights_without_room(conv, together)
    {
        report.broken_with(&WEIGHT_ROOM, Effect::Hang, regs, &values)?;
    }
    Ok(found)
}
