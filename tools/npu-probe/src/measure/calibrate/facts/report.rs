// SPDX-License-Identifier: MIT OR Apache-2.0
//! Outcomes of the experiments, as text and JSON.

use std::borrow::Cow;

use npu_matmul::profile::ContestedFact;
use serde::{Deserialize, Serialize};

use super::list::FactToSettle;
use crate::experiment::judge::ExperimentOutcome;
use crate::experiment::record::ExperimentRecord;

#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct FactReport {
    /// The model's switch, or a name if the model has one variant only.
    pub(crate) name: Cow<'static, str>,
    pub(crate) question: Cow<'static, str>,
    /// The first is the model's default; empty if the model has one variant only.
    #[serde(skip_deserializing)]
    pub(crate) sides: &'static [&'static str],
    #[serde(flatten)]
    pub(crate) outcome: ExperimentOutcome,
    #[serde(skip_deserializing, skip_serializing_if = "Option::is_none")]
    pub(crate) note: Option<&'static str>,
    /// Differences from the model: on the matching or nearest side, if it has sides.
    #[serde(skip_deserializing, skip_serializing_if = "Vec::is_empty")]
    pub(crate) shown: Vec<String>,
    /// The full record, if anything differs.
    #[serde(skip_deserializing, skip_serializing_if = "Option::is_none")]
    pub(crate) record: Option<ExperimentRecord>,
}

impl FactReport {
    /// The side to save in a profile, if the device is on one.
    pub(crate) fn verdict(&self) -> Option<ContestedFact> {
        let ExperimentOutcome::Settled { side, .. } = &self.outcome else {
            return None;
        };
        Some(ContestedFact {
            id: self.name.to_string(),
            verdict: side.to_string(),
            sentence: self.question.to_string(),
        })
    }

    /// The report of a fact before its experiment: skipped because a core stopped working.
    pub(super) fn new(fact: &FactToSettle) -> Self {
        let reason = "after an earlier experiment a plain matmul does not complete; the NPU may \
                      need a power cycle";
        Self {
            name: fact.name.into(),
            question: fact.question.into(),
            sides: fact.switch().map_or(&[], |switch| switch.sides),
            outcome: ExperimentOutcome::NotRun {
                reason: reason.to_owned(),
            },
            note: fact.note,
            shown: Vec::new(),
            record: None,
        }
    }

    pub(crate) fn matches_no_side(&self) -> bool {
        matches!(self.outcome, ExperimentOutcome::Neither { .. })
    }

    /// Whether the device differs from the model's default.
    pub(crate) fn differs(&self) -> bool {
        match &self.outcome {
            ExperimentOutcome::Settled {
                is_default, exact, ..
            } => !is_default || !exact,
            ExperimentOutcome::Neither { .. } => true,
            ExperimentOutcome::Observed { as_model } => !as_model,
            ExperimentOutcome::NotRun { .. } => false,
        }
    }

    pub(crate) fn text(&self) -> String {
        let (kind, result) = self.outcome.kind_and_result();
        let mut note = None;
        let result = match &self.outcome {
            ExperimentOutcome::Settled {
                is_default, exact, ..
            } => {
                let default = self.sides.first().copied().unwrap_or_default();
                let whose = if *is_default {
                    "same as the model's default".to_owned()
                } else {
                    format!("the model's default is {default}")
                };
                let wrong = if *exact {
                    ""
                } else {
                    "; wrong bytes differ from the model's"
                };
                note = self.note.map(|note| format!("({note})"));
                format!("{result} ({whose}{wrong})")
            }
            ExperimentOutcome::Neither { .. } => format!("{kind}, {result}"),
            ExperimentOutcome::Observed { .. } => result,
            ExperimentOutcome::NotRun { .. } => format!("{kind}: {result}"),
        };
        let lines = note.iter().chain(&self.shown);
        let lines: String = lines.map(|line| format!("  {line}\n")).collect();
        format!("{}: {result}\n{lines}", self.name)
    }
}
