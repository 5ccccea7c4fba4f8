// SPDX-License-Identifier: MIT OR Apache-2.0
//! All results of a run, from its folder or its archive.

use std::collections::BTreeMap;

use anyhow::Context;
use serde::Deserialize;

use super::ladder::RUNG_STEP;
use crate::board::evidence::EvidenceOutcome;
use crate::experiment::record::ExperimentRecord;

const INDEX: &str = "index.json";

/// Outcomes of steps, and the records that rungs left.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct FirstResults {
    pub(super) steps: BTreeMap<String, EvidenceOutcome>,
    /// Records of steps that ended, by step.
    #[serde(skip)]
    pub(super) records: BTreeMap<String, ExperimentRecord>,
}

impl FirstResults {
    /// Results with the outcomes of steps, still without records.
    pub(crate) fn of_steps(steps: BTreeMap<String, EvidenceOutcome>) -> Self {
        let records = BTreeMap::new();
        Self { steps, records }
    }

    /// Whether a file contains results to judge.
    pub(crate) fn reads(name: &str) -> bool {
        name == INDEX || rung_step(name).is_some()
    }

    /// Adds a file. The index comes before records: those of steps that did not end are dropped.
    pub(crate) fn add(&mut self, name: &str, text: &[u8]) -> anyhow::Result<()> {
        if let Some(step) = rung_step(name) {
            // A step that did not end may have left part of a record, or the record of an
            // earlier run.
            if !self.steps.get(step).is_some_and(EvidenceOutcome::has_ended) {
                return Ok(());
            }
            let record = serde_json::from_slice(text).with_context(|| name.to_owned())?;
            self.records.insert(step.to_owned(), record);
        } else {
            let index: Self = serde_json::from_slice(text).context(INDEX)?;
            self.steps = index.steps;
        }
        Ok(())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }
}

/// The step of a rung that writes this file, if one does.
fn rung_step(file: &str) -> Option<&str> {
    let step = file.strip_suffix(".json")?;
    step.starts_with(RUNG_STEP).then_some(step)
}
