// SPDX-License-Identifier: MIT OR Apache-2.0
//! How long equal tasks take, one behind the other.

use std::time::{Duration, Instant};

use anyhow::anyhow;
use half::f16;
use npu_matmul::{Dtype, Error, Plan, PlanOptions, Results, StageOptions};
use npu_model::Model;
use rknpu_regcmd::timing::{ScheduledJob, schedule};

use super::Open;
use crate::cmd::measuring;
use crate::exit::Failure;

/// Runs on an NPU, of which the shortest counts: what else the machine does makes them
/// longer, never shorter.
const REPEAT: usize = 15;

/// Picoseconds of a nanosecond.
const PS_PER_NS: u128 = 1000;

/// A job on each device: tasks that compute the same rows with other weights, of zeros.
#[derive(Clone, Copy, Debug)]
pub(super) struct TimedTasks {
    pub(super) dtype: Dtype,
    pub(super) results: Results,
    /// Rows, channels and output channels of a task.
    pub(super) tile: [usize; 3],
    /// Tasks of a job.
    pub(super) count: usize,
    pub(super) devices: usize,
}

/// What they took.
#[derive(Clone, Debug)]
pub(super) struct TaskTimes {
    /// From the client's SUBMIT until it goes on; on the software model modelled.
    pub(super) ps: u64,
    pub(super) plan: Plan,
}

impl TimedTasks {
    /// Runs them with operands in place: nothing is packed or read.
    pub(super) fn run(&self, open: &impl Open) -> Result<TaskTimes, Failure> {
        let opened = open()?;
        let [rows, k, columns] = self.tile;
        let n = columns * self.count * self.devices;
        let mut options = PlanOptions {
            row_tile: Some(rows),
            k_tile: Some(k),
            n_tile: Some(columns),
            replicate: Some(false),
            parts: Some(1),
            unmeasured_tiles: Some(false),
            ..PlanOptions::default()
        };
        options.conditions.rows = rows;
        let engine = measuring::engine(&opened.device, self.devices, options, None)?;
        let weights = match self.dtype {
            Dtype::Fp16 => engine.load_f16(n, k, &vec![f16::ZERO; n * k])?,
            _ => engine.load_i8(n, k, &vec![0; n * k])?,
        };
        let stage = StageOptions {
            results: self.results,
            ..StageOptions::default()
        };
        let mut product = engine.stage_with(&weights, rows, stage)?;
        let plan = product.plan().clone();
        let jobs = plan.steps().flat_map(|step| step.jobs);
        if jobs
            .map(|job| job.tasks.len())
            .ne(vec![self.count; self.devices])
        {
            return Err(Failure::Device(anyhow!(
                "{plan} is not what is to be timed"
            )));
        }
        let mut run = || -> Result<Duration, Error> {
            let start = Instant::now();
            product.multiply()?;
            Ok(start.elapsed())
        };
        let mut shortest = run()?;
        let ps = match &opened.model {
            Some(model) => last_product_ps(model, 1)?,
            None => {
                for _ in 0..REPEAT {
                    shortest = shortest.min(run()?);
                }
                u64::try_from(shortest.as_nanos() * PS_PER_NS).unwrap_or(u64::MAX)
            }
        };
        Ok(TaskTimes { ps, plan })
    }
}

/// Modelled time of the last of `products` equal products that `model` ran, until the
/// client goes on: of its jobs as they were recorded, as if no product had been before
/// it and its client had waited for nothing.
pub(super) fn last_product_ps(model: &Model, products: usize) -> Result<u64, Failure> {
    let timeline = model
        .timeline()
        .ok_or_else(|| Failure::Device(anyhow!("the software model kept no timeline")))?;
    if timeline.left_out() > 0 {
        return Err(Failure::Usage(anyhow!(
            "the software model recorded only {} jobs of this product: take a smaller one",
            timeline.jobs().len()
        )));
    }
    let each = timeline.jobs().len() / products.max(1);
    let before = timeline.jobs().len() - each;
    let jobs: Vec<ScheduledJob> = timeline
        .jobs()
        .skip(before)
        .map(|(record, _)| ScheduledJob {
            file: u32::try_from(record.file).unwrap_or(u32::MAX),
            tasks: record.tasks.clone(),
            chained: record.chained,
            hold_ps: record.hold_ps,
            ..ScheduledJob::default()
        })
        .collect();
    let machine = timeline.machine();
    schedule(&jobs, machine)
        .map(|timeline| timeline.end_ps.saturating_add(machine.driver.wake_ps))
        .map_err(|error| Failure::Device(error.into()))
}

#[cfg(test)]
mod tests {
    use npu_model::Selector;

    use super::*;

    /// An NPU has no model behind it: its time is what passes.
    #[test]
    fn what_is_no_model_is_timed() {
        let open = || {
            let mut opened = npu_model::open(&Selector::Model).unwrap();
            opened.model = None;
            Ok(opened)
        };
        let tasks = TimedTasks {
            dtype: Dtype::Int8,
            results: Results::Sums,
            tile: [4, 32, 32],
            count: 3,
            devices: 2,
        };
        assert!(tasks.run(&open).unwrap().ps > 0);
        // Not the job that was to be timed.
        let wide = TimedTasks {
            count: 4096,
            ..tasks
        };
        assert!(matches!(wide.run(&open), Err(Failure::Device(_))));
    }
}
