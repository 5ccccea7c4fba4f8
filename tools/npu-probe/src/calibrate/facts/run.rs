// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs experiments, and finds the device's side of each contested fact.

use std::thread;
use std::time::Duration;

use anyhow::anyhow;
use rknpu_chip::Contested;
use rocket_uapi::Device;

use super::judge::{FactSide, judge};
use super::report::{ExperimentOutcome, FactReport};
use super::{FACTS, FactToSettle, SettlingMethod, cores};
use crate::exit::Failure;
use crate::experiment::runner::{self, CoreRounds};
use crate::first::{RungRecord, differences};
use crate::table::joined;

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
    for fact in choose(names)? {
        let mut report = FactReport::new(fact);
        if !broken {
            let has_killed = settle_one(device, fact, risky, &mut known, &mut report).map_err(
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

/// Whether all cores that a file uses work. Experiments on a broken core would be
/// meaningless.
pub(crate) fn is_healthy(device: &Device) -> anyhow::Result<bool> {
    let seen = runner::run(device, &cores::health()?)?;
    Ok(seen.iter().all(|job| job.completed))
}

/// The named facts, or all, in the order of the table.
pub(crate) fn choose(names: &[String]) -> Result<Vec<&'static FactToSettle>, Failure> {
    for name in names {
        if !FACTS.iter().any(|fact| fact.name == name) {
            let all = joined(FACTS.iter().map(|fact| fact.name), ", ");
            let name = name.escape_debug();
            return Err(Failure::Usage(anyhow!(
                "no experiment `{name}`; there are {all}"
            )));
        }
    }
    let wanted = |fact: &&FactToSettle| names.is_empty() || names.iter().any(|n| n == fact.name);
    Ok(FACTS.iter().filter(wanted).collect())
}

/// Settles one fact; returns whether a job of it was killed. `known` gets this fact, and
/// holds those settled before, on which an experiment may depend.
fn settle_one(
    device: &Device,
    fact: &FactToSettle,
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
    let (mut record, seen) = RungRecord::start(fact.name, &experiment, device, CoreRounds::ONCE)?;
    let seen = seen?;
    let like = match fact.switch() {
        Some(switch) => {
            let side = |name: &'static str| {
                let mut contested = *known;
                contested.set(&format!("{}={name}", switch.name))?;
                anyhow::Ok(FactSide {
                    name,
                    seen: runner::run_on_model(&experiment, contested)?,
                })
            };
            let sides: Vec<_> = switch
                .sides
                .iter()
                .copied()
                .map(side)
                .collect::<Result<_, _>>()?;
            let (outcome, like) = judge(&seen, &sides, experiment.spoiled);
            if let ExperimentOutcome::Settled { side, .. } = &outcome {
                known.set(&format!("{}={side}", switch.name))?;
            }
            report.outcome = outcome;
            like
        }
        None => {
            let like = runner::run_on_model(&experiment, *known)?;
            let as_model = seen == like;
            report.outcome = ExperimentOutcome::Observed { as_model };
            like
        }
    };
    if seen != like {
        report.shown = differences(&experiment, &seen, &like);
        record.keep(&seen, &like)?;
        report.record = Some(record);
    }
    Ok(seen.iter().any(|job| !job.completed))
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
    fn settled(
        fact: &FactToSettle,
        contested: Contested,
        known: &mut Contested,
    ) -> (FactReport, bool) {
        let device = runner::model(contested).open_device();
        let mut report = FactReport::new(fact);
        let killed = settle_one(&device, fact, true, known, &mut report).unwrap();
        (report, killed)
    }

    #[test]
    fn what_has_no_switch_is_seen_as_the_model_does_it() {
        let mut observed = 0;
        for fact in FACTS.iter().filter(|fact| fact.switch().is_none()) {
            let default = Contested::default();
            let (found, killed) = settled(fact, default, &mut Contested::default());
            let as_model = ExperimentOutcome::Observed { as_model: true };
            assert_eq!(found.outcome, as_model, "{}", found.name);
            assert!(!killed || fact.risk.is_some(), "{}", found.name);
            observed += 1;
        }
        assert!(observed > 0);
    }

    #[test]
    fn a_model_is_found_on_the_side_that_it_is_set_to() {
        for fact in FACTS {
            let Some(switch) = fact.switch() else {
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
                let (found, killed) = settled(fact, contested, &mut known);
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
