// SPDX-License-Identifier: MIT OR Apache-2.0
//! Findings on a record: which results are wrong and how, and the sides of contested
//! facts on which the model does the same.

use std::collections::BTreeSet;

use serde::Serialize;

use super::ladder::Rung;
use crate::experiment::judge::{sides_like, wrong_elements};
use crate::experiment::record::{ExperimentRecord, RecordedJob, expected};
use crate::table::{joined, ranges};

#[derive(Clone, Debug, Serialize)]
pub(crate) struct RungFinding {
    /// Sentences, first about all jobs, then about the first wrong one.
    pub(crate) shown: Vec<String>,
    /// Sides of contested facts, `fact=side`, on which the model does the same.
    pub(crate) as_model_with: Vec<String>,
    /// Whether only some of its jobs are wrong, although all are equal.
    pub(crate) is_partial: bool,
}

impl RungFinding {
    /// Examines a record that is not right; `closely` compares its bytes too.
    pub(crate) fn of(
        rung: &Rung,
        record: &ExperimentRecord,
        closely: bool,
    ) -> anyhow::Result<Self> {
        let mut shown = Vec::new();
        if let Some(error) = &record.error {
            shown.push(error.clone());
        }
        let count = record.jobs.len();
        let killed = record.jobs.iter().filter(|job| !job.completed).count();
        let is_wrong = |job: &&RecordedJob| job.completed && job.output.is_some();
        let wrong = record.jobs.iter().filter(is_wrong).count();
        for (jobs, what) in [(killed, "did not end"), (wrong, "gave wrong results")] {
            if jobs > 0 {
                shown.push(format!("{jobs} of {count} jobs {what}"));
            }
        }
        shown.extend(places(record));
        let mut as_model_with = Vec::new();
        if let Some(seen) = record.first_wrong()? {
            let experiment = (rung.experiment)()?;
            if !record.is_of(&experiment) {
                let version = &record.version;
                shown.push(format!(
                    "recorded by version {version}, whose operands differ: not compared"
                ));
            } else if let (Some(right), true) = (expected(&experiment)?, closely) {
                shown.extend(wrong_elements(&experiment, &seen, &right));
                as_model_with = sides_like(&experiment, &seen, &right)?;
            }
        }
        Ok(Self {
            shown,
            as_model_with,
            is_partial: (1..count).contains(&(killed + wrong)),
        })
    }
}

/// Files and interrupt lines of the wrong jobs, if others are right.
fn places(record: &ExperimentRecord) -> Vec<String> {
    let cores = record.cores.max(1) as usize;
    let of_jobs = |are_wrong: bool| {
        let jobs = record.jobs.iter().enumerate();
        let jobs = jobs.filter(move |(_, job)| job.output.is_some() == are_wrong);
        let places: BTreeSet<usize> = jobs.clone().map(|(index, _)| index % cores).collect();
        let lines: BTreeSet<&String> = jobs.flat_map(|(_, job)| &job.raised).collect();
        (places, lines)
    };
    let ((wrong, silent), (right, raised)) = (of_jobs(true), of_jobs(false));
    let mut shown = Vec::new();
    if !right.is_empty() && wrong.is_disjoint(&right) {
        let files = ranges(&wrong);
        shown.push(format!(
            "the wrong jobs are always those of file {files} of {cores}, counted from 0; each \
             file runs on a different core"
        ));
    }
    if !raised.is_empty() && !wrong.is_empty() {
        let listed = |lines: BTreeSet<&String>| {
            if lines.is_empty() {
                "none".to_owned()
            } else {
                joined(lines, ", ")
            }
        };
        shown.push(format!(
            "interrupts: right jobs {}; wrong jobs {}",
            listed(raised),
            listed(silent)
        ));
    }
    shown
}
