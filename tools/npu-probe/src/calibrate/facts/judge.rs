// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds the side of a fact that a device shows: the side on which the model does the same.

use super::report::ExperimentOutcome;
use crate::experiment::{Experiment, OutcomeOrder, SeenJob};

/// The model's outcomes on one side.
#[derive(Clone, Debug)]
pub(crate) struct FactSide {
    pub(crate) name: &'static str,
    pub(crate) seen: Vec<SeenJob>,
}

/// Finds the side of the contested fact that `device` matches, and the model's outcomes on
/// that side or the nearest one. The first of `sides` is the model's default.
pub(crate) fn judge(
    experiment: &Experiment,
    device: &[SeenJob],
    sides: &[FactSide],
) -> (ExperimentOutcome, Vec<SeenJob>) {
    let device = read(experiment, device);
    let shown: Vec<(&FactSide, Vec<SeenJob>)> = sides
        .iter()
        .map(|side| (side, read(experiment, &side.seen)))
        .collect();
    let default = sides.first().map(|side| side.name);
    let settled = |side: &'static str, exact| ExperimentOutcome::Settled {
        side: side.into(),
        is_default: default == Some(side),
        exact,
    };
    if let Some((side, seen)) = shown.iter().find(|(_, seen)| *seen == device) {
        return (settled(side.name, true), seen.clone());
    }
    let is_spoiled = |side: &FactSide| experiment.spoiled.contains(&side.name);
    let right = shown.iter().find(|(side, _)| !is_spoiled(side));
    if let Some((_, right)) = right {
        let mut like = shown
            .iter()
            .filter(|(side, seen)| is_spoiled(side) && wrong_like(&device, seen, right));
        if let (Some((side, seen)), None) = (like.next(), like.next()) {
            return (settled(side.name, false), seen.clone());
        }
    }
    let nearest = shown.iter().min_by_key(|(_, seen)| distance(&device, seen));
    let outcome = ExperimentOutcome::Neither {
        nearest: nearest.map(|(side, _)| side.name.into()),
    };
    (
        outcome,
        nearest.map(|(_, seen)| seen.clone()).unwrap_or_default(),
    )
}

/// The outcomes `seen`; sorted and without duplicates if the experiment ignores their
/// order.
pub(crate) fn read(experiment: &Experiment, seen: &[SeenJob]) -> Vec<SeenJob> {
    let mut seen = seen.to_vec();
    if experiment.reading == OutcomeOrder::AnyOrder {
        seen.sort();
        seen.dedup();
    }
    seen
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
    (
        ends + a.len().abs_diff(b.len()),
        pairs().map(differing).sum(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const ATOM: usize = rknpu_regcmd::ATOM_BYTES as usize;

    fn experiment(reading: OutcomeOrder, spoiled: &'static [&'static str]) -> Experiment {
        Experiment {
            inputs: Vec::new(),
            output: 48,
            jobs: Vec::new(),
            reading,
            spoiled,
            placement: crate::experiment::Placement::Guarded,
        }
    }

    fn seen(completed: bool, bytes: [u8; 3]) -> SeenJob {
        let output = bytes.iter().flat_map(|byte| [*byte; ATOM]).collect();
        SeenJob { completed, output }
    }

    fn sides() -> [FactSide; 2] {
        let side = |name, bytes| FactSide {
            name,
            seen: vec![seen(true, bytes)],
        };
        [side("right", [1, 2, 3]), side("bad", [1, 9, 9])]
    }

    fn settled(side: &'static str, is_default: bool, exact: bool) -> ExperimentOutcome {
        ExperimentOutcome::Settled {
            side: side.into(),
            is_default,
            exact,
        }
    }

    #[test]
    fn equal_bytes_settle() {
        let each = experiment(OutcomeOrder::EachJob, &[]);
        let on = |device: SeenJob| judge(&each, &[device], &sides()).0;
        assert_eq!(on(seen(true, [1, 2, 3])), settled("right", true, true));
        assert_eq!(on(seen(true, [1, 9, 9])), settled("bad", false, true));
        let nearest = Some("bad".into());
        let neither = ExperimentOutcome::Neither { nearest };
        assert_eq!(on(seen(true, [1, 8, 9])), neither);
        assert_eq!(on(seen(false, [1, 9, 9])), neither);
    }

    #[test]
    fn wrong_bytes_may_be_others_where_the_side_is_wrong() {
        let spoiled = experiment(OutcomeOrder::EachJob, &["bad"]);
        let on = |device: SeenJob| judge(&spoiled, &[device], &sides()).0;
        assert_eq!(on(seen(true, [1, 7, 6])), settled("bad", false, false));
        assert_eq!(on(seen(true, [1, 2, 6])), settled("bad", false, false));
        // The device is wrong where the side is right, or its job does not end.
        assert!(matches!(
            on(seen(true, [0, 7, 6])),
            ExperimentOutcome::Neither { .. }
        ));
        assert!(matches!(
            on(seen(false, [1, 7, 6])),
            ExperimentOutcome::Neither { .. }
        ));
        assert_eq!(on(seen(true, [1, 2, 3])), settled("right", true, true));
    }

    #[test]
    fn jobs_on_cores_that_nobody_chose_count_in_any_order() {
        let any = experiment(OutcomeOrder::AnyOrder, &[]);
        let good = seen(true, [1, 2, 3]);
        let hung = seen(false, [0, 0, 0]);
        let sides = [
            FactSide {
                name: "good",
                seen: vec![good.clone(); 4],
            },
            FactSide {
                name: "hangs",
                seen: vec![good.clone(), hung.clone(), good.clone(), hung.clone()],
            },
        ];
        let on = |device: &[SeenJob]| judge(&any, device, &sides).0;
        assert_eq!(
            on(&[good.clone(), good.clone()]),
            settled("good", true, true)
        );
        assert_eq!(
            on(&[hung.clone(), hung.clone(), good]),
            settled("hangs", false, true)
        );
        assert!(matches!(on(&[hung]), ExperimentOutcome::Neither { .. }));
    }
}
