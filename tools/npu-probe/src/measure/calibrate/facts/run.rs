// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs experiments, and finds the device's side of each contested fact.

use std::thread;
use std::time::Duration;

use anyhow::anyhow;
use rknpu_chip::Contested;
use rocket_uapi::Device;

use super::list::{FACTS, FactToSettle};
use super::report::FactReport;
use crate::base::exit::Failure;
use crate::base::table::joined;
use crate::experiment::judge::{ExperimentOutcome, differences, judge};
use crate::experiment::programs::matmuls;
use crate::experiment::record::ExperimentRecord;
use crate::experiment::runner::{self, CoreRounds};

/// Runs the experiments for `chosen` facts. `heard` gets each settled fact.
pub(crate) fn settle(
    device: &Device,
    chosen: &[&FactToSettle],
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
    for fact in chosen {
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
    let seen = runner::run(device, &matmuls::health()?)?;
    Ok(seen.iter().all(|job| job.completed))
}

/// The name that stands for all facts.
const ALL: &str = "all";

/// The named facts, or all, in the order of the table.
pub(crate) fn choose(names: &[String]) -> Result<Vec<&'static FactToSettle>, Failure> {
    let names: Vec<&String> = names.iter().filter(|name| *name != ALL).collect();
    let is_unknown = |name: &&&String| !FACTS.iter().any(|fact| fact.name == **name);
    if let Some(name) = names.iter().find(is_unknown) {
        let all = joined(FACTS.iter().map(|fact| fact.name), ", ");
        let name = name.escape_debug();
        return Err(Failure::Usage(anyhow!(
            "no experiment `{name}`; there are {all}"
        )));
    }
    let wanted = |fact: &&FactToSettle| names.is_empty() || names.iter().any(|n| *n == fact.name);
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
    if let (Some(risk), false) = (fact.risk, risky) {
        let reason = format!("needs --risky, since {risk}");
        report.outcome = ExperimentOutcome::NotRun { reason };
        return Ok(false);
    }
    let experiment = (fact.experiment)()?;
    let (mut record, seen) =
        ExperimentRecord::start(fact.name, &experiment, device, CoreRounds::ONCE)?;
    let seen = seen?;
    let like;
    if let Some(switch) = fact.switch() {
        let mut sides = Vec::new();
        for &name in switch.sides {
            let mut contested = *known;
            contested.set(&format!("{}={name}", switch.name))?;
            sides.push((name, runner::run_on_model(&experiment, contested)?));
        }
        (report.outcome, like) = judge(&seen, &sides, experiment.spoiled);
        if let ExperimentOutcome::Settled { side, .. } = &report.outcome {
            known.set(&format!("{}={side}", switch.name))?;
        }
    } else {
        like = runner::run_on_model(&experiment, *known)?;
        let as_model = seen == like;
        report.outcome = ExperimentOutcome::Observed { as_model };
    }
    if seen != like {
        report.shown = differences(&experiment, &seen, &like);
        record.keep(&seen, &like)?;
        report.record = Some(record);
    }
    Ok(seen.iter().any(|job| !job.completed))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Plain matmuls depend on these facts: rungs of `first` settle them. The mainline driver
    /// makes no chains.
    const ELSEWHERE: [&str; 7] = [
        "chain-pointer",
        "core-idle-mainline",
        "fp16-subnormals",
        "int8-reuse",
        "int8-slack-bank",
        "over-read",
        "program-at-zero",
    ];

    #[test]
    fn every_contested_fact_has_an_experiment_or_a_reason() {
        for switch in Contested::SWITCHES {
            let has_experiment = FACTS.iter().any(|fact| fact.name == switch.name);
            assert_ne!(
                has_experiment,
                ELSEWHERE.contains(&switch.name),
                "the model's switch `{}` needs an experiment that distinguishes {:?}",
                switch.name,
                switch.sides
            );
        }
        let names: BTreeSet<_> = FACTS.iter().map(|fact| fact.name).collect();
        assert_eq!(names.len(), FACTS.len(), "two facts have one name");
        let risky: Vec<_> = FACTS.iter().map(|fact| fact.risk.is_some()).collect();
        assert!(
            risky.is_sorted() && risky.contains(&true),
            "risky facts come last"
        );
    }

    /// A model on one side of a fact is found there; a fact without sides is seen as the model's
    /// only variant.
    #[test]
    fn a_model_is_found_on_the_side_that_it_is_set_to() {
        for fact in FACTS {
            let sides = fact.switch().map_or(&[""][..], |switch| switch.sides);
            for (index, &side) in sides.iter().enumerate() {
                let what = format!("{}={side}", fact.name);
                let mut contested = Contested::default();
                let mut wanted = ExperimentOutcome::Observed { as_model: true };
                if fact.switch().is_some() {
                    contested.set(&what).unwrap();
                    wanted = ExperimentOutcome::Settled {
                        side: side.into(),
                        is_default: index == 0,
                        exact: true,
                    };
                }
                let device = runner::model(contested).open_device();
                let mut known = Contested::default();
                let mut found = FactReport::new(fact);
                let killed = settle_one(&device, fact, true, &mut known, &mut found).unwrap();
                assert_eq!(found.outcome, wanted, "{what}");
                assert_eq!(known, contested, "{what}");
                assert!(found.record.is_none() && found.shown.is_empty(), "{what}");
                // By default only risky experiments are killed: on a side, those that hang on it.
                let may_hang = fact.risk.is_some() && ["", "hangs"].contains(&side);
                assert!(!killed || index > 0 || may_hang, "{what}");
            }
        }
    }
}
