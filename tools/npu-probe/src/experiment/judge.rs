// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds the side of a fact that a device shows: the side on which the model does the same.

use super::report::ExperimentOutcome;
use crate::experiment::SeenJob;

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
