// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs a rung on a device, and compares it with the model.

use anyhow::Context;
use rocket_uapi::Device;

use super::ladder::Rung;
use crate::experiment::record::{ExperimentRecord, FlipRecord, expected};
use crate::experiment::{Experiment, TaskTemplate, runner};

impl Rung {
    /// Runs it on a device, and compares it with the model. Ignores results of `dead` cores.
    pub(crate) fn run(&self, device: &Device, dead: &[u32]) -> anyhow::Result<ExperimentRecord> {
        let experiment = self.experiment()?;
        let rounds = self.rounds(&experiment, &device.info(), dead);
        let (mut record, seen) = ExperimentRecord::start(self.name, &experiment, device, rounds)?;
        record.dead_files = dead.to_vec();
        match seen {
            Ok(seen) => record.keep(&seen, expected(&experiment)?.as_slice())?,
            Err(error) => record.error = Some(format!("{error:#}")),
        }
        Ok(record)
    }

    /// Runs the parent's program, each time with one register set to the rung's value.
    /// Registers that make it fail alone are the cause. Records an error if the rung's
    /// operands differ from the parent's.
    pub(crate) fn flip(&self, device: &Device) -> anyhow::Result<ExperimentRecord> {
        let parent = self.parent().context("it has no parent")?;
        let (mut base, child) = (parent.experiment()?, self.experiment()?);
        let mut record = ExperimentRecord::of(self.name, device.info().cores, &base)?;
        let has_same_operands = base.inputs == child.inputs && base.output == child.output;
        let (Some(from), Some(to)) = (last_task(&base), last_task(&child)) else {
            return Ok(record);
        };
        if !has_same_operands || base.jobs.len() != 1 {
            record.error = Some("its operands differ from its parent's".to_owned());
            return Ok(record);
        }
        let (right, healthy) = (expected(&base)?, base.clone());
        for (register, flipped) in from.flipped(&to) {
            if let Some(task) = base.jobs.first_mut().and_then(|job| job.last_mut()) {
                *task = flipped;
            }
            let seen = runner::run(device, &base)?;
            let is_right = seen.first() == right.as_ref();
            record.flips.push(FlipRecord {
                register,
                right: is_right,
            });
            if !is_right && runner::run(device, &healthy)?.first() != right.as_ref() {
                let error = "after the last register change the parent's program fails too";
                record.error = Some(error.to_owned());
                break;
            }
        }
        record.right = record.flips.iter().all(|flip| flip.right);
        Ok(record)
    }
}

fn last_task(experiment: &Experiment) -> Option<TaskTemplate> {
    experiment.jobs.last()?.last().cloned()
}
