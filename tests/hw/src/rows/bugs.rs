// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rows that pass on a kernel without its known bugs. See `tests/hw/bugs`.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use rocket_uapi::{Deadline, Errno};

use crate::RowContext;
use crate::bench::RowBench;
use crate::busy::{PATIENCE, quick};
use crate::calls::balanced;
use crate::check::{Must, NotPassed, RowOutcome, ensure, expect};
use crate::kmsg::Kmsg;
use crate::raw::File;
use crate::scenario::Scenario;
use crate::submit::{SubmitArgs, TASKS};

/// Number of races with the scheduler, which wins most of the time.
const RACES: usize = 20;

/// How long an idle core may stay powered; the driver waits 50 ms.
const REST: Duration = Duration::from_secs(3);

/// Where the kernel lists the cores, by their device tree nodes.
const CORES: &str = "/sys/bus/platform/drivers/rocket";

/// Names of a core's clocks (Linux, rockchip,rk3588-rknn-core.yaml).
const CLOCKS: [&str; 4] = ["aclk", "hclk", "npu", "pclk"];

/// More words than fit a job's pages: 32 KiB.
const BEYOND: u32 = 4096;

/// Skips the row on the model, which has neither the bugs nor a log.
fn on_a_kernel(context: &RowContext) -> RowOutcome {
    if context.info.is_model {
        return Err(NotPassed::Skip(
            "only a real kernel can have this bug".to_owned(),
        ));
    }
    Ok(())
}

/// Fails unless the scenario ends well, `times` times, and the kernel does not
/// complain.
fn harmless(context: &RowContext, scenario: Scenario, times: usize) -> RowOutcome {
    on_a_kernel(context)?;
    let log = Kmsg::from_now()?;
    for _ in 0..times {
        let ended = scenario.spawn(context, Stdio::null())?;
        ensure(
            &format!("the process ends without an error: {ended}"),
            ended.success(),
        )?;
    }
    log.silence()
}

pub(super) fn close_exported(context: &RowContext) -> RowOutcome {
    harmless(context, Scenario::ExitExported, 1)
}

pub(super) fn die_busy(context: &RowContext) -> RowOutcome {
    harmless(context, Scenario::ExitBusy, 1)
}

pub(super) fn close_after_wait(context: &RowContext) -> RowOutcome {
    harmless(context, Scenario::ExitAfterWait, RACES)
}

pub(super) fn get_unique(context: &RowContext) -> RowOutcome {
    harmless(context, Scenario::GetUnique, 1)
}

pub(super) fn count(context: &RowContext) -> RowOutcome {
    on_a_kernel(context)?;
    let log = Kmsg::from_now()?;
    let mut bench = RowBench::new(File::new(&context.device))?;
    let page = bench.page()?.handle;
    let mut job = bench.job(page);
    job.counts[TASKS] = Some(u32::MAX);
    bench.submit(job)?;
    bench.close()?;
    log.silence()
}

pub(super) fn count_of_jobs(context: &RowContext) -> RowOutcome {
    on_a_kernel(context)?;
    let file = File::new(&context.device);
    let mut submission = SubmitArgs::of(Vec::new());
    submission.job_count = Some(u32::MAX);
    let submitted = submission.submit(&file);
    expect("SUBMIT of 2^32 - 1 jobs", submitted, Err(Errno::NOMEM))
}

pub(super) fn huge(context: &RowContext) -> RowOutcome {
    on_a_kernel(context)?;
    let file = File::new(&context.device);
    if let Ok(huge) = file.create(1 << 31) {
        file.close(huge.handle).must("GEM_CLOSE")?;
    }
    file.create(1)
        .map(drop)
        .must("CREATE_BO after one of 2 GiB")
}

fn cores() -> Result<Vec<PathBuf>, NotPassed> {
    let entries = fs::read_dir(CORES);
    let entries = entries.map_err(|error| NotPassed::Skip(format!("{CORES}: {error}")))?;
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let cores: Vec<_> = paths.filter(|path| path.join("of_node").exists()).collect();
    if cores.is_empty() {
        return Err(NotPassed::Skip(format!("{CORES} has no cores")));
    }
    Ok(cores)
}

pub(super) fn clocks(context: &RowContext) -> RowOutcome {
    const SUMMARY: &str = "/sys/kernel/debug/clk/clk_summary";
    on_a_kernel(context)?;
    let summary = fs::read_to_string(SUMMARY);
    let summary = summary.map_err(|error| NotPassed::Skip(format!("{SUMMARY}: {error}")))?;
    for core in cores()? {
        let core = core.file_name().unwrap_or_default().to_string_lossy();
        // The last columns are the owner of the clock, and its name there.
        let names: BTreeSet<_> = summary
            .lines()
            .filter_map(|line| line.trim_end().rsplit_once(char::is_whitespace))
            .filter(|(before, _)| before.trim_end().ends_with(&*core))
            .map(|(_, name)| name)
            .collect();
        expect(&format!("clocks of {core}"), names, CLOCKS.into())?;
    }
    Ok(())
}

pub(super) fn suspend(context: &RowContext) -> RowOutcome {
    on_a_kernel(context)?;
    let cores = cores()?;
    let mut bench = RowBench::new(File::new(&context.device))?;
    let page = bench.page()?.handle;
    bench.submit(bench.job(page))?;
    bench.wait(page)?;
    bench.close()?;
    let status = |core: &PathBuf| fs::read_to_string(core.join("power/runtime_status"));
    let powered = || {
        let on = |core: &&PathBuf| status(core).is_ok_and(|status| status.trim() == "active");
        cores.iter().find(on)
    };
    let until = Instant::now() + REST;
    while powered().is_some() && Instant::now() < until {
        thread::sleep(Duration::from_millis(10));
    }
    match powered() {
        None => Ok(()),
        Some(core) => Err(NotPassed::Fail(format!("{} stays active", core.display()))),
    }
}

pub(super) fn group(context: &RowContext) -> RowOutcome {
    on_a_kernel(context)?;
    balanced("iommu_group_get", "iommu_group_put", || {
        for _ in 0..4 {
            let job = quick(&context.device, |job| job)?;
            job.wait(Deadline::after(PATIENCE))?;
        }
        Ok(())
    })
}

/// Number of pages that the kernel has for IOMMU tables.
fn iommu_pages() -> Result<u64, NotPassed> {
    // Makes the kernel add up each processor's share; only root may.
    let _ = fs::read("/proc/sys/vm/stat_refresh");
    let all = fs::read_to_string("/proc/vmstat").unwrap_or_default();
    let pages = all.lines().find_map(|line| {
        let number = line.strip_prefix("nr_iommu_pages ")?;
        number.trim().parse().ok()
    });
    pages.ok_or_else(|| NotPassed::Skip("/proc/vmstat has no nr_iommu_pages".to_owned()))
}

pub(super) fn domain(context: &RowContext) -> RowOutcome {
    on_a_kernel(context)?;
    let file = File::new(&context.device);
    let before = iommu_pages()?;
    for _ in 0..2 {
        if file.reopen()?.create(u32::MAX).is_ok() {
            let why =
                "this machine has room for a buffer object of 4 GiB, so no CREATE_BO fails late";
            return Err(NotPassed::Skip(why.to_owned()));
        }
    }
    let more = iommu_pages()?.saturating_sub(before);
    // Other devices may take a page meanwhile.
    ensure(
        &format!("two closed files left no IOMMU tables ({more} more pages)"),
        more < 2,
    )
}

pub(super) fn dma(context: &RowContext) -> RowOutcome {
    on_a_kernel(context)?;
    let log = Kmsg::from_now()?;
    let mut bench = RowBench::new(File::new(&context.device))?;
    let page = bench.page()?.handle;
    let mut job = bench.job(page);
    job.tasks[0].regcmd_count = BEYOND;
    bench.submit(job)?;
    bench.wait(page)?;
    bench.close()?;
    log.silence()
}
