// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rows that pass on a kernel without its known bugs. See `tests/hw/bugs`.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use rocket_uapi::Errno;

use crate::bench::{close_handles, settle};
use crate::busy::{patience, quick};
use crate::calls::balanced;
use crate::check::{Must, NotPassed, RowOutcome, ensure, expect, refused};
use crate::kmsg::Kmsg;
use crate::scenario::Scenario;
use crate::submit::{JobArgs, SubmitArgs, TASKS};
use crate::{ROW_HANDLES, RowContext};

/// Number of races with the scheduler, which wins most of the time.
pub(super) const RACES: usize = 20;

/// How long an idle core may stay powered; the driver waits 50 ms.
const REST: Duration = Duration::from_secs(3);

/// Where the kernel lists the cores, by their device tree nodes.
const CORES: &str = "/sys/bus/platform/drivers/rocket";

/// Names of a core's clocks (Linux, rockchip,rk3588-rknn-core.yaml).
const CLOCKS: [&str; 4] = ["aclk", "hclk", "npu", "pclk"];

/// More words than fit a job's pages: 32 KiB.
const BEYOND: u32 = 4096;

/// Submits a spoiled job, and fails if the kernel complains.
fn silent_with(context: &RowContext, spoil: fn(&mut JobArgs)) -> RowOutcome {
    let log = Kmsg::from_now()?;
    let bench = context.bench()?;
    let page = bench.page()?.handle;
    let mut job = bench.job(page);
    spoil(&mut job);
    bench.submit(job)?;
    bench.wait(page)?;
    close_handles(&bench.file, ROW_HANDLES)?;
    settle();
    log.silence()
}

/// Fails unless the scenario ends well, `times` times, and the kernel does not
/// complain.
pub(super) fn harmless(context: &RowContext, scenario: Scenario, times: usize) -> RowOutcome {
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

pub(super) fn count(context: &RowContext) -> RowOutcome {
    silent_with(context, |job| job.counts[TASKS] = Some(u32::MAX))
}

pub(super) fn dma(context: &RowContext) -> RowOutcome {
    silent_with(context, |job| job.tasks[0].regcmd_count = BEYOND)
}

pub(super) fn count_of_jobs(context: &RowContext) -> RowOutcome {
    let file = context.file();
    let mut submission = SubmitArgs::of(Vec::new());
    submission.job_count = Some(u32::MAX);
    let submitted = submission.submit(&file);
    refused("SUBMIT of 2^32 - 1 jobs", submitted, Errno::NOMEM)
}

pub(super) fn huge(context: &RowContext) -> RowOutcome {
    let file = context.file();
    if let Ok(huge) = file.create(1 << 31) {
        file.close(huge.handle).must("GEM_CLOSE")?;
    }
    file.create(1)
        .map(drop)
        .must("CREATE_BO after one of 2 GiB")
}

pub(super) fn cores() -> Result<Vec<PathBuf>, NotPassed> {
    let entries = fs::read_dir(CORES);
    let entries = entries.map_err(|error| NotPassed::Skip(format!("{CORES}: {error}")))?;
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let cores: Vec<_> = paths.filter(|path| path.join("of_node").exists()).collect();
    if cores.is_empty() {
        return Err(NotPassed::Skip(format!("{CORES} has no cores")));
    }
    Ok(cores)
}

/// Waits until no core is powered, at most for [`REST`]. Returns a core that still is.
pub(super) fn powered_after_rest(cores: &[PathBuf]) -> Option<&PathBuf> {
    let is_powered = |core: &&PathBuf| {
        let status = fs::read_to_string(core.join("power/runtime_status"));
        status.is_ok_and(|status| status.trim() == "active")
    };
    let until = Instant::now() + REST;
    loop {
        let powered = cores.iter().find(is_powered);
        if powered.is_none() || Instant::now() >= until {
            return powered;
        }
        thread::sleep(Duration::from_millis(10));
    }
}

pub(super) fn clocks(_: &RowContext) -> RowOutcome {
    const SUMMARY: &str = "/sys/kernel/debug/clk/clk_summary";
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
    let cores = cores()?;
    let bench = context.bench()?;
    let page = bench.page()?.handle;
    bench.submit(bench.job(page))?;
    bench.wait(page)?;
    match powered_after_rest(&cores) {
        None => Ok(()),
        Some(core) => Err(NotPassed::Fail(format!("{} stays active", core.display()))),
    }
}

pub(super) fn group(context: &RowContext) -> RowOutcome {
    balanced("iommu_group_get", "iommu_group_put", || {
        for _ in 0..4 {
            let job = quick(&context.device, |job| job)?;
            job.wait(patience())?;
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
    let file = context.file();
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
