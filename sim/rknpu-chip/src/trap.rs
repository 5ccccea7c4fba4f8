// SPDX-License-Identifier: MIT OR Apache-2.0
//! The record of the rules that a task breaks.

use std::cell::RefCell;

use rknpu_regcmd::rules::Rule;
use rknpu_regcmd::{RegisterFile, RegisterInfo};

use super::{Diagnosis, Effect, Fault, Level};

/// Why a task ends without its completion interrupt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The core waits for something that never comes.
    Hang,
    /// An access without translation.
    Fault(Fault),
    /// The program asked for more data than the host can hold.
    HostMemory,
    /// The modelled time exceeds the budget: not computed.
    TooLong,
}

/// The faults of the tasks of a kick.
#[derive(Debug)]
pub(crate) struct DiagnosisReport {
    level: Level,
    found: RefCell<Vec<Diagnosis>>,
}

impl DiagnosisReport {
    pub(crate) fn new(level: Level) -> Self {
        Self {
            level,
            found: RefCell::default(),
        }
    }

    /// Records that `rule` is broken, once for each kick, with the rule's
    /// effect. A rule without effect is ignored. `registers` and `values` show
    /// how; they need not be a task's.
    pub(crate) fn record(
        &self,
        rule: &'static Rule,
        registers: &[(&'static str, u32)],
        values: &str,
    ) -> Result<(), Stop> {
        rule.effect.map_or(Ok(()), |effect| {
            self.record_with(rule, effect, registers, values)
        })
    }

    /// [`Self::record`], with an effect other than the rule's.
    ///
    /// # Errors
    /// [`Stop::Hang`] if the task ends here: always for [`Effect::Hang`], and
    /// at [`Level::Strict`] for every effect that makes a result wrong.
    pub(crate) fn record_with(
        &self,
        rule: &'static Rule,
        effect: Effect,
        registers: &[(&'static str, u32)],
        values: &str,
    ) -> Result<(), Stop> {
        let mut found = self.found.borrow_mut();
        if !found.iter().any(|known| known.trap == rule.id) {
            found.push(Diagnosis {
                trap: rule.id,
                effect,
                registers: registers.to_vec(),
                rule: format!("{values}: {}", rule.why),
                remedy: rule.remedy.into(),
            });
        }
        match effect {
            Effect::Hang => Err(Stop::Hang),
            Effect::Garbage | Effect::NoWrite if self.level == Level::Strict => Err(Stop::Hang),
            Effect::Garbage | Effect::NoWrite | Effect::Note => Ok(()),
        }
    }

    /// [`Self::record`], with the rule's registers.
    pub(crate) fn broken(
        &self,
        rule: &'static Rule,
        regs: &RegisterFile,
        values: &str,
    ) -> Result<(), Stop> {
        self.record(rule, &shown(rule.shows, regs), values)
    }

    /// [`Self::broken`], with an effect other than the rule's.
    pub(crate) fn broken_with(
        &self,
        rule: &'static Rule,
        effect: Effect,
        regs: &RegisterFile,
        values: &str,
    ) -> Result<(), Stop> {
        self.record_with(rule, effect, &shown(rule.shows, regs), values)
    }

    /// All faults, in order; none at [`Level::Silent`].
    pub(crate) fn into_diagnoses(self) -> Vec<Diagnosis> {
        if self.level == Level::Silent {
            Vec::new()
        } else {
            self.found.into_inner()
        }
    }
}

/// Registers by name, with their values.
pub(crate) fn shown(registers: &[&RegisterInfo], regs: &RegisterFile) -> Vec<(&'static str, u32)> {
    let of = |info: &&RegisterInfo| (info.name, regs.value(info.offset));
    registers.iter().map(of).collect()
}
