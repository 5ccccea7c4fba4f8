// SPDX-License-Identifier: MIT OR Apache-2.0
//! Faults of a task: the rules of [`rknpu_regcmd::rules`] that its registers
//! break, and faults that registers alone do not show.

use std::cell::LazyCell;

use rknpu_regcmd::regs;
use rknpu_regcmd::rules::{
    self, FIELD_OVERFLOW, FLYING_DUAL, PARTIAL_GROUP, Rule, STALE_CBUF, STALE_REGISTERS,
    TRANSPOSED_HANG, WEIGHT_ROOM,
};
use rknpu_regcmd::task::{self, RegisterUse, Task};
use rknpu_regcmd::{Block, ChipProfile, EnableMask, RegisterFile};

use super::Effect;
use super::cbuf::Stale;
use super::contested::{Contested, OtherSide};
use super::registers::RegisterGroups;
use super::trap::{DiagnosisReport, Stop, shown};

/// The rules that a task breaks.
#[derive(Debug, Default)]
pub(crate) struct Broken(Vec<&'static Rule>);

/// Rules by which a task hangs after its last write, with the values to report.
const HANG_LAST: [(&Rule, &str); 2] = [
    (&PARTIAL_GROUP, "the last group is not whole"),
    (&TRANSPOSED_HANG, "all output is written"),
];

impl Broken {
    /// Whether the task breaks `rule`.
    pub(crate) fn has(&self, rule: &Rule) -> bool {
        self.0.iter().any(|broken| broken.id == rule.id)
    }

    /// Ends a task after its last write: reports rules by which it hangs.
    pub(crate) fn finish(&self, report: &DiagnosisReport, regs: &RegisterFile) -> Result<(), Stop> {
        let mut hangs = HANG_LAST.into_iter().filter(|(rule, _)| self.has(rule));
        hangs.try_for_each(|(rule, values)| report.broken(rule, regs, values))
    }
}

/// Reports the rules that the task breaks, up to the first that ends it. A rule
/// that depends on a contested fact holds on the fact's first side.
pub(crate) fn registers(
    report: &DiagnosisReport,
    task: &Task,
    regs: &RegisterFile,
    contested: Contested,
) -> Result<Broken, Stop> {
    let mut found = Broken::default();
    for (rule, values) in rules::broken(task, regs) {
        if rule.contested.is_some_and(|fact| !contested.is_first(fact)) {
            let hangs = contested.has(OtherSide::FlyingDualHangs);
            if rule.id == FLYING_DUAL.id && hangs {
                report.broken_with(rule, Effect::Hang, regs, &values)?;
            }
            continue;
        }
        found.0.push(rule);
        if HANG_LAST.iter().all(|(last, _)| last.id != rule.id) {
            report.broken(rule, regs, &values)?;
        }
    }
    let together = if contested.has(OtherSide::WeightRoomBlock) {
        ChipProfile::RK3588.resident_kernels as usize
    } else if contested.has(OtherSide::WeightRoomAll) {
        usize::MAX
    } else {
        return Ok(found);
    };
    if let Task::Conv(conv) = task
        && let Some(values) = rules::weights_without_room(conv, together)
    {
        report.broken_with(&WEIGHT_ROOM, Effect::Hang, regs, &values)?;
    }
    Ok(found)
}

/// Number of registers that a diagnosis shows.
const SHOWN: usize = 6;

/// Reports registers that the task depends on, that its program does not write,
/// and that do not hold their reset value.
pub(crate) fn stale(
    report: &DiagnosisReport,
    regs: &RegisterFile,
    enable: EnableMask,
    contested: Contested,
) -> Result<(), Stop> {
    let fresh = LazyCell::new(|| RegisterGroups::new(contested));
    let mut found: Vec<_> = task::unwritten(regs, enable)
        .filter(|&(info, used)| {
            used == RegisterUse::Computed && regs.value(info.offset) != fresh.read(info.offset)
        })
        .map(|(info, _)| info)
        .collect();
    if found.is_empty() {
        return Ok(());
    }
    let values = format!("{} registers are used but not written", found.len());
    found.truncate(SHOWN);
    report.record(&STALE_REGISTERS, &shown(&found, regs), &values)
}

/// Reports the first written value with bits beyond the fields of its register.
pub(crate) fn overflowing(
    report: &DiagnosisReport,
    regs: &RegisterFile,
    ran: impl Fn(Block) -> bool,
) -> Result<(), Stop> {
    for (offset, value) in regs.written() {
        let Some(info) = regs::lookup(offset).filter(|info| ran(info.block)) else {
            continue;
        };
        if let Some(values) = info.overflow(value) {
            return report.record(&FIELD_OVERFLOW, &shown(&[info], regs), &values);
        }
    }
    Ok(())
}

/// Reports a task whose DATA_REUSE or WEIGHT_REUSE does not match CBUF.
pub(crate) fn reuse(
    report: &DiagnosisReport,
    regs: &RegisterFile,
    what: &str,
    found: Result<(), Stale>,
) -> Result<(), Stop> {
    let Err(Stale { why, only_address }) = found else {
        return Ok(());
    };
    let values = format!("{what} reuse, but {why}");
    if only_address {
        report.broken_with(&STALE_CBUF, Effect::Note, regs, &values)
    } else {
        report.broken(&STALE_CBUF, regs, &values)
    }
}
