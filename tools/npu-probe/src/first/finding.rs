// SPDX-License-Identifier: MIT OR Apache-2.0
//! Findings on a record: which results are wrong and how, and the sides of contested
//! facts on which the model does the same.

use std::collections::BTreeSet;

use rknpu_chip::Contested;
use rknpu_regcmd::Precision;
use rknpu_regcmd::regs::dpu;
use serde::Serialize;

use super::ladder::Rung;
use super::record::{RungJob, RungRecord, data, expected, on_model};
use crate::data::hex;
use crate::experiment::runner::SENTINEL;
use crate::experiment::{Experiment, SeenJob, TaskTemplate};
use crate::table::joined;

const ATOM: usize = rknpu_regcmd::ATOM_BYTES as usize;

/// Contested facts about plain matmuls; they are tried before all others.
const FIRST_FACTS: [&str; 6] = [
    "core-idle-mainline",
    "int8-reuse",
    "int8-slack-bank",
    "program-at-zero",
    "over-read",
    "weight-room",
];

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
    pub(crate) fn of(rung: &Rung, record: &RungRecord, closely: bool) -> anyhow::Result<Self> {
        let mut shown = Vec::new();
        if let Some(error) = &record.error {
            shown.push(error.clone());
        }
        let count = record.jobs.len();
        let killed = record.jobs.iter().filter(|job| !job.completed).count();
        let is_wrong = |job: &&RungJob| job.completed && job.output.is_some();
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
fn places(record: &RungRecord) -> Vec<String> {
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

/// Sides of contested facts on which the model gives the same bytes; else, sides with
/// the same wrong atoms.
fn sides_like(
    experiment: &Experiment,
    seen: &SeenJob,
    right: &SeenJob,
) -> anyhow::Result<Vec<String>> {
    let mut switches: Vec<_> = Contested::SWITCHES.iter().collect();
    switches.sort_by_key(|switch| !FIRST_FACTS.contains(&switch.name));
    let (mut equal, mut alike) = (Vec::new(), Vec::new());
    for switch in switches {
        for side in switch.sides.iter().skip(1) {
            let name = format!("{}={side}", switch.name);
            let mut contested = Contested::default();
            contested.set(&name)?;
            let Some(model) = on_model(experiment, contested)? else {
                continue;
            };
            if model == *seen {
                equal.push(name);
            } else if model.completed == seen.completed
                && model.wrong_atoms(right) == seen.wrong_atoms(right)
            {
                alike.push(name);
            }
        }
        if !equal.is_empty() {
            return Ok(equal);
        }
    }
    Ok(alike)
}

struct OutputCube {
    /// Offset in the experiment's output.
    start: usize,
    rows: usize,
    columns: usize,
    element: usize,
}

impl OutputCube {
    fn of(task: &TaskTemplate) -> Self {
        let height = task.value::<dpu::DataCubeHeight>().height() as usize + 1;
        let width = task.value::<dpu::DataCubeWidth>().width() as usize + 1;
        let precision = task.value::<dpu::DataFormat>().out_precision();
        let target = task.target::<dpu::DstBaseAddr>();
        Self {
            start: target.map_or(0, |to| to.offset as usize),
            rows: width * height,
            columns: task.value::<dpu::DataCubeChannel>().channel() as usize + 1,
            element: Precision::from_code(precision).bits() as usize / 8,
        }
    }

    /// Row and column of the element at byte `at` of the cube.
    fn place(&self, at: usize) -> (usize, usize) {
        let surface = at / (self.rows * ATOM);
        let row = at / ATOM % self.rows;
        let column = surface * (ATOM / self.element) + at % ATOM / self.element;
        (row, column)
    }
}

/// Differences from the model: jobs that end differently, then the wrong elements of
/// the first other job.
pub(crate) fn differences(
    experiment: &Experiment,
    seen: &[SeenJob],
    model: &[SeenJob],
) -> Vec<String> {
    let mut shown = Vec::new();
    let end = |completed| if completed { "ended" } else { "did not end" };
    for (index, (seen, model)) in seen.iter().zip(model).enumerate() {
        if seen.completed != model.completed {
            let [seen, model] = [seen, model].map(|job| end(job.completed));
            shown.push(format!("job {index} {seen}, on the model it {model}"));
        }
    }
    let mut pairs = seen.iter().zip(model);
    let differing = pairs.find(|(seen, model)| seen.completed && seen.output != model.output);
    if let Some((seen, model)) = differing {
        shown.extend(wrong_elements(experiment, seen, model));
    }
    shown
}

/// The wrong elements, and what they contain instead.
fn wrong_elements(experiment: &Experiment, seen: &SeenJob, right: &SeenJob) -> Vec<String> {
    let (seen, right) = (data(experiment, seen), data(experiment, right));
    let mut told = Vec::new();
    let tasks = experiment.jobs.iter().take(1).flatten();
    for (task, cube) in tasks.map(OutputCube::of).enumerate() {
        let end = cube.start + cube.rows * cube.columns * cube.element;
        let [seen, right] = [seen, right].map(|bytes| {
            let own = bytes.get(cube.start..end).unwrap_or_default();
            own.chunks(cube.element.max(1))
        });
        let elsewhere: BTreeSet<&[u8]> = right.clone().collect();
        let (mut rows, mut columns) = (BTreeSet::new(), BTreeSet::new());
        let (mut unwritten, mut zero, mut moved, mut other) = (0, 0, 0, 0);
        let mut first = None;
        let pairs = seen.clone().zip(right).enumerate();
        for (index, (seen, right)) in pairs.filter(|(_, (seen, right))| seen != right) {
            let (row, column) = cube.place(index * cube.element);
            rows.insert(row);
            columns.insert(column);
            first.get_or_insert_with(|| format!("{}, not {}", hex(seen), hex(right)));
            let count = match seen {
                bytes if bytes.iter().all(|byte| *byte == SENTINEL) => &mut unwritten,
                bytes if bytes.iter().all(|byte| *byte == 0) => &mut zero,
                _ if elsewhere.contains(seen) => &mut moved,
                _ => &mut other,
            };
            *count += 1;
        }
        let count = unwritten + zero + moved + other;
        if count == 0 {
            continue;
        }
        told.push(format!(
            "task {task}: {count} of {} elements are wrong, in rows {} of {} and columns {} of {}: \
             {unwritten} not written, {zero} zero, {moved} equal to another element, {other} others; \
             the first has the bytes {}",
            seen.len(),
            ranges(&rows),
            cube.rows,
            ranges(&columns),
            cube.columns,
            first.unwrap_or_default(),
        ));
        // The first tasks are sufficient.
        if told.len() == 4 {
            break;
        }
    }
    told
}

/// The numbers as ranges, such as `0-3, 8`; `...` after the first few.
fn ranges(numbers: &BTreeSet<usize>) -> String {
    const MOST: usize = 4;
    let numbers: Vec<usize> = numbers.iter().copied().collect();
    let mut stretches = numbers.chunk_by(|one, next| one + 1 == *next);
    let shown = stretches.by_ref().take(MOST).map(|stretch| match stretch {
        [first, .., last] => format!("{first}-{last}"),
        [alone] => alone.to_string(),
        [] => String::new(),
    });
    let shown: Vec<String> = shown.collect();
    let more = stretches.next().map(|_| "...".to_owned());
    joined(shown.into_iter().chain(more), ", ")
}
