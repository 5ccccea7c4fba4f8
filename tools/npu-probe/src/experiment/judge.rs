// SPDX-License-Identifier: MIT OR Apache-2.0
//! Judges the outcomes of an experiment by the model's: the sides of contested facts on which the
//! model does the same, and what differs.

use std::borrow::Cow;
use std::collections::BTreeSet;

use rknpu_chip::Contested;
use rknpu_regcmd::Precision;
use rknpu_regcmd::regs::dpu;
use serde::{Deserialize, Serialize};

use super::record::on_model;
use super::runner::{SENTINEL, data};
use super::{Experiment, SeenJob, TaskTemplate};
use crate::base::table::ranges;
use crate::matmul::data::hex;

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
        }
    }
}

/// Finds the side of the contested fact that `device` matches, and the model's outcomes on
/// that side or the nearest one. `sides` are names and the model's outcomes; the first is the
/// model's default. On `spoiled` sides wrong values match that differ from the model's.
pub(crate) fn judge(
    device: &[SeenJob],
    sides: &[(&'static str, Vec<SeenJob>)],
    spoiled: &[&str],
) -> (ExperimentOutcome, Vec<SeenJob>) {
    let settled = |&(name, ref seen): &(&'static str, Vec<SeenJob>), exact| {
        let outcome = ExperimentOutcome::Settled {
            side: name.into(),
            is_default: sides.first().is_some_and(|(default, _)| *default == name),
            exact,
        };
        (outcome, seen.clone())
    };
    if let Some(side) = sides.iter().find(|(_, seen)| seen == device) {
        return settled(side, true);
    }
    let mut right = sides.iter().filter(|(name, _)| !spoiled.contains(name));
    if let Some((_, right)) = right.next() {
        let wrong = sides.iter().filter(|(name, _)| spoiled.contains(name));
        let mut like = wrong.filter(|(_, seen)| wrong_like(device, seen, right));
        if let (Some(side), None) = (like.next(), like.next()) {
            return settled(side, false);
        }
    }
    let nearest = sides.iter().min_by_key(|(_, seen)| distance(device, seen));
    let (name, like) = nearest.cloned().unzip();
    let outcome = ExperimentOutcome::Neither {
        nearest: name.map(Into::into),
    };
    (outcome, like.unwrap_or_default())
}

/// Whether `device` is wrong, but only in atoms that are wrong in `spoiled`.
fn wrong_like(device: &[SeenJob], spoiled: &[SeenJob], right: &[SeenJob]) -> bool {
    let mut jobs = device.iter().zip(spoiled).zip(right);
    let is_like = |((device, spoiled), right): ((&SeenJob, &SeenJob), &SeenJob)| {
        let wrong = |job: &SeenJob| job.wrong_atoms(right);
        device.completed == spoiled.completed && wrong(device).is_subset(&wrong(spoiled))
    };
    let lengths = [spoiled, right].map(<[SeenJob]>::len);
    lengths == [device.len(); 2] && device != right && jobs.all(is_like)
}

/// Numbers of jobs that end differently, and of bytes that differ.
fn distance(a: &[SeenJob], b: &[SeenJob]) -> (usize, usize) {
    let pairs = || a.iter().zip(b);
    let ends = pairs().filter(|(a, b)| a.completed != b.completed).count();
    let differing = |(a, b): (&SeenJob, &SeenJob)| {
        let bytes = a.output.iter().zip(&b.output);
        bytes.filter(|(a, b)| a != b).count()
    };
    let bytes = pairs().map(differing).sum();
    (ends + a.len().abs_diff(b.len()), bytes)
}

/// Sides of contested facts on which the model gives the same bytes; else, sides with
/// the same wrong atoms.
pub(crate) fn sides_like(
    experiment: &Experiment,
    seen: &SeenJob,
    right: &SeenJob,
) -> anyhow::Result<Vec<String>> {
    let mut switches: Vec<_> = Contested::SWITCHES.iter().collect();
    switches.sort_by_key(|switch| !FIRST_FACTS.contains(&switch.name));
    let (mut equal, mut same) = (Vec::new(), Vec::new());
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
                same.push(name);
            }
        }
        if !equal.is_empty() {
            return Ok(equal);
        }
    }
    Ok(same)
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
pub(crate) fn wrong_elements(
    experiment: &Experiment,
    seen: &SeenJob,
    right: &SeenJob,
) -> Vec<String> {
    let (seen, right) = (data(experiment, seen), data(experiment, right));
    let mut told = Vec::new();
    let jobs = experiment.jobs.iter().skip(experiment.unobserved);
    let tasks = jobs.take(1).flatten();
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A job's outcome of three atoms.
    fn seen(completed: bool, bytes: [u8; 3]) -> SeenJob {
        let output = bytes.iter().flat_map(|byte| [*byte; ATOM]).collect();
        SeenJob { completed, output }
    }

    /// The side that settles the fact, and whether it is not exact.
    fn on(spoiled: &[&str], device: &[SeenJob], sides: &[(&'static str, Vec<SeenJob>)]) -> String {
        match judge(device, sides, spoiled).0 {
            ExperimentOutcome::Settled {
                side,
                is_default,
                exact,
            } => {
                assert_eq!(is_default, side == sides[0].0);
                format!("{side}{}", if exact { "" } else { ", not exact" })
            }
            ExperimentOutcome::Neither { nearest } => format!("near {}", nearest.unwrap()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn equal_bytes_settle_and_wrong_ones_where_the_side_is_wrong() {
        let sides = [("right", [1, 2, 3]), ("bad", [1, 9, 9])];
        let sides = sides.map(|(name, bytes)| (name, vec![seen(true, bytes)]));
        for (completed, bytes, plain, if_spoiled) in [
            (true, [1, 2, 3], "right", "right"),
            (true, [1, 9, 9], "bad", "bad"),
            (true, [1, 8, 9], "near bad", "bad, not exact"),
            (true, [1, 9, 3], "near right", "bad, not exact"),
            // The device is wrong where the side is right, or its job does not end.
            (true, [0, 9, 6], "near bad", "near bad"),
            (false, [1, 9, 9], "near bad", "near bad"),
        ] {
            let device = [seen(completed, bytes)];
            assert_eq!(on(&[], &device, &sides), plain, "{bytes:?}");
            assert_eq!(on(&["bad"], &device, &sides), if_spoiled, "{bytes:?}");
        }
        let two = [seen(true, [1, 2, 3]), seen(true, [1, 9, 9])];
        assert_eq!(on(&["bad"], &two, &sides), "near right");
    }
}
