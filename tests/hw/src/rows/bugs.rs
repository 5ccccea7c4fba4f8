// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a kernel without its known bugs does. See `tests/hw/bugs`.

use std::process::Stdio;

use rocket_uapi::Errno;

use crate::Context;
use crate::bench::Bench;
use crate::check::{Must, Outcome, Reason, ensure, expect};
use crate::kmsg::Kmsg;
use crate::raw::File;
use crate::scenario::Scenario;
use crate::submit::{Submission, TASKS};

/// How often to race with the scheduler, which wins most of the time.
const RACES: usize = 20;

/// Neither does the model do what the bugs do, nor does it keep a log.
fn on_a_kernel(context: &Context) -> Outcome {
    match context.info.is_model {
        true => Err(Reason::Skip("the model is no kernel".to_owned())),
        false => Ok(()),
    }
}

/// The scenario ends well, `times` times, and the kernel has no complaint.
fn harmless(context: &Context, scenario: Scenario, times: usize) -> Outcome {
    on_a_kernel(context)?;
    let log = Kmsg::from_now()?;
    for _ in 0..times {
        let ended = scenario.spawn(context, Stdio::null())?;
        ensure(&format!("the process ends well: {ended}"), ended.success())?;
    }
    log.silence()
}

pub(super) fn close_exported(context: &Context) -> Outcome {
    harmless(context, Scenario::ExitExported, 1)
}

pub(super) fn die_busy(context: &Context) -> Outcome {
    harmless(context, Scenario::ExitBusy, 1)
}

pub(super) fn close_after_wait(context: &Context) -> Outcome {
    harmless(context, Scenario::ExitAfterWait, RACES)
}

pub(super) fn get_unique(context: &Context) -> Outcome {
    harmless(context, Scenario::GetUnique, 1)
}

pub(super) fn count(context: &Context) -> Outcome {
    on_a_kernel(context)?;
    let log = Kmsg::from_now()?;
    let mut bench = Bench::new(File::new(&context.device)?)?;
    let page = bench.page()?.handle;
    let mut job = bench.job(page);
    job.counts[TASKS] = Some(u32::MAX);
    bench.submit(job)?;
    bench.close()?;
    log.silence()
}

pub(super) fn count_of_jobs(context: &Context) -> Outcome {
    on_a_kernel(context)?;
    let file = File::new(&context.device)?;
    let mut submission = Submission::of(Vec::new());
    submission.job_count = Some(u32::MAX);
    let submitted = submission.submit(&file);
    expect("SUBMIT of 2^32 - 1 jobs", submitted, Err(Errno::NOMEM))
}

pub(super) fn huge(context: &Context) -> Outcome {
    on_a_kernel(context)?;
    let file = File::new(&context.device)?;
    if let Ok(huge) = file.create(1 << 31) {
        file.close(huge.handle).must("GEM_CLOSE")?;
    }
    file.create(1)
        .map(drop)
        .must("CREATE_BO after one of 2 GiB")
}
