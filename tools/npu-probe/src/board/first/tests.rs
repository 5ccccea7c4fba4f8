// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks that rungs do what their names say.

use std::collections::BTreeSet;
use std::num::NonZeroU64;
use std::time::Duration;

use npu_model::{Damage, Model, ModelOptions};
use rknpu_chip::Contested;
use rknpu_regcmd::regs::cna;
use rocket_uapi::DeviceInfo;

use super::ladder::{form_a_behind_flying, subnormals};
use super::{LADDER, Rung};
use crate::experiment::record::expected;
use crate::experiment::runner::{
    CoreRounds, ExperimentLog, SENTINEL, data, run_on_cores, run_on_model,
};
use crate::experiment::{Experiment, TaskTemplate};

fn experiment(name: &str) -> Experiment {
    Rung::named(name).unwrap().experiment().unwrap()
}

fn last_task(name: &str) -> TaskTemplate {
    experiment(name).jobs[0].last().unwrap().clone()
}

#[test]
fn parents_come_first_and_names_once() {
    let mut known = BTreeSet::new();
    for rung in LADDER {
        for parent in rung.parents {
            assert!(known.contains(parent), "{}: {parent}", rung.name);
        }
        assert!(known.insert(rung.name), "{} is there twice", rung.name);
        let has_evidence = rung.what.contains("(E-") || rung.name == "driver";
        assert!(has_evidence, "{}: who has run it?", rung.name);
    }
}

/// The planner's rules could silently leave a bit unset.
#[test]
fn rungs_of_reuse_and_streaming_do_so() {
    for rung in LADDER.iter().filter(|rung| rung.name.contains("reuse")) {
        let cbuf = last_task(rung.name).value::<cna::CbufCon0>();
        let is_weights = rung.name.contains("weight");
        let set = [cbuf.data_reuse(), cbuf.weight_reuse()];
        assert_eq!(
            set,
            [!is_weights, is_weights].map(u32::from),
            "{}",
            rung.name
        );
    }
    for rung in LADDER.iter().filter(|rung| rung.name.contains("streams")) {
        let task = last_task(rung.name);
        let bytes = task.value::<cna::WeightSize0>().weight_bytes();
        let banks = task.value::<cna::CbufCon0>().weight_bank();
        let what = format!("{}: {bytes} in {banks} banks", rung.name);
        assert!(bytes > banks << 15, "{what}");
    }
    let count = |name: &str| experiment(name).jobs[0].len();
    let tasks = ["tasks-2", "tasks-16", "tasks", "tasks-128"];
    assert_eq!(tasks.map(count), [2, 16, 64, 128]);
    let cbuf = last_task("int8-weight-banks").value::<cna::CbufCon0>();
    assert_eq!((cbuf.data_bank(), cbuf.weight_bank()), (1, 11));
}

/// Files that stay open reach all cores equally often; a single file alternates
/// between two.
#[test]
fn a_rung_runs_three_times_on_each_core() {
    let [rung, large] = ["fp16", "fp16-streams-large"].map(|name| Rung::named(name).unwrap());
    let experiment = rung.experiment().unwrap();
    let model = Model::new(ModelOptions {
        timeline: true,
        ..ModelOptions::default()
    });
    let device = model.open_device();
    let software = device.info();
    let board = DeviceInfo {
        is_model: false,
        ..software.clone()
    };
    let together = CoreRounds {
        at_once: true,
        ..rung.rounds(&experiment, &board, &[])
    };
    for (rounds, wanted) in [
        (rung.rounds(&experiment, &board, &[]), 3),
        (together, 3),
        (rung.rounds(&experiment, &software, &[]), 1),
    ] {
        let before = model.timeline().unwrap().jobs().len();
        let mut log = ExperimentLog::default();
        let seen = run_on_cores(&device, &experiment, rounds, &mut log).unwrap();
        assert_eq!(seen.len(), 3 * wanted);
        let mut runs = [0; 3];
        for (_, time) in model.timeline().unwrap().jobs().skip(before) {
            runs[time.core as usize] += 1;
        }
        assert_eq!(runs, [wanted; 3], "{rounds:?}");
    }
    // Large rungs run once on each core of a board, and once on the model.
    let experiment = large.experiment().unwrap();
    for (device, files) in [(board, 3), (software, 1)] {
        let rounds = large.rounds(&experiment, &device, &[]);
        assert_eq!((rounds.files, rounds.rounds), (files, 1));
    }
}

/// A chip that flushes subnormal operands to 0 shows in whole rows and columns.
#[test]
fn flushed_subnormals_show_in_their_rows_and_columns() {
    let experiment = subnormals().unwrap();
    let right = expected(&experiment).unwrap().unwrap();
    let flushed = |operand: usize| {
        let mut experiment = experiment.clone();
        for half in experiment.inputs[operand].as_chunks_mut::<2>().0 {
            if !half::f16::from_le_bytes(*half).is_normal() {
                *half = [0; 2];
            }
        }
        let seen = run_on_model(&experiment, Contested::default()).unwrap();
        let (seen, right) = (data(&experiment, &seen[0]), data(&experiment, &right));
        let pairs = seen.chunks(4).zip(right.chunks(4)).enumerate();
        // Each atom holds four channels of a row; the atoms of all rows follow each
        // other.
        let place = |index: usize| (index / 4 % 4, index / 16 * 4 + index % 4);
        let wrong = pairs.filter(|(_, (seen, right))| seen != right);
        wrong
            .map(|(index, _)| place(index))
            .collect::<BTreeSet<_>>()
    };
    let all = (0..4).flat_map(|row| (0..16).map(move |column| (row, column)));
    let feature_rows = all.clone().filter(|(row, _)| *row >= 2).collect();
    let weight_columns = all.filter(|(_, column)| *column >= 8).collect();
    assert_eq!([flushed(0), flushed(1)], [feature_rows, weight_columns]);
}

#[test]
fn the_addition_in_front_leaves_its_own_result() {
    let experiment = form_a_behind_flying().unwrap();
    let seen = expected(&experiment).unwrap().unwrap();
    assert!(seen.completed);
    let sums = &data(&experiment, &seen)[256..];
    assert!(sums.iter().any(|byte| *byte != SENTINEL));
}

/// Each task of a job of several types, and of several buffers of weights, has a separate result.
#[test]
fn every_task_of_a_mixed_job_counts() {
    for (name, tasks) in [("types", 3), ("two-weights", 2)] {
        let right = expected(&experiment(name)).unwrap().unwrap();
        assert!(right.completed, "{name}");
        let whole = data(&experiment(name), &right).to_vec();
        for task in 0..tasks {
            let mut fewer = experiment(name);
            fewer.jobs[0].remove(task);
            let seen = run_on_model(&fewer, Contested::default()).unwrap();
            assert_ne!(data(&fewer, &seen[0]), whole, "{name}, {task}");
        }
    }
}

/// Each fifth job never starts: the last round is repeated, and these jobs run again.
#[test]
fn jobs_that_never_start_run_again_and_are_counted() {
    let rung = Rung::named("minute").unwrap();
    let experiment = rung.experiment().unwrap();
    let damage = Damage {
        stall: NonZeroU64::new(5),
        ..Damage::default()
    };
    for (damage, stalls) in [(Damage::default(), false), (damage, true)] {
        let model = Model::new(ModelOptions {
            hang_timeout: Duration::ZERO,
            damage,
            ..ModelOptions::default()
        });
        let device = model.open_device();
        let rounds = rung.rounds(&experiment, &device.info(), &[]);
        assert!(rounds.at_once && !rounds.lasting.is_zero());
        let dead = rung.rounds(&experiment, &device.info(), &[1]);
        assert!(dead.lasting.is_zero());
        let mut log = ExperimentLog::default();
        let seen = run_on_cores(&device, &experiment, rounds, &mut log).unwrap();
        let right = expected(&experiment).unwrap().unwrap();
        // The jobs of the round before the repeated ones are not submitted again.
        assert!(seen[3..].iter().all(|job| *job == right));
        assert!(log.repeated > 0);
        assert_eq!(log.not_started > 0, stalls);
    }
}
