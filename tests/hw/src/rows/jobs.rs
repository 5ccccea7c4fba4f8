// SPDX-License-Identifier: MIT OR Apache-2.0
//! SUBMIT calls that are refused, jobs that do not run, and jobs that are killed.

use rocket_uapi::{Errno, sys};

use super::create::UNKNOWN_HANDLE;
use crate::RowContext;
use crate::bench::RowBench;
use crate::busy::{patience, quick};
use crate::check::{RowOutcome, ensure, expect, refused};
use crate::submit::{JobArgs, READS, SubmitArgs, TASKS, Task, WRITES};

/// The sizes of a job and of a task that the driver knows.
const JOB: u32 = size_of::<sys::Job>() as u32;
const TASK: u32 = size_of::<Task>() as u32;

pub(super) fn no_jobs(context: &RowContext) -> RowOutcome {
    let file = context.file();
    for reserved in [0, 1] {
        let nothing = SubmitArgs {
            reserved,
            ..SubmitArgs::of(Vec::new())
        };
        let what = format!("SUBMIT of no jobs, reserved {reserved}");
        expect(&what, nothing.submit(&file), Ok(()))?;
    }
    Ok(())
}

pub(super) fn malformed(context: &RowContext) -> RowOutcome {
    let file = context.file();
    for (job_struct_size, reserved) in [(0, 0), (8, 0), (JOB - 1, 0), (JOB, 1)] {
        // A job without a task would not run.
        let malformed = SubmitArgs {
            job_struct_size,
            reserved,
            ..SubmitArgs::of(vec![JobArgs::default()])
        };
        let what = format!("SUBMIT with a job size of {job_struct_size}, reserved {reserved}");
        refused(&what, malformed.submit(&file), Errno::INVAL)?;
    }
    Ok(())
}

pub(super) fn fault(context: &RowContext) -> RowOutcome {
    let mut submission = SubmitArgs::of(vec![JobArgs::default()]);
    submission.address = Some(0);
    let submitted = submission.submit(&context.file());
    refused("SUBMIT of a job at NULL", submitted, Errno::FAULT)
}

pub(super) fn strides(context: &RowContext) -> RowOutcome {
    let bench = context.bench()?;
    let (mut pages, mut jobs) = (Vec::new(), Vec::new());
    for _ in 0..2 {
        let page = bench.page()?.handle;
        pages.push(page);
        let mut job = bench.job(page);
        job.tasks.push(bench.task());
        job.task_struct_size = Some(TASK + 16);
        jobs.push(job);
    }
    let mut submission = SubmitArgs::of(jobs);
    submission.job_struct_size = JOB + 8;
    let submitted = submission.submit(&bench.file);
    expect("SUBMIT with larger structures", submitted, Ok(()))?;
    pages.iter().try_for_each(|&page| accepted(&bench, page))?;
    pages.iter().try_for_each(|&page| bench.wait(page))
}

/// Puts one error into a correct job.
type Spoil = fn(&mut JobArgs);

/// Puts one bad job from each spoil into one SUBMIT with a good job at the end. Only
/// the good one may run.
fn dropped(context: &RowContext, spoils: &[(&str, Spoil)]) -> RowOutcome {
    let bench = context.bench()?;
    // The objects of the bad jobs, whatever the spoils make of their lists.
    let (mut pages, mut jobs) = (Vec::new(), Vec::new());
    for (_, spoil) in spoils {
        let page = bench.page()?.handle;
        pages.push(page);
        let mut job = bench.job(page);
        spoil(&mut job);
        jobs.push(job);
    }
    let good = bench.page()?.handle;
    jobs.push(bench.job(good));
    let submitted = SubmitArgs::of(jobs).submit(&bench.file);
    expect("SUBMIT with bad jobs", submitted, Ok(()))?;
    for ((what, _), page) in spoils.iter().zip(pages) {
        let prep = bench.file.prep(page, 0);
        let what = format!("PREP_BO of the output of a job with {what}");
        expect(&what, prep, Ok(()))?;
    }
    accepted(&bench, good)?;
    bench.wait(good)
}

/// Checks that the job that writes this runs, or will run.
fn accepted(bench: &RowBench, page: u32) -> RowOutcome {
    let prep = bench.file.prep(page, 0);
    refused("PREP_BO of the output of a good job", prep, Errno::BUSY)
}

pub(super) fn bad(context: &RowContext) -> RowOutcome {
    dropped(
        context,
        &[
            ("no task", |job| job.tasks.clear()),
            ("tasks of 7 bytes", |job| {
                job.task_struct_size = Some(TASK - 1);
            }),
            ("a task of no words", |job| job.tasks.push(Task::default())),
            ("tasks at NULL", |job| job.addresses[TASKS] = Some(0)),
            ("an unknown input", |job| job.reads.push(UNKNOWN_HANDLE)),
            ("input 0", |job| job.reads.push(0)),
            ("an unknown output", |job| job.writes.push(UNKNOWN_HANDLE)),
            ("inputs at NULL", |job| {
                job.reads.push(UNKNOWN_HANDLE);
                job.addresses[READS] = Some(0);
            }),
            ("outputs at NULL", |job| job.addresses[WRITES] = Some(0)),
        ],
    )
}

pub(super) fn twice(context: &RowContext) -> RowOutcome {
    dropped(
        context,
        &[
            ("an output twice", |job| job.writes.push(job.writes[0])),
            ("an input twice", |job| {
                // The first object of the file, which holds the program.
                job.reads.extend([1, 1]);
            }),
            ("an object as input and output", |job| {
                job.reads.push(job.writes[0]);
            }),
        ],
    )
}

pub(super) fn closed(context: &RowContext) -> RowOutcome {
    let bench = context.bench()?;
    let (closed, kept) = (bench.page()?, bench.page()?);
    let mut job = bench.job(closed.handle);
    job.writes.push(kept.handle);
    bench.submit(job)?;
    let result = bench.file.close(closed.handle);
    expect("GEM_CLOSE of a busy BO", result, Ok(()))?;
    let prep = bench.file.prep(closed.handle, 0);
    refused("PREP_BO of it", prep, Errno::NOENT)?;
    let next = bench.page()?;
    expect("the next handle", next.handle, closed.handle)?;
    let prep = bench.file.prep(kept.handle, 0);
    refused("PREP_BO while the job runs", prep, Errno::BUSY)?;
    ensure(
        "the address stays taken while the job runs",
        next.dma_address != closed.dma_address,
    )?;
    bench.wait(kept.handle)
}

pub(super) fn after_kill(context: &RowContext) -> RowOutcome {
    let bench = context.bench()?;
    let page = bench.page()?.handle;
    bench.submit(bench.job(page))?;
    quick(&context.device, |job| job)?.wait(patience())?;
    let prep = bench.file.prep(page, 0);
    expect("PREP_BO of the output of the killed job", prep, Ok(()))
}
