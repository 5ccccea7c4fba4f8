// SPDX-License-Identifier: MIT OR Apache-2.0
//! Jobs that compute: which of them run, and in which order.

use rocket_uapi::Errno;

use crate::RowContext;
use crate::bench::RowBench;
use crate::check::{Must, NotPassed, RowOutcome, expect, refused};
use crate::hold::Hold;
use crate::program::{MatmulProgram, RESULT};
use crate::raw::Map;
use crate::submit::{JobArgs, SubmitArgs};

/// Values of the programs that run one after another.
const VALUES: [u8; 3] = [1, 2, 3];

/// Distance of their results: each overwrites the second half of the one before it.
const STEP: u32 = RESULT / 2;

/// The programs, which write to addresses from `to` on, `step` bytes apart.
fn programs(bench: &RowBench, step: u32, to: u64) -> Result<Vec<MatmulProgram>, NotPassed> {
    let places = (to as u32..).step_by(step as usize);
    let values = VALUES.iter().zip(places);
    values
        .map(|(&value, to)| bench.program(value, to))
        .collect()
}

/// Checks that the programs ran in order: bytes that two of them write are the later
/// one's.
fn ran_in_order(programs: &[MatmulProgram], map: &Map) -> RowOutcome {
    for (program, at) in programs.iter().zip((0..).step_by(STEP as usize)) {
        program.check(map, at, STEP)?;
    }
    let last = programs.len() as u32 * STEP;
    programs
        .last()
        .map_or(Ok(()), |program| program.check(map, last, RESULT - STEP))
}

/// A job that runs a program, and lists no object.
fn alone(program: &MatmulProgram) -> JobArgs {
    JobArgs {
        tasks: vec![program.task()],
        ..JobArgs::default()
    }
}

pub(super) fn without_lists(context: &RowContext) -> RowOutcome {
    let bench = context.bench()?;
    let (page, map) = bench.seen_page()?;
    let programs = programs(&bench, RESULT, page.dma_address)?;
    for (nth, program) in programs.iter().enumerate() {
        // Only the last job can be waited for; it runs after the others.
        let mut job = alone(program);
        match nth {
            0 => job.reads.push(program.bo.handle),
            1 => {}
            _ => job.writes.push(page.handle),
        }
        bench.submit(job)?;
    }
    bench.wait(page.handle)?;
    for (program, at) in programs.iter().zip((0..).step_by(RESULT as usize)) {
        program.check(&map, at, RESULT)?;
    }
    Ok(())
}

pub(super) fn tasks_in_order(context: &RowContext) -> RowOutcome {
    let bench = context.bench()?;
    let (page, map) = bench.seen_page()?;
    let programs = programs(&bench, STEP, page.dma_address)?;
    let mut job = programs[0].job(page.handle);
    job.tasks = programs.iter().map(MatmulProgram::task).collect();
    bench.submit(job)?;
    bench.wait(page.handle)?;
    ran_in_order(&programs, &map)
}

/// Runs three jobs of a file, which nothing but the file orders. If jobs can be held,
/// the first one is, so that the others could overtake it.
fn in_order(context: &RowContext, submit: fn(&RowBench, Vec<JobArgs>) -> RowOutcome) -> RowOutcome {
    let bench = context.bench()?;
    let (page, map) = bench.seen_page()?;
    let programs = programs(&bench, STEP, page.dma_address)?;
    let hold = Hold::new(&context.device)?;
    let mut jobs: Vec<JobArgs> = programs.iter().map(alone).collect();
    jobs[0].reads.extend(hold.as_ref().map(Hold::handle));
    jobs[2].writes.push(page.handle);
    submit(&bench, jobs)?;
    if let Some(hold) = &hold {
        let prep = bench.file.prep(page.handle, 0);
        refused("PREP_BO of the last job's output", prep, Errno::BUSY)?;
        hold.release()?;
    }
    bench.wait(page.handle)?;
    ran_in_order(&programs, &map)
}

pub(super) fn jobs_in_order(context: &RowContext) -> RowOutcome {
    in_order(context, |bench, jobs| {
        SubmitArgs::of(jobs).submit(&bench.file).must("SUBMIT")
    })
}

pub(super) fn submits_in_order(context: &RowContext) -> RowOutcome {
    in_order(context, |bench, jobs| {
        jobs.into_iter().try_for_each(|job| bench.submit(job))
    })
}

pub(super) fn closed_output(context: &RowContext) -> RowOutcome {
    let bench = context.bench()?;
    let ((closed, map), later) = (bench.seen_page()?, bench.page()?);
    let program = bench.program(7, closed.dma_address as u32)?;
    let next = bench.program(8, later.dma_address as u32)?;
    let hold = Hold::new(&context.device)?;
    let mut job = program.job(closed.handle);
    job.reads.extend(hold.as_ref().map(Hold::handle));
    bench.submit(job)?;
    let result = bench.file.close(closed.handle);
    expect("GEM_CLOSE of a job's output", result, Ok(()))?;
    bench.submit(next.job(later.handle))?;
    if let Some(hold) = &hold {
        hold.release()?;
    }
    bench.wait(later.handle)?;
    program.check(&map, 0, RESULT)
}
