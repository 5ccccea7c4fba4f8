// SPDX-License-Identifier: MIT OR Apache-2.0
//! Jobs that do not run, and jobs that are killed.

use rocket_uapi::{Deadline, Errno, PAGE_BYTES, sys};

use super::create::UNKNOWN_HANDLE;
use crate::Context;
use crate::busy::{PATIENCE, quick};
use crate::check::{Must, Outcome, ensure, expect, nothing};
use crate::files::submit_hanging;
use crate::jobs::{Array, Hanging, RawJob};
use crate::raw::File;

/// The size of a job that the driver knows.
const JOB: usize = size_of::<sys::Job>();
/// That of a task.
const TASK: usize = size_of::<sys::Task>();

pub(super) fn fault(context: &Context) -> Outcome {
    let hanging = Hanging::new(File::new(&context.device)?)?;
    let submitted = nothing(hanging.submit_null());
    expect("SUBMIT of a job at NULL", submitted, Err(Errno::FAULT))?;
    hanging.close()
}

pub(super) fn strides(context: &Context) -> Outcome {
    let mut hanging = Hanging::new(File::new(&context.device)?)?;
    let mut jobs = Vec::new();
    for _ in 0..2 {
        let mut job = RawJob::writing(hanging.page()?.handle);
        job.words = vec![job.words[0]; 2];
        job.task_struct_size = TASK + 16;
        jobs.push(job);
    }
    let submitted = nothing(hanging.submit(&jobs, JOB + 8));
    expect("SUBMIT with larger structures", submitted, Ok(()))?;
    for job in &jobs {
        accepted(&hanging, job)?;
    }
    for job in &jobs {
        hanging.wait(job.writes[0])?;
    }
    hanging.close()
}

/// What makes a job a bad one.
type Spoil = fn(&mut RawJob);

/// Has each spoil make bad jobs, and puts them into one SUBMIT with a good one at
/// the end.
fn dropped(context: &Context, spoils: &[(&str, Spoil)]) -> Outcome {
    let mut hanging = Hanging::new(File::new(&context.device)?)?;
    let mut jobs = Vec::new();
    for (_, spoil) in spoils {
        let mut job = RawJob::writing(hanging.page()?.handle);
        spoil(&mut job);
        jobs.push(job);
    }
    // Before the bad ones changed what they write.
    let pages: Vec<u32> = hanging.pages().to_vec();
    let good = RawJob::writing(hanging.page()?.handle);
    jobs.push(good.clone());
    let submitted = nothing(hanging.submit(&jobs, JOB));
    expect("SUBMIT with bad jobs", submitted, Ok(()))?;
    for ((what, _), page) in spoils.iter().zip(pages) {
        let prep = nothing(hanging.file.prep(page, 0));
        let what = format!("PREP_BO of what a job with {what} writes");
        expect(&what, prep, Ok(()))?;
    }
    accepted(&hanging, &good)?;
    hanging.wait(good.writes[0])?;
    hanging.close()
}

/// The job will run, or does.
fn accepted(hanging: &Hanging, job: &RawJob) -> Outcome {
    let prep = nothing(hanging.file.prep(job.writes[0], 0));
    expect("PREP_BO of what a good job writes", prep, Err(Errno::BUSY))
}

pub(super) fn bad(context: &Context) -> Outcome {
    dropped(
        context,
        &[
            ("no task", |job| job.words.clear()),
            ("tasks of 7 bytes", |job| job.task_struct_size = TASK - 1),
            ("a task of no words", |job| job.words.push(0)),
            ("tasks at NULL", |job| job.null = Some(Array::Tasks)),
            ("an unknown input", |job| job.reads.push(UNKNOWN_HANDLE)),
            ("input 0", |job| job.reads.push(0)),
            ("an unknown output", |job| job.writes.push(UNKNOWN_HANDLE)),
            ("inputs at NULL", |job| {
                job.reads.push(UNKNOWN_HANDLE);
                job.null = Some(Array::Reads);
            }),
            ("outputs at NULL", |job| job.null = Some(Array::Writes)),
        ],
    )
}

pub(super) fn twice(context: &Context) -> Outcome {
    dropped(
        context,
        &[
            ("an output twice", |job| job.writes.push(job.writes[0])),
            ("an input twice", |job| {
                // The first object of the file, which holds the program.
                job.reads.extend([1, 1]);
            }),
            ("an object on both sides", |job| {
                job.reads.push(job.writes[0]);
            }),
        ],
    )
}

pub(super) fn closed(context: &Context) -> Outcome {
    let mut hanging = Hanging::new(File::new(&context.device)?)?;
    let (closed, kept) = (hanging.page()?, hanging.page()?);
    let mut job = RawJob::writing(closed.handle);
    job.writes.push(kept.handle);
    nothing(hanging.submit(&[job], JOB)).must("SUBMIT")?;
    let result = nothing(hanging.file.close(closed.handle));
    expect("GEM_CLOSE of a busy BO", result, Ok(()))?;
    hanging.leave(closed.handle);
    let prep = nothing(hanging.file.prep(closed.handle, 0));
    expect("PREP_BO of it", prep, Err(Errno::NOENT))?;
    let next = hanging.page()?;
    expect("the next handle", next.handle, closed.handle)?;
    let prep = nothing(hanging.file.prep(kept.handle, 0));
    expect("PREP_BO while the job runs", prep, Err(Errno::BUSY))?;
    ensure(
        "the address stays taken while the job runs",
        next.dma_address != closed.dma_address,
    )?;
    hanging.wait(kept.handle)?;
    hanging.close()
}

pub(super) fn after_kill(context: &Context) -> Outcome {
    let page = rocket_uapi::ByteLen::new(PAGE_BYTES).must("a length")?;
    let (zeros, output) = (context.device.alloc(page)?, context.device.alloc(page)?);
    submit_hanging(&context.device, &zeros, &output, &[])?;
    quick(&context.device, |job| job)?.wait(Deadline::after(PATIENCE))?;
    let file = File::new(&context.device)?;
    let prep = nothing(file.prep(output.handle().get(), 0));
    expect("PREP_BO of what the killed job writes", prep, Ok(()))
}
