// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the jobs that the software model ran would have taken: modelled time.

use anyhow::anyhow;
use npu_model::Model;
use rknpu_regcmd::timing::{ScheduledJob, schedule};

use crate::exit::Failure;

/// Modelled time of the last of `products` equal products that `model` ran,
/// picoseconds: of its jobs as they were recorded, as if no product had been
/// before it and its client had waited for nothing.
pub(super) fn last_product_ps(model: &Model, products: usize) -> Result<u64, Failure> {
    let timeline = model
        .timeline()
        .ok_or_else(|| Failure::Device(anyhow!("the software model kept no timeline")))?;
    if timeline.left_out() > 0 {
        return Err(Failure::Usage(anyhow!(
            "the software model recorded only {} jobs of this product: tune a smaller one",
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
    schedule(&jobs, timeline.machine())
        .map(|timeline| timeline.end_ps)
        .map_err(|error| Failure::Device(error.into()))
}
