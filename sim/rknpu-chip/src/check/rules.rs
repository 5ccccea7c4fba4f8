// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rows of the table of rules that the registers of a task break.

use rknpu_regcmd::rules::{self, FLYING_DUAL, PARTIAL_GROUP, Rule, TRANSPOSED_HANG, WEIGHT_ROOM};
use rknpu_regcmd::task::Task;
use rknpu_regcmd::{ChipProfile, RegisterFile};

use crate::contested::{FlyingDual, WeightRoom};
use crate::trap::{DiagnosisReport, Stop};
use crate::{Contested, Effect};

/// The rules that a task breaks.
#[derive(Debug, Default)]
pub(crate) struct Broken(Vec<&'static Rule>);

/// Rules by which a task hangs behind its last write, and what it has written.
const HANG_LAST: [(&Rule, &str); 2] = [
    (&PARTIAL_GROUP, "the last group is not whole"),
    (&TRANSPOSED_HANG, "all is written"),
];

impl Broken {
    /// Whether the task breaks `rule`.
    pub(crate) fn has(&self, rule: &Rule) -> bool {
        self.0.iter().any(|broken| broken.id == rule.id)
    }

    /// The end of a task that has written what it writes.
    pub(crate) fn finish(
        &self,
        report: &mut DiagnosisReport,
        regs: &RegisterFile,
    ) -> Result<(), Stop> {
        let mut hangs = HANG_LAST.into_iter().filter(|(rule, _)| self.has(rule));
        hangs.try_for_each(|(rule, values)| report.broken(rule, regs, values))
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
        if HANG_LAST.iter().all(|(last, _)| last.id != rule.id) {
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
