// SPDX-License-Identifier: MIT OR Apache-2.0
//! All results of a run, from its folder or its archive.

use std::collections::BTreeMap;

use anyhow::Context;
use serde::Deserialize;

use super::ladder::{FLIPS, HEALTH_STEP, RUNG_STEP, Rung, RungMeaning};
use super::record::RungRecord;
use super::verdict::{FirstReport, FirstVerdict, broken_since};
use crate::evidence::{EvidenceOutcome, SELF_TEST};
use crate::exit::Verdict;

const INDEX: &str = "index.json";
const RECORD_END: &str = ".json";

/// Records, and the outcomes of the steps that wrote them.
#[derive(Debug, Default)]
pub(crate) struct FirstResults {
    records: BTreeMap<String, RungRecord>,
    steps: BTreeMap<String, EvidenceOutcome>,
}

#[derive(Deserialize)]
struct Index {
    steps: BTreeMap<String, EvidenceOutcome>,
}

impl FirstResults {
    /// Results with the outcomes of steps, still without records.
    pub(crate) fn of_steps(steps: &BTreeMap<String, EvidenceOutcome>) -> Self {
        Self {
            records: BTreeMap::new(),
            steps: steps.clone(),
        }
    }

    /// Whether a file contains results to judge.
    pub(crate) fn reads(name: &str) -> bool {
        name == INDEX || (name.starts_with(RUNG_STEP) && name.ends_with(RECORD_END))
    }

    /// Adds the content of a file.
    pub(crate) fn add(&mut self, name: &str, text: &[u8]) -> anyhow::Result<()> {
        if name == INDEX {
            let index: Index = serde_json::from_slice(text).context(INDEX)?;
            self.steps = index.steps;
            return Ok(());
        }
        let record: RungRecord = serde_json::from_slice(text).with_context(|| name.to_owned())?;
        let key = match name.contains(FLIPS) {
            true => format!("{}{FLIPS}", record.rung),
            false => record.rung.clone(),
        };
        self.records.insert(key, record);
        Ok(())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// The verdict on all results; see [`FirstReport::of`].
    pub(crate) fn judge(mut self, closely: bool) -> anyhow::Result<FirstReport> {
        let all = std::mem::take(&mut self.records);
        let (flips, mut records): (BTreeMap<_, _>, BTreeMap<_, _>) =
            all.into_iter().partition(|(name, _)| name.ends_with(FLIPS));
        for (_, of) in flips {
            if let Some(record) = records.get_mut(&of.rung) {
                record.flips = of.flips;
            }
        }
        // A step that did not end in this run may have a record of an earlier run.
        records.retain(|name, _| {
            let step = self.steps.get(&format!("{RUNG_STEP}{name}"));
            matches!(step, Some(EvidenceOutcome::Ended { .. }))
        });
        let mut died = BTreeMap::new();
        let (mut failed_plans, mut unjudged) = (Vec::new(), Vec::new());
        for (step, outcome) in &self.steps {
            let how = match outcome {
                EvidenceOutcome::Ended { ok: false, code } => {
                    format!("its process ended with code {code}")
                }
                EvidenceOutcome::Killed { after_seconds } => {
                    format!("it did not end within {after_seconds} s")
                }
                EvidenceOutcome::MachineWentDown => "the machine went down".to_owned(),
                EvidenceOutcome::Ended { ok: true, .. }
                | EvidenceOutcome::Begun { .. }
                | EvidenceOutcome::NotRun { .. } => continue,
            };
            if step.starts_with(SELF_TEST) {
                failed_plans.push(step.clone());
            }
            let Some(rung) = step.strip_prefix(RUNG_STEP).and_then(Rung::named) else {
                continue;
            };
            let has_ended = matches!(outcome, EvidenceOutcome::Ended { .. });
            if rung.meaning != RungMeaning::Essential && has_ended {
                if !records.contains_key(rung.name) {
                    let why = format!("see {step}-stderr.txt in the archive");
                    unjudged.push(format!("{step} could not be judged: {how}; {why}"));
                }
                continue;
            }
            died.insert(rung.name.to_owned(), how);
        }
        let mut report = FirstReport::of(&records, &died, &failed_plans, closely)?;
        report.notes.extend(unjudged);
        let sick = self.steps.iter().find_map(|(step, outcome)| {
            let rung = step.strip_prefix(HEALTH_STEP)?;
            (!outcome.is_success()).then_some(rung)
        });
        if let Some(rung) = sick {
            report.verdict = FirstVerdict::Unfinished;
            report.sentence = broken_since(rung);
        }
        Ok(report)
    }
}

impl FirstReport {
    /// The exit status of a command with this verdict.
    pub(crate) const fn exit(&self) -> Verdict {
        match self.verdict {
            FirstVerdict::DoesNotWork | FirstVerdict::Unfinished => Verdict::Mismatch,
            FirstVerdict::Works | FirstVerdict::WorksWithout => Verdict::Pass,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A core that hangs after a rung; a model in a separate process cannot show it.
    #[test]
    fn a_core_that_does_not_work_any_more_leaves_all_unfinished() {
        let failed = EvidenceOutcome::Ended { code: 1, ok: false };
        let step = |name: &str| (name.to_owned(), failed.clone());
        let steps = BTreeMap::from([step("rung-form-a"), step("health-form-a")]);
        let report = FirstResults::of_steps(&steps).judge(true).unwrap();
        assert_eq!(report.verdict, FirstVerdict::Unfinished);
        let told = &report.sentence;
        assert!(told.contains("form-a") && told.contains("power"), "{told}");
        assert_eq!(report.exit(), Verdict::Mismatch);
    }

    /// A failure of this program is not blamed on the board.
    #[test]
    fn a_rung_without_a_record_is_told_and_blames_nothing() {
        let failed = EvidenceOutcome::Ended { code: 4, ok: false };
        let steps = BTreeMap::from([("rung-fp16-streams".to_owned(), failed)]);
        let report = FirstResults::of_steps(&steps).judge(true).unwrap();
        assert!(report.causes.is_empty(), "{:?}", report.causes);
        assert!(report.notes[0].contains("rung-fp16-streams could not be judged"));
    }
}
