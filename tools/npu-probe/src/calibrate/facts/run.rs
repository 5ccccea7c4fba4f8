// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs experiments, and finds the device's side of each contested fact.

use std::thread;
use std::time::Duration;

use anyhow::anyhow;
use rknpu_chip::{Contested, Switch};
use rocket_uapi::Device;

use super::judge::{FactSide, judge, read};
use super::report::{ExperimentOutcome, FactReport};
use super::{Experiment, FACTS, FactToSettle, SettlingMethod, cores};
use crate::exit::Failure;
use crate::experiment::runner::{self, CoreRounds};
use crate::experiment::{SeenJob, model};
use crate::first::{RungRecord, differences};

/// Runs the experiments for the named facts, or for all. `heard` gets each settled fact.
pub(crate) fn settle(
    device: &Device,
    names: &[String],
    risky: bool,
    mut heard: impl FnMut(&FactReport) -> Result<(), Failure>,
) -> Result<Vec<FactReport>, Failure> {
    if !device.info().is_model {
        // The NPU loses power meanwhile; some experiments need a fresh core.
        thread::sleep(IDLE);
    }
    let mut facts = Vec::new();
    let mut known = Contested::default();
    let mut broken = false;
    for (fact, switch) in choose(names)? {
        let sides = switch.map_or(&[][..], |switch| switch.sides);
        let mut report = FactReport::new(
            fact,
            sides,
            ExperimentOutcome::NotRun {
                reason: LEFT_BROKEN.to_owned(),
            },
        );
        if !broken {
            let has_killed =
                settle_one(device, (fact, switch), risky, &mut known, &mut report).map_err(
                    Failure::device(format!("the experiment for {} failed", fact.name)),
                )?;
            if has_killed || (fact.risk.is_some() && risky) {
                broken = !is_healthy(device).map_err(Failure::Device)?;
            }
        }
        heard(&report)?;
        facts.push(report);
    }
    Ok(facts)
}

/// Longer than the driver waits before it cuts the power of an idle core.
const IDLE: Duration = Duration::from_secs(1);

/// Why no experiment runs after a core has stopped working.
const LEFT_BROKEN: &str = "after an earlier experiment a plain matmul does not complete; the NPU \
                           may need a power cycle";

/// Whether all cores that a file uses work. Experiments on a broken core would be
/// meaningless.
pub(crate) fn is_healthy(device: &Device) -> anyhow::Result<bool> {
    let seen = runner::run(device, &cores::health()?)?;
    Ok(seen.iter().all(|job| job.completed))
}

/// An experiment and the switch that it settles; none if the model has one variant only.
type Chosen = (&'static FactToSettle, Option<&'static Switch>);

/// The named facts, or all, in the order of the table.
pub(crate) fn choose(names: &[String]) -> Result<Vec<Chosen>, Failure> {
    for name in names {
        if !FACTS.iter().any(|fact| fact.name == name) {
            let all: Vec<_> = FACTS.iter().map(|fact| fact.name).collect();
            return Err(Failure::Usage(anyhow!(
                "no experiment `{}`; there are {}",
                name.escape_debug(),
                all.join(", ")
            )));
        }
    }
    let wanted = |fact: &&FactToSettle| names.is_empty() || names.iter().any(|n| n == fact.name);
    Ok(FACTS
        .iter()
        .filter(wanted)
        .map(|fact| {
            let switch = |switch: &&Switch| switch.name == fact.name;
            (fact, Contested::SWITCHES.iter().find(switch))
        })
        .collect())
}

/// Settles one fact; returns whether a job of it was killed. `known` gets this fact, and
/// holds those settled before, on which an experiment may depend.
fn settle_one(
    device: &Device,
    (fact, switch): Chosen,
    risky: bool,
    known: &mut Contested,
    report: &mut FactReport,
) -> anyhow::Result<bool> {
    let experiment = match fact.method {
        SettlingMethod::Impossible(reason) => {
            let reason = reason.into();
            report.outcome = ExperimentOutcome::Impossible { reason };
            return Ok(false);
        }
        SettlingMethod::Run(experiment) => experiment()?,
    };
    if let (Some(risk), false) = (fact.risk, risky) {
        let reason = format!("needs --risky, since {risk}");
        report.outcome = ExperimentOutcome::NotRun { reason };
        return Ok(false);
    }
    let (mut record, ran) = RungRecord::start(fact.name, &experiment, device, CoreRounds::ONCE)?;
    let ran = ran?;
    let seen = read(&experiment, &ran.seen);
    let (outcome, like) = match switch {
        Some(switch) => judge(&experiment, &seen, &sides(&experiment, switch, *known)?),
        None => {
            let like = runner::run(&model(*known).open_device(), &experiment)?;
            let like = read(&experiment, &like);
            let as_model = seen == like;
            (ExperimentOutcome::Observed { as_model }, like)
        }
    };
    if let (Some(switch), ExperimentOutcome::Settled { side, .. }) = (switch, &outcome) {
        known.set(&format!("{}={side}", switch.name))?;
    }
    report.outcome = outcome;
    if seen != like {
        report.shown = differences(&experiment, &seen, &like);
        record.keep(&seen, &ran.log, &like)?;
        report.record = Some(record);
    }
    Ok(seen.iter().any(|job: &SeenJob| !job.completed))
}

/// The model's outcomes on each side.
fn sides(
    experiment: &Experiment,
    switch: &Switch,
    known: Contested,
) -> anyhow::Result<Vec<FactSide>> {
    let side = |name: &'static str| {
        let mut contested = known;
        contested.set(&format!("{}={name}", switch.name))?;
        let seen = runner::run(&model(contested).open_device(), experiment)?;
        Ok(FactSide { name, seen })
    };
    switch.sides.iter().copied().map(side).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_contested_fact_has_an_experiment_or_a_reason() {
        for switch in Contested::SWITCHES {
            assert!(
                FACTS.iter().any(|fact| fact.name == switch.name),
                "the model's switch `{}` has no fact in FACTS of npu-probe's \
                 calibrate/facts/mod.rs: write an experiment that distinguishes {:?}, or \
                 document why none is possible",
                switch.name,
                switch.sides
            );
        }
        let mut names: Vec<_> = FACTS.iter().map(|fact| fact.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), FACTS.len(), "two facts have one name");
    }

    /// The outcome of a fact on a model set to `contested`, and whether jobs were killed.
    fn settled(chosen: Chosen, contested: Contested, known: &mut Contested) -> (FactReport, bool) {
        let device = model(contested).open_device();
        let sides = chosen.1.map_or(&[][..], |switch| switch.sides);
        let reason = String::new();
        let mut report = FactReport::new(chosen.0, sides, ExperimentOutcome::NotRun { reason });
        let killed = settle_one(&device, chosen, true, known, &mut report).unwrap();
        (report, killed)
    }

    #[test]
    fn what_has_no_switch_is_seen_as_the_model_does_it() {
        let all = choose(&[]).unwrap();
        let mut observed = 0;
        for chosen in all.into_iter().filter(|(_, switch)| switch.is_none()) {
            let default = Contested::default();
            let (found, killed) = settled(chosen, default, &mut Contested::default());
            let as_model = ExperimentOutcome::Observed { as_model: true };
            assert_eq!(found.outcome, as_model, "{}", found.name);
            assert!(!killed || chosen.0.risk.is_some(), "{}", found.name);
            observed += 1;
        }
        assert!(observed > 0);
    }

    #[test]
    fn a_model_is_found_on_the_side_that_it_is_set_to() {
        for chosen in choose(&[]).unwrap() {
            let (fact, Some(switch)) = chosen else {
                continue;
            };
            if let SettlingMethod::Impossible(reason) = fact.method {
                assert!(!reason.is_empty());
                continue;
            }
            for side in switch.sides {
                let what = format!("{}={side}", switch.name);
                let mut contested = Contested::default();
                contested.set(&what).unwrap();
                let mut known = Contested::default();
                let (found, killed) = settled(chosen, contested, &mut known);
                let is_default = *side == switch.sides[0];
                let wanted = ExperimentOutcome::Settled {
                    side: (*side).into(),
                    is_default,
                    exact: true,
                };
                assert_eq!(found.outcome, wanted, "{what}");
                assert_eq!(known, contested, "{what}");
                assert!(found.record.is_none() && found.shown.is_empty(), "{what}");
                // On the default side only experiments that are meant to hang are killed.
                assert!(!killed || !is_default || *side == "hangs", "{what}");
            }
        }
    }

    #[test]
    fn risky_experiments_come_last() {
        let risky: Vec<_> = FACTS.iter().map(|fact| fact.risk.is_some()).collect();
        assert!(risky.is_sorted());
        assert!(risky.contains(&true));
    }
}
