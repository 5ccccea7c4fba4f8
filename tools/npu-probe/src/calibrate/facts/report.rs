// SPDX-License-Identifier: MIT OR Apache-2.0
//! What came of the experiments, and how it is told.

use std::fmt::Write;

use npu_matmul::profile::ContestedFact;
use serde::Serialize;

use super::FactToSettle;
use super::judge::{self, DifferingBytes, FactSide, Judgement};
use crate::experiment::{Experiment, SeenJob};
use crate::report::DeviceReport;

/// The report of all facts.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct SettleReport {
    /// Whether no experiment gave what no side gives.
    pub(crate) settled: bool,
    /// Version of this tool, and so of its experiments and of its model.
    pub(crate) version: &'static str,
    pub(crate) device: DeviceReport,
    pub(crate) facts: Vec<FactReport>,
}

/// The report of a fact.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct FactReport {
    /// The model's switch, or a name where the model has one way only.
    pub(crate) name: &'static str,
    pub(crate) question: &'static str,
    /// The model's default is the first; none where it has one way only.
    pub(crate) sides: &'static [&'static str],
    #[serde(flatten)]
    pub(crate) outcome: ExperimentOutcome,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) note: Option<&'static str>,
}

/// What an experiment showed, or why it was not run.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub(crate) enum ExperimentOutcome {
    /// The device is on a side.
    Settled {
        side: &'static str,
        /// Whether it is the model's default.
        is_default: bool,
        /// Whether all bytes are as the model has them on that side; otherwise
        /// those that are wrong on it have other values.
        exact: bool,
        jobs: Vec<JobComparison>,
    },
    /// The device does what no side does.
    Neither {
        /// The side that it differs least from.
        nearest: Option<&'static str>,
        jobs: Vec<JobComparison>,
    },
    /// Seen, beside what the model does in its one way.
    Observed {
        /// Whether the device does as the model.
        as_model: bool,
        jobs: Vec<JobComparison>,
    },
    /// Not run, and why not.
    NotRun { reason: String },
    /// Cannot be run, and why not.
    Impossible { reason: &'static str },
}

/// One job, beside that of the model on the side that it differs least from.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct JobComparison {
    /// Whether the job ended by itself.
    pub(crate) completed: bool,
    /// Whether it ends by itself on the model.
    pub(crate) model_completed: bool,
    /// Bytes of the output that differ.
    pub(crate) differing_bytes: usize,
    /// The first stretches of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) differences: Vec<DifferingBytes>,
}

impl ExperimentOutcome {
    /// Whether a job of the experiment did not run to its end.
    pub(crate) fn has_killed(&self) -> bool {
        let jobs = match self {
            Self::Settled { jobs, .. } | Self::Neither { jobs, .. } => jobs,
            Self::Observed { jobs, .. } => jobs,
            Self::NotRun { .. } | Self::Impossible { .. } => return false,
        };
        jobs.iter().any(|job| !job.completed)
    }

    /// Judges what a device did.
    pub(crate) fn of(
        experiment: &Experiment,
        default: &str,
        device: &[SeenJob],
        sides: &[FactSide],
    ) -> Self {
        let verdict = judge::judge(experiment, device, sides);
        let jobs = |name: Option<&str>| {
            let side = sides.iter().find(|side| Some(side.name) == name);
            let model = side.map(|side| judge::read(experiment, &side.seen));
            let device = judge::read(experiment, device);
            job_reports(&device, model.as_deref().unwrap_or_default())
        };
        let settled = |side: &'static str, exact| Self::Settled {
            side,
            is_default: side == default,
            exact,
            jobs: jobs(Some(side)),
        };
        match verdict {
            Judgement::Exactly(side) => settled(side, true),
            Judgement::ButForWrongBytes(side) => settled(side, false),
            Judgement::Neither { nearest } => Self::Neither {
                nearest,
                jobs: jobs(nearest),
            },
        }
    }
}

impl ExperimentOutcome {
    /// Compares what a device did with what the model does.
    pub(crate) fn observed(experiment: &Experiment, device: &[SeenJob], model: &[SeenJob]) -> Self {
        let device = judge::read(experiment, device);
        let model = judge::read(experiment, model);
        Self::Observed {
            as_model: device == model,
            jobs: job_reports(&device, &model),
        }
    }
}

fn job_reports(device: &[SeenJob], model: &[SeenJob]) -> Vec<JobComparison> {
    let pairs = device.iter().zip(model);
    pairs
        .map(|(device, model)| JobComparison::new(device, model))
        .collect()
}

impl JobComparison {
    fn new(device: &SeenJob, model: &SeenJob) -> Self {
        Self {
            completed: device.completed,
            model_completed: model.completed,
            differing_bytes: judge::count(&device.output, &model.output),
            differences: judge::stretches(&device.output, &model.output),
        }
    }

    /// The first difference from the model, in words; `None` if there is none.
    fn text(&self) -> Option<String> {
        if self.completed != self.model_completed {
            let end = |completed| {
                if completed {
                    "ran"
                } else {
                    "did not run to its end"
                }
            };
            let (device, model) = (end(self.completed), end(self.model_completed));
            return Some(format!("the job {device}, on the model it {model}"));
        }
        let first = self.differences.first()?;
        Some(format!(
            "{} bytes differ, first at byte {} of the output: {}, on the model {}",
            self.differing_bytes, first.offset, first.device, first.model
        ))
    }
}

impl FactReport {
    /// What a profile keeps of it: the side of a fact that has some, if it was found.
    pub(crate) fn verdict(&self) -> Option<ContestedFact> {
        let ExperimentOutcome::Settled { side, .. } = self.outcome else {
            return None;
        };
        Some(ContestedFact {
            id: self.name.to_owned(),
            verdict: side.to_owned(),
            sentence: self.question.to_owned(),
        })
    }

    pub(crate) fn new(
        fact: &FactToSettle,
        sides: &'static [&'static str],
        outcome: ExperimentOutcome,
    ) -> Self {
        Self {
            name: fact.name,
            question: fact.question,
            sides,
            outcome,
            note: fact.note,
        }
    }

    /// A line, or a few.
    pub(crate) fn text(&self) -> String {
        let name = self.name;
        let default = self.sides.first().copied().unwrap_or_default();
        match &self.outcome {
            ExperimentOutcome::Settled {
                side,
                is_default,
                exact,
                ..
            } => {
                let whose = if *is_default {
                    "as the model's default".to_owned()
                } else {
                    format!("the model's default is {default}")
                };
                let wrong = if *exact {
                    ""
                } else {
                    "; wrong bytes are others than the model's"
                };
                let note = self
                    .note
                    .map(|note| format!("  ({note})\n"))
                    .unwrap_or_default();
                format!("{name}: {side} ({whose}{wrong})\n{note}")
            }
            ExperimentOutcome::Neither { nearest, jobs } => {
                let nearest = nearest.unwrap_or_default();
                format!("{name}: neither, nearest to {nearest}\n{}", job_texts(jobs))
            }
            ExperimentOutcome::Observed { as_model: true, .. } => format!("{name}: as the model\n"),
            ExperimentOutcome::Observed { jobs, .. } => {
                format!("{name}: otherwise than the model\n{}", job_texts(jobs))
            }
            ExperimentOutcome::NotRun { reason } => format!("{name}: not run: {reason}\n"),
            ExperimentOutcome::Impossible { reason } => {
                format!("{name}: not possible here: {reason}\n")
            }
        }
    }
}

/// A line for each job that did something else.
fn job_texts(jobs: &[JobComparison]) -> String {
    let mut text = String::new();
    for (index, job) in jobs.iter().enumerate() {
        if let Some(what) = job.text() {
            let _ = writeln!(text, "  job {}: {what}", index + 1);
        }
    }
    text
}

impl SettleReport {
    pub(crate) fn new(device: DeviceReport, facts: Vec<FactReport>) -> Self {
        let neither = |fact: &FactReport| matches!(fact.outcome, ExperimentOutcome::Neither { .. });
        Self {
            settled: !facts.iter().any(neither),
            version: env!("CARGO_PKG_VERSION"),
            device,
            facts,
        }
    }

    /// The last lines.
    pub(crate) fn summary(&self) -> String {
        let count = |wanted: fn(&ExperimentOutcome) -> bool| {
            self.facts
                .iter()
                .filter(|fact| wanted(&fact.outcome))
                .count()
        };
        let default = count(
            |one| matches!(one, ExperimentOutcome::Settled { is_default, .. } if *is_default),
        );
        let other = count(
            |one| matches!(one, ExperimentOutcome::Settled { is_default, .. } if !*is_default),
        );
        let neither = count(|one| matches!(one, ExperimentOutcome::Neither { .. }));
        let alike =
            count(|one| matches!(one, ExperimentOutcome::Observed { as_model, .. } if *as_model));
        let unlike =
            count(|one| matches!(one, ExperimentOutcome::Observed { as_model, .. } if !*as_model));
        let not_run = count(|one| matches!(one, ExperimentOutcome::NotRun { .. }));
        let impossible = count(|one| matches!(one, ExperimentOutcome::Impossible { .. }));
        format!(
            "settled: {default} as the model's defaults, {other} otherwise, {neither} neither\n\
             observed: {alike} as the model, {unlike} otherwise\n\
             left out: {not_run} not run, {impossible} not possible\n"
        )
    }
}
