// SPDX-License-Identifier: MIT OR Apache-2.0
//! Jobs that run after another job was killed, or after the cores slept.

use std::os::fd::AsFd;
use std::thread;
use std::time::Duration;

use rocket_uapi::{Errno, FenceStatus};

use super::bugs::{cores, powered_after_rest};
use crate::RowContext;
use crate::bench::RowBench;
use crate::busy::patience;
use crate::check::{Must, NotPassed, RowOutcome, expect};
use crate::hold::Hold;
use crate::program::RESULT;
use crate::submit::{JobArgs, SubmitArgs, Task};

/// An address at which none of these files has anything.
const NOWHERE: u32 = 0xf000_0000;

/// Longer than the 50 ms after which an idle core sleeps (docs/driver.md). No result
/// depends on it.
const SLEEPS_AFTER: Duration = Duration::from_millis(100);

/// Number of jobs, so that each of two cores runs one after it slept.
const ROUNDS: u8 = 4;

pub(super) fn elsewhere(context: &RowContext) -> RowOutcome {
    let killed = context.bench()?;
    let other = RowBench::new(context.other_file()?)?;
    let page = killed.page()?.handle;
    let dma_buf = killed.file.export(page).must("export")?;
    let import = other.file.import(dma_buf.as_fd()).must("import")?;
    let (output, map) = other.seen_page()?;
    let program = other.program(5, output.dma_address as u32)?;
    let mut job = program.job(output.handle);
    job.reads.push(import);
    killed.submit(killed.job(page))?;
    other.submit(job)?;
    other.wait(output.handle)?;
    let prep = killed.file.prep(page, 0);
    expect("PREP_BO of the output of the killed job", prep, Ok(()))?;
    program.check(&map, 0, RESULT)
}

/// Submits a job with this task, which accesses an unmapped address, and a good job
/// after it.
fn fault(context: &RowContext, task: fn(&RowBench) -> Result<Task, NotPassed>) -> RowOutcome {
    let bench = context.bench()?;
    let (output, map) = bench.seen_page()?;
    let program = bench.program(9, output.dma_address as u32)?;
    let lost = bench.page()?.handle;
    let hold = Hold::new(&context.device)?;
    let mut bad = JobArgs::of(task(&bench)?, lost);
    bad.reads.extend(hold.as_ref().map(Hold::handle));
    let jobs = vec![bad, program.job(output.handle)];
    SubmitArgs::of(jobs).submit(&bench.file).must("SUBMIT")?;
    if let Some(hold) = &hold {
        let dma_buf = bench.file.export(lost).must("export")?;
        let fence = bench.file.writers(dma_buf.as_fd())?;
        hold.release()?;
        let waited = fence.wait(patience());
        let killed = Ok(FenceStatus::Failed(Errno::CANCELED));
        expect("the fence of the job", waited, killed)?;
    }
    bench.wait(lost)?;
    bench.wait(output.handle)?;
    program.check(&map, 0, RESULT)
}

pub(super) fn read_fault(context: &RowContext) -> RowOutcome {
    fault(context, |bench| {
        Ok(Task {
            regcmd: NOWHERE,
            ..bench.task()
        })
    })
}

pub(super) fn write_fault(context: &RowContext) -> RowOutcome {
    fault(context, |bench| Ok(bench.program(1, NOWHERE)?.task()))
}

pub(super) fn after_sleep(context: &RowContext) -> RowOutcome {
    let bench = context.bench()?;
    for round in 0..ROUNDS {
        let (output, map) = bench.seen_page()?;
        let program = bench.program(round + 1, output.dma_address as u32)?;
        bench.submit(program.job(output.handle))?;
        bench.wait(output.handle)?;
        program.check(&map, 0, RESULT)?;
        sleep();
    }
    Ok(())
}

/// Waits until all cores sleep, but not for ever: after a killed job a core stays
/// awake until it ends another one.
fn sleep() {
    thread::sleep(SLEEPS_AFTER);
    if let Ok(cores) = cores() {
        powered_after_rest(&cores);
    }
}
