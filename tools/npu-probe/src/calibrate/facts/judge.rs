// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds the side of a fact that a device shows: the side on which the model does the same.

use super::report::ExperimentOutcome;
use crate::experiment::SeenJob;

/// The model's outcomes on one side.
#[derive(Clone, Debug)]
pub(crate) struct FactSide {
    pub(crate) name: &'static str,
    pub(crate) seen: Vec<SeenJob>,
}

/// Finds the side of the contested fact that `device` matches, and the model's outcomes on
/// that side or the nearest one. The first of `sides` is the model's default. On `spoiled`
/// sides wrong values match that differ from the model's.
pub(crate) fn judge(
    device: &[SeenJob],
    sides: &[FactSide],
    spoiled: &[&str],
) -> (ExperimentOutcome, Vec<SeenJob>) {
    let settled = |side: &FactSide, exact| {
        let outcome = ExperimentOutcome::Settled {
            side: side.name.into(),
            is_default: sides.first().map(|side| side.name) == Some(side.name),
            exact,
        };
        (outcome, side.seen.clone())
    };
    if let Some(side) = sides.iter().find(|side| side.seen == device) {
        return settled(side, true);
    }
    let is_spoiled = |side: &&FactSide| spoiled.contains(&side.name);
    if let Some(right) = sides.iter().find(|side| !is_spoiled(side)) {
        let is_like = |side: &&FactSide| wrong_like(device, &side.seen, &right.seen);
        let mut like = sides.iter().filter(is_spoiled).filter(is_like);
        if let (Some(side), None) = (like.next(), like.next()) {
            return settled(side, false);
        }
    }
    let nearest = sides.iter().min_by_key(|side| distance(device, &side.seen));
    let outcome = ExperimentOutcome::Neither {
        nearest: nearest.map(|side| side.name.into()),
    };
    let like = nearest.map(|side| side.seen.clone());
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

#[cfg(test)]
mod tests {
    use super::*;

    const ATOM: usize = rknpu_regcmd::ATOM_BYTES as usize;

    /// A job's outcome of three atoms.
    fn seen(completed: bool, bytes: [u8; 3]) -> SeenJob {
        let output = bytes.iter().flat_map(|byte| [*byte; ATOM]).collect();
        SeenJob { completed, output }
    }

    /// The side that settles the fact, and whether it is not exact.
    fn on(spoiled: &[&str], device: &[SeenJob], sides: &[FactSide]) -> String {
        match judge(device, sides, spoiled).0 {
            ExperimentOutcome::Settled {
                side,
                is_default,
                exact,
            } => {
                assert_eq!(is_default, side == sides[0].name);
                format!("{side}{}", if exact { "" } else { ", not exact" })
            }
            ExperimentOutcome::Neither { nearest } => format!("near {}", nearest.unwrap()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn equal_bytes_settle_and_wrong_ones_where_the_side_is_wrong() {
        let sides = [("right", [1, 2, 3]), ("bad", [1, 9, 9])].map(|(name, bytes)| FactSide {
            name,
            seen: vec![seen(true, bytes)],
        });
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
