// SPDX-License-Identifier: MIT OR Apache-2.0
//! Jobs that do not run, and jobs that are killed.

use rocket_uapi::{Deadline, Errno, sys};

use super::create::UNKNOWN_HANDLE;
use crate::RowContext;
use crate::bench::RowBench;
use crate::busy::{PATIENCE, quick};
use crate::check::{RowOutcome, ensure, expect, nothing};
use crate::raw::File;
use crate::submit::{JobArgs, READS, SubmitArgs, TASKS, Task, WRITES};

/// The sizes of a job and of a task that the driver knows.
const JOB: u32 = size_of::<sys::Job>() as u32;
const TASK: u32 = size_of::<Task>() as u32;

pub(super) fn fault(context: &RowContext) -> RowOutcome {
    let bench = RowBench::new(File::new(&context.device))?;
    let mut submission = SubmitArgs::of(vec![JobArgs::default()]);
    submission.address = Some(0);
    let submitted = submission.submit(&bench.file);
    expect("SUBMIT of a job at NULL", submitted, Err(Errno::FAULT))?;
    bench.close()
}

pub(super) fn strides(context: &RowContext) -> RowOutcome {
    let mut bench = RowBench::new(File::new(&context.device))?;
    let mut jobs = Vec::new();
    for _ in 0..2 {
        let page = bench.page()?.handle;
        let mut job = bench.job(page);
        job.tasks.push(bench.task());
        job.task_struct_size = Some(TASK + 16);
        jobs.push(job);
    }
    let mut submission = SubmitArgs::of(jobs);
    submission.job_struct_size = JOB + 8;
    let submitted = submission.submit(&bench.file);
    expect("SUBMIT with larger structures", submitted, Ok(()))?;
    for &page in bench.pages() {
        accepted(&bench, page)?;
    }
    for &page in bench.pages() {
        bench.wait(page)?;
    }
    bench.close()
}

/// Puts one error into a correct job.
type Spoil = fn(&mut JobArgs);

/// Puts one bad job from each spoil into one SUBMIT with a good job at the end. Only
/// the good one may run.
fn dropped(context: &RowContext, spoils: &[(&str, Spoil)]) -> RowOutcome {
    let mut bench = RowBench::new(File::new(&context.device))?;
    let mut jobs = Vec::new();
    for (_, spoil) in spoils {
        let page = bench.page()?.handle;
        let mut job = bench.job(page);
        spoil(&mut job);
        jobs.push(job);
    }
    // The objects of the bad jobs, whatever the spoils made of their lists.
    let pages: Vec<u32> = bench.pages().to_vec();
    let good = bench.page()?.handle;
    jobs.push(bench.job(good));
    let submitted = SubmitArgs::of(jobs).submit(&bench.file);
    expect("SUBMIT with bad jobs", submitted, Ok(()))?;
    for ((what, _), page) in spoils.iter().zip(pages) {
        let prep = nothing(bench.file.prep(page, 0));
        let what = format!("PREP_BO of the output of a job with {what}");
        expect(&what, prep, Ok(()))?;
    }
    accepted(&bench, good)?;
    bench.wait(good)?;
    bench.close()
}

/// Checks that the job that writes this runs, or will run.
fn accepted(bench: &RowBench, page: u32) -> RowOutcome {
    let prep = nothing(bench.file.prep(page, 0));
    expect(
        "PREP_BO of the output of a good job",
        prep,
        Err(Errno::BUSY),
    )
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
    let mut bench = RowBench::new(File::new(&context.device))?;
    let (closed, kept) = (bench.page()?, bench.page()?);
    let mut job = bench.job(closed.handle);
    job.writes.push(kept.handle);
    bench.submit(job)?;
    let result = nothing(bench.file.close(closed.handle));
    expect("GEM_CLOSE of a busy BO", result, Ok(()))?;
    bench.leave(closed.handle);
    let prep = nothing(bench.file.prep(closed.handle, 0));
    expect("PREP_BO of it", prep, Err(Errno::NOENT))?;
    let next = bench.page()?;
    expect("the next handle", next.handle, closed.handle)?;
    let prep = nothing(bench.file.prep(kept.handle, 0));
    expect("PREP_BO while the job runs", prep, Err(Errno::BUSY))?;
    ensure(
        "the address stays taken while the job runs",
        next.dma_address != closed.dma_address,
    )?;
    bench.wait(kept.handle)?;
    bench.close()
}

pub(super) fn after_kill(context: &RowContext) -> RowOutcome {
    let mut bench = RowBench::new(File::new(&context.device))?;
    let page = bench.page()?.handle;
    bench.submit(bench.job(page))?;
    quick(&context.device, |job| job)?.wait(Deadline::after(PATIENCE))?;
    let prep = nothing(bench.file.prep(page, 0));
    expect("PREP_BO of the output of the killed job", prep, Ok(()))?;
    bench.close()
}
