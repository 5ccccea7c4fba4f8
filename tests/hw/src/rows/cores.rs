// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which core runs a job. The name of its fence's timeline shows it.

use std::collections::BTreeSet;

use rocket_uapi::{Device, Errno, SyncFile};

use crate::RowContext;
use crate::bench::RowBench;
use crate::busy::{Busy, Ready, patience, quick};
use crate::check::{NotPassed, RowOutcome, ensure, expect};
use crate::hold::check_possible;
use crate::program::RESULT;
use crate::raw::File;

const CORES: usize = 3;

/// Number of attempts to see jobs that run at the same time. If the machine stops for
/// half a second at the wrong moment, the jobs that hang end unseen.
const TRIES: usize = 5;

/// The core that has the job of this fence. The job must not be over.
fn core(fence: &SyncFile) -> Result<String, NotPassed> {
    let fences = fence.info()?.fences;
    expect("fences of a job", fences.len(), 1)?;
    expect("the fence's driver", fences[0].driver.as_str(), "drm_sched")?;
    Ok(fences[0].timeline.clone())
}

fn files(context: &RowContext, count: usize) -> Result<Vec<Device>, NotPassed> {
    (0..count).map(|_| context.reopen()).collect()
}

pub(super) fn one_each(context: &RowContext) -> RowOutcome {
    check_possible(&context.device)?;
    let files = files(context, CORES + 1)?;
    let ready = files.iter().map(Ready::new);
    let ready: Vec<Ready> = ready.collect::<Result<_, _>>()?;
    let jobs = ready.into_iter().map(|job| job.start(|job| job));
    let jobs: Vec<Busy> = jobs.collect::<Result<_, _>>()?;
    let cores = jobs.iter().map(|job| core(&job.fence()?));
    let cores: Vec<String> = cores.collect::<Result<_, _>>()?;
    let taken: BTreeSet<&String> = cores[..CORES].iter().collect();
    let what = format!("three files use one core each: {cores:?}");
    ensure(&what, taken.len() == CORES)?;
    let what = format!("a fourth file shares one of them: {cores:?}");
    ensure(&what, taken.contains(&cores[CORES]))?;
    jobs.into_iter().try_for_each(Busy::finish)
}

pub(super) fn alternates(context: &RowContext) -> RowOutcome {
    check_possible(&context.device)?;
    let device = context.reopen()?;
    let mut cores = Vec::new();
    for _ in 0..4 {
        let job = Busy::start(&device)?;
        cores.push(core(&job.fence()?)?);
        job.finish()?;
    }
    let turns = cores[0] != cores[1] && cores[..2] == cores[2..];
    ensure(
        &format!("the jobs alternate between two cores: {cores:?}"),
        turns,
    )
}

pub(super) fn stays(context: &RowContext) -> RowOutcome {
    check_possible(&context.device)?;
    let device = context.reopen()?;
    let first = Busy::start(&device)?;
    let later = [quick(&device, |job| job)?, quick(&device, |job| job)?];
    let here = core(&first.fence()?)?;
    for job in &later {
        expect(
            "the core of a later job",
            core(&job.fence()?)?,
            here.clone(),
        )?;
    }
    first.finish()?;
    for job in later {
        job.wait(patience())?;
    }
    Ok(())
}

/// Runs jobs that hang on `count` files, and one that computes on another. Returns whether
/// all of the former outlasted it.
fn hang_and_compute(context: &RowContext, count: usize) -> Result<bool, NotPassed> {
    // These files have had no job, and so no core.
    let files = files(context, count + 1)?;
    let benches = files.iter().map(|file| RowBench::new(File::new(file)));
    let mut hanging: Vec<RowBench> = benches.collect::<Result<_, _>>()?;
    let computing = hanging.swap_remove(count);
    let (page, map) = computing.seen_page()?;
    let program = computing.program(11, page.dma_address as u32)?;
    let mut outputs = Vec::new();
    for bench in &hanging {
        let output = bench.page()?.handle;
        bench.submit(bench.job(output))?;
        outputs.push(output);
    }
    computing.submit(program.job(page.handle))?;
    computing.wait(page.handle)?;
    let jobs = || hanging.iter().zip(&outputs);
    let hang = jobs().all(|(bench, &output)| bench.file.prep(output, 0) == Err(Errno::BUSY));
    program.check(&map, 0, RESULT)?;
    jobs().try_for_each(|(bench, &output)| bench.wait(output))?;
    Ok(hang)
}

pub(super) fn at_once(context: &RowContext) -> RowOutcome {
    let mut seen = false;
    for _ in 0..TRIES {
        seen = seen || hang_and_compute(context, CORES - 1)?;
    }
    ensure("a job ends while two others hang", seen)
}

pub(super) fn fourth_waits(context: &RowContext) -> RowOutcome {
    let hang = hang_and_compute(context, CORES)?;
    ensure("one of three hanging jobs ended first", !hang)
}
