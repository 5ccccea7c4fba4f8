// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which side of a fact a device shows: that on which the model does the same.

use serde::Serialize;

use crate::data::hex;
use crate::experiment::runner::GUARD;
use crate::experiment::{Experiment, OutcomeOrder, SeenJob};

/// Bytes of an atom: the unit in which part of an output is wrong.
const ATOM: usize = rknpu_regcmd::ATOM_BYTES as usize;

/// Most stretches of differing bytes that are told, and most bytes of each.
const STRETCHES_MAX: usize = 64;
const STRETCH_BYTES_MAX: usize = 64;

/// What a model with one side does.
#[derive(Clone, Debug)]
pub(crate) struct FactSide {
    pub(crate) name: &'static str,
    pub(crate) seen: Vec<SeenJob>,
}

/// The side of a contested fact that a device shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Judgement {
    /// The device does what the model does on this side, to the byte.
    Exactly(&'static str),
    /// The device is wrong where the model is on this side, with other wrong values.
    ButForWrongBytes(&'static str),
    /// The device does what the model does on no side.
    Neither {
        /// The side that it differs least from; `None` if there are no sides.
        nearest: Option<&'static str>,
    },
}

/// Finds the side of the contested fact on which `device` is.
pub(crate) fn judge(experiment: &Experiment, device: &[SeenJob], sides: &[FactSide]) -> Judgement {
    let device = read(experiment, device);
    let shown: Vec<(&FactSide, Vec<SeenJob>)> = sides
        .iter()
        .map(|side| (side, read(experiment, &side.seen)))
        .collect();
    if let Some((side, _)) = shown.iter().find(|(_, seen)| *seen == device) {
        return Judgement::Exactly(side.name);
    }
    let is_spoiled = |side: &FactSide| experiment.spoiled.contains(&side.name);
    let right = shown.iter().find(|(side, _)| !is_spoiled(side));
    if let Some((_, right)) = right {
        let mut like = shown
            .iter()
            .filter(|(side, seen)| is_spoiled(side) && wrong_like(&device, seen, right));
        if let (Some((side, _)), None) = (like.next(), like.next()) {
            return Judgement::ButForWrongBytes(side.name);
        }
    }
    let nearest = shown
        .iter()
        .min_by_key(|(_, seen)| distance(&device, seen))
        .map(|(side, _)| side.name);
    Judgement::Neither { nearest }
}

/// The outcomes `seen`, without their order where the experiment says that it means
/// nothing.
pub(crate) fn read(experiment: &Experiment, seen: &[SeenJob]) -> Vec<SeenJob> {
    let mut seen = seen.to_vec();
    if experiment.reading == OutcomeOrder::AnyOrder {
        seen.sort();
        seen.dedup();
    }
    seen
}

/// Whether `device` is wrong only in atoms in which `spoiled` is.
fn wrong_like(device: &[SeenJob], spoiled: &[SeenJob], right: &[SeenJob]) -> bool {
    device.len() == spoiled.len()
        && device.len() == right.len()
        && device != right
        && device
            .iter()
            .zip(spoiled)
            .zip(right)
            .all(|((device, spoiled), right)| {
                let atoms = |seen: &'_ SeenJob| -> Vec<Vec<u8>> {
                    seen.output.chunks(ATOM).map(<[u8]>::to_vec).collect()
                };
                device.completed == spoiled.completed
                    && atoms(device)
                        .iter()
                        .zip(&atoms(spoiled))
                        .zip(&atoms(right))
                        .all(|((device, spoiled), right)| device == right || spoiled != right)
            })
}

/// Jobs that end otherwise, then bytes that differ.
fn distance(a: &[SeenJob], b: &[SeenJob]) -> (usize, usize) {
    let pairs = || a.iter().zip(b);
    let ends = pairs().filter(|(a, b)| a.completed != b.completed).count();
    let bytes = pairs().map(|(a, b)| differing(&a.output, &b.output).count());
    (ends + a.len().abs_diff(b.len()), bytes.sum())
}

fn differing<'a>(a: &'a [u8], b: &'a [u8]) -> impl Iterator<Item = usize> + 'a {
    let pairs = a.iter().zip(b).enumerate();
    pairs.filter(|(_, (a, b))| a != b).map(|(at, _)| at)
}

/// Bytes in a row of which each differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct DifferingBytes {
    /// The first byte, counted from the beginning of the output; below it is
    /// room that no program should touch.
    pub(crate) offset: i64,
    /// The device's bytes, in hexadecimal.
    pub(crate) device: String,
    /// The model's bytes, in hexadecimal.
    pub(crate) model: String,
}

/// The first stretches in which `device` differs from `model`.
pub(crate) fn stretches(device: &[u8], model: &[u8]) -> Vec<DifferingBytes> {
    let mut ranges: Vec<std::ops::Range<usize>> = Vec::new();
    for at in differing(device, model) {
        if let Some(range) = ranges.last_mut()
            && range.end == at
            && range.len() < STRETCH_BYTES_MAX
        {
            range.end += 1;
        } else if ranges.len() < STRETCHES_MAX {
            ranges.push(at..at + 1);
        } else {
            break;
        }
    }
    ranges
        .into_iter()
        .map(|range| DifferingBytes {
            offset: range.start as i64 - GUARD as i64,
            device: hex(device.get(range.clone()).unwrap_or_default()),
            model: hex(model.get(range).unwrap_or_default()),
        })
        .collect()
}

/// Number of bytes that differ.
pub(crate) fn count(device: &[u8], model: &[u8]) -> usize {
    differing(device, model).count()
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn equal_bytes_settle() {
        let each = experiment(OutcomeOrder::EachJob, &[]);
        let on = |device: SeenJob| judge(&each, &[device], &sides());
        assert_eq!(on(seen(true, [1, 2, 3])), Judgement::Exactly("right"));
        assert_eq!(on(seen(true, [1, 9, 9])), Judgement::Exactly("bad"));
        let nearest = Some("bad");
        assert_eq!(on(seen(true, [1, 8, 9])), Judgement::Neither { nearest });
        assert_eq!(on(seen(false, [1, 9, 9])), Judgement::Neither { nearest });
    }

    #[test]
    fn wrong_bytes_may_be_others_where_the_side_is_wrong() {
        let spoiled = experiment(OutcomeOrder::EachJob, &["bad"]);
        let on = |device: SeenJob| judge(&spoiled, &[device], &sides());
        assert_eq!(
            on(seen(true, [1, 7, 6])),
            Judgement::ButForWrongBytes("bad")
        );
        assert_eq!(
            on(seen(true, [1, 2, 6])),
            Judgement::ButForWrongBytes("bad")
        );
        // Wrong where that side is right, or no end.
        assert!(matches!(
            on(seen(true, [0, 7, 6])),
            Judgement::Neither { .. }
        ));
        assert!(matches!(
            on(seen(false, [1, 7, 6])),
            Judgement::Neither { .. }
        ));
        assert_eq!(on(seen(true, [1, 2, 3])), Judgement::Exactly("right"));
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
        let on = |device: &[SeenJob]| judge(&any, device, &sides);
        assert_eq!(
            on(&[good.clone(), good.clone()]),
            Judgement::Exactly("good")
        );
        assert_eq!(
            on(&[hung.clone(), hung.clone(), good]),
            Judgement::Exactly("hangs")
        );
        assert!(matches!(on(&[hung]), Judgement::Neither { .. }));
    }

    #[test]
    fn differing_bytes_are_told_in_stretches() {
        let mut device = vec![0_u8; GUARD + 300];
        let model = device.clone();
        assert!(stretches(&device, &model).is_empty());
        device[GUARD - 1] = 5;
        device[GUARD] = 6;
        device[GUARD + 9] = 0xab;
        let told = stretches(&device, &model);
        assert_eq!((told.len(), told[0].offset, told[1].offset), (2, -1, 9));
        assert_eq!(
            (told[0].device.as_str(), told[0].model.as_str()),
            ("0506", "0000")
        );
        assert_eq!(count(&device, &model), 3);
        // However much differs, what is told stays short.
        device.fill(1);
        let told = stretches(&device, &model);
        assert_eq!(told.len(), STRETCHES_MAX);
        assert!(
            told.iter()
                .all(|one| one.device.len() <= 2 * STRETCH_BYTES_MAX)
        );
    }
}
