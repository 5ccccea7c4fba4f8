// SPDX-License-Identifier: MIT OR Apache-2.0
//! Outcomes of the experiments, as text and JSON.

use std::borrow::Cow;

use npu_matmul::profile::ContestedFact;
use serde::{Deserialize, Serialize};

use super::FactToSettle;
use crate::first::RungRecord;

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
    pub(crate) record: Option<RungRecord>,
}

/// The outcome of an experiment, or why it did not run.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub(crate) enum ExperimentOutcome {
    /// The device is on a side.
    Settled {
        side: Cow<'static, str>,
        is_default: bool,
        /// Whether all bytes equal the model's on that side; otherwise the wrong bytes have
        /// other values.
        exact: bool,
    },
    /// The device matches no side.
    Neither {
        /// The nearest side.
        nearest: Option<Cow<'static, str>>,
    },
    /// Observed, and compared with the model's only variant.
    Observed {
        /// Whether the device matches the model.
        as_model: bool,
    },
    /// Not run, and why not.
    NotRun { reason: String },
    /// Cannot be run, and why not.
    Impossible { reason: Cow<'static, str> },
}

impl ExperimentOutcome {
    /// The kind of the outcome, and its result or reason.
    pub(crate) fn kind_and_result(&self) -> (&'static str, String) {
        match self {
            Self::Settled { side, .. } => ("settled", side.to_string()),
            Self::Neither { nearest } => {
                let nearest = nearest.as_deref().unwrap_or_default();
                ("neither", format!("nearest to {nearest}"))
            }
            Self::Observed { as_model: true } => ("observed", "same as the model".to_owned()),
            Self::Observed { .. } => ("observed", "differs from the model".to_owned()),
            Self::NotRun { reason } => ("not run", reason.clone()),
            Self::Impossible { reason } => ("impossible", reason.to_string()),
        }
    }
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
            ExperimentOutcome::NotRun { .. } | ExperimentOutcome::Impossible { .. } => false,
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
            ExperimentOutcome::Impossible { .. } => format!("not possible here: {result}"),
        };
        let lines = note.iter().chain(&self.shown);
        let lines: String = lines.map(|line| format!("  {line}\n")).collect();
        format!("{}: {result}\n{lines}", self.name)
    }
}
