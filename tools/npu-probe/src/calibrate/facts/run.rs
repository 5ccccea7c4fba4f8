// SPDX-License-Identifier: MIT OR Apache-2.0
//! On which side of contested facts is a device?

use std::thread;
use std::time::Duration;

use anyhow::{Context, anyhow};
use rknpu_chip::{Contested, Switch};
use rocket_uapi::Device;

use super::judge::FactSide;
use super::report::{ExperimentOutcome, FactReport};
use super::{Experiment, FACTS, FactToSettle, SettlingMethod, cores};
use crate::exit::Failure;
use crate::experiment::{model, runner};

/// Runs the experiments for these facts, all if none is named; `say` hears of each.
pub(crate) fn settle(
    device: &Device,
    names: &[String],
    risky: bool,
    say: impl Fn(&str) -> Result<(), Failure>,
) -> Result<Vec<FactReport>, Failure> {
    if !device.info().is_model {
        // Until the NPU has lost power, for what needs a fresh core.
        thread::sleep(IDLE);
    }
    let mut facts = Vec::new();
    let mut known = Contested::default();
    let mut broken = false;
    for (fact, switch) in choose(names)? {
        let outcome = if broken {
            let reason = LEFT_BROKEN.to_owned();
            Ok(ExperimentOutcome::NotRun { reason })
        } else {
            outcome(device, fact, switch, risky, &mut known)
        };
        let outcome = outcome
            .with_context(|| format!("the experiment for {} failed", fact.name))
            .map_err(Failure::Device)?;
        if outcome.has_killed() || (fact.risk.is_some() && risky && !broken) {
            broken = !is_healthy(device).map_err(Failure::Device)?;
        }
        let sides = switch.map_or(&[][..], |switch| switch.sides);
        let fact = FactReport::new(fact, sides, outcome);
        say(&fact.text())?;
        facts.push(fact);
    }
    Ok(facts)
}

/// Longer than the driver waits before it cuts the power of an idle core.
const IDLE: Duration = Duration::from_secs(1);

/// Why nothing more is run once a core does not work.
const LEFT_BROKEN: &str = "after an earlier experiment a plain product does not run to its end: \
                           the NPU may need a power cycle";

/// Whether all cores that a file uses work: what is run on one that does not
/// would say nothing.
pub(crate) fn is_healthy(device: &Device) -> anyhow::Result<bool> {
    let seen = runner::run(device, &cores::health()?)?;
    Ok(seen.iter().all(|job| job.completed))
}

/// An experiment, and the switch that it settles; without one, the model has
/// one way only.
type Chosen = (&'static FactToSettle, Option<&'static Switch>);

/// The facts that are named, all if none is, in the order of the table.
pub(crate) fn choose(names: &[String]) -> Result<Vec<Chosen>, Failure> {
    for name in names {
        if !FACTS.iter().any(|fact| fact.name == name) {
            let all: Vec<_> = FACTS.iter().map(|fact| fact.name).collect();
            return Err(Failure::Usage(anyhow!(
                "there is no experiment `{}`, but {}",
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

/// Settles one fact. `known` has the facts that are settled already, and gets
/// this one: experiments may depend on others than their own.
fn outcome(
    device: &Device,
    fact: &FactToSettle,
    switch: Option<&Switch>,
    risky: bool,
    known: &mut Contested,
) -> anyhow::Result<ExperimentOutcome> {
    let experiment = match fact.method {
        SettlingMethod::Impossible(reason) => return Ok(ExperimentOutcome::Impossible { reason }),
        SettlingMethod::Run(experiment) => experiment()?,
    };
    if let (Some(risk), false) = (fact.risk, risky) {
        let reason = format!("needs --risky, since {risk}");
        return Ok(ExperimentOutcome::NotRun { reason });
    }
    let seen = runner::run(device, &experiment)?;
    let Some(switch) = switch else {
        let model = runner::run(&model(*known).open_device(), &experiment)?;
        return Ok(ExperimentOutcome::observed(&experiment, &seen, &model));
    };
    let sides = sides(&experiment, switch, *known)?;
    let default = switch.sides.first().copied().unwrap_or_default();
    let outcome = ExperimentOutcome::of(&experiment, default, &seen, &sides);
    if let ExperimentOutcome::Settled { side, .. } = &outcome {
        known.set(&format!("{}={side}", switch.name))?;
    }
    Ok(outcome)
}

/// What the model does on each side.
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
                "the model's switch `{}` has no fact in FACTS of npu-probe's calibrate/facts/mod.rs: \
                 write an experiment that tells {:?} apart, or say why there can be none",
                switch.name,
                switch.sides
            );
        }
        let mut names: Vec<_> = FACTS.iter().map(|fact| fact.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), FACTS.len(), "two facts have one name");
    }

    #[test]
    fn what_has_no_switch_is_seen_as_the_model_does_it() {
        let all = choose(&[]).unwrap();
        let mut observed = 0;
        for (fact, _) in all.into_iter().filter(|(_, switch)| switch.is_none()) {
            let device = model(Contested::default()).open_device();
            let found = outcome(&device, fact, None, true, &mut Contested::default());
            let Ok(ExperimentOutcome::Observed { as_model, jobs }) = &found else {
                panic!("{}, which is no switch of the model: {found:#?}", fact.name);
            };
            assert!(as_model, "{}: {found:#?}", fact.name);
            let ended = jobs.iter().all(|job| job.completed);
            assert!(ended || fact.risk.is_some(), "{}", fact.name);
            observed += 1;
        }
        assert!(observed > 0);
    }

    #[test]
    fn a_model_is_found_on_the_side_that_it_is_set_to() {
        let mut wrong = Vec::new();
        for (fact, switch) in choose(&[]).unwrap() {
            let Some(switch) = switch else { continue };
            if let SettlingMethod::Impossible(reason) = fact.method {
                assert!(!reason.is_empty());
                continue;
            }
            for side in switch.sides {
                let mut contested = Contested::default();
                contested.set(&format!("{}={side}", switch.name)).unwrap();
                let device = model(contested).open_device();
                let mut known = Contested::default();
                let found = outcome(&device, fact, Some(switch), true, &mut known);
                let is_it = matches!(
                    &found,
                    Ok(ExperimentOutcome::Settled { side: found, exact: true, is_default, .. })
                        if found == side && *is_default == (*side == switch.sides[0])
                );
                // By default, whatever is not meant to hang ends by itself.
                let ended = match &found {
                    Ok(ExperimentOutcome::Settled { jobs, .. }) => {
                        jobs.iter().all(|job| job.completed)
                    }
                    _ => false,
                };
                let hangs = *side != switch.sides[0] || *side == "hangs";
                if !is_it || known != contested || !(ended || hangs) {
                    wrong.push(format!("{}={side}: {found:#?}", switch.name));
                }
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[test]
    fn risky_experiments_come_last() {
        let risky: Vec<_> = FACTS.iter().map(|fact| fact.risk.is_some()).collect();
        assert!(risky.is_sorted());
        assert!(risky.contains(&true));
    }
}
