// SPDX-License-Identifier: MIT OR Apache-2.0
//! Findings on a record: which results are wrong and how, and the sides of contested
//! facts on which the model does the same.

use std::collections::BTreeSet;

use serde::Serialize;

use super::ladder::{Rung, RungPace};
use crate::base::table::joined;
use crate::experiment::judge::{sides_like, wrong_elements};
use crate::experiment::record::{ExperimentRecord, expected};

#[derive(Clone, Debug, Serialize)]
pub(crate) struct RungFinding {
    /// Sentences, first about all jobs, then about the first wrong one.
    pub(crate) shown: Vec<String>,
    /// Sides of contested facts, `fact=side`, on which the model does the same.
    pub(crate) as_model_with: Vec<String>,
    /// Whether only some of its jobs are wrong, although all are equal.
    pub(crate) is_partial: bool,
    /// Whether none of its jobs ended.
    pub(crate) is_killed: bool,
    /// Whether its first wrong job did everything but the last task, which writes elsewhere.
    pub(crate) lacks_witness: bool,
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
        let bad = || record.jobs.iter().filter(|job| job.output.is_some());
        let killed = bad().filter(|job| !job.completed).count();
        let wrong = bad().count() - killed;
        let is_partial = (1..count).contains(&(killed + wrong));
        for (jobs, what) in [(killed, "did not end"), (wrong, "gave wrong results")] {
            if jobs > 0 {
                shown.push(format!("{jobs} of {count} jobs {what}"));
            }
        }
        let is_in_pairs = rung.pace == RungPace::InPairs;
        if !is_in_pairs {
            shown.extend(places(record));
        }
        let (mut as_model_with, mut lacks_witness) = (Vec::new(), false);
        if let Some(seen) = record.first_wrong()? {
            let experiment = rung.experiment()?;
            if !record.is_of(&experiment) {
                let version = &record.version;
                shown.push(format!(
                    "recorded by version {version}, whose operands differ: not compared"
                ));
            } else if let (Some(right), true) = (expected(&experiment)?, closely) {
                lacks_witness = !seen.completed && seen.output == right.output;
                shown.extend(wrong_elements(&experiment, &seen, &right));
                if lacks_witness {
                    shown.push("the results are right: the last task is missing".to_owned());
                }
                // A side holds on every core, at any time.
                if !is_partial && (is_in_pairs || rung.pace == RungPace::OneByOne) {
                    as_model_with = sides_like(&experiment, &seen, &right)?;
                }
            }
        }
        Ok(Self {
            shown,
            as_model_with,
            is_partial,
            is_killed: killed == count,
            lacks_witness,
        })
    }
}

/// Files and interrupt lines of the wrong jobs, if others are right.
fn places(record: &ExperimentRecord) -> Vec<String> {
    let lines = |are_wrong: bool| {
        let jobs = record.jobs.iter();
        let jobs = jobs.filter(move |job| job.output.is_some() == are_wrong);
        jobs.flat_map(|job| &job.raised).collect::<BTreeSet<_>>()
    };
    let (silent, raised) = (lines(true), lines(false));
    let wrong = record.wrong_files();
    let mut shown = Vec::new();
    if !wrong.is_empty() {
        let files = joined(&wrong, ", ");
        shown.push(format!(
            "the wrong jobs are always those of file {files} of {}, counted from 0; each file \
             runs on a different core",
            record.cores
        ));
    }
    if !raised.is_empty() && !record.right {
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
