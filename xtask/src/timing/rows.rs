// SPDX-License-Identifier: MIT OR Apache-2.0
//! The published figures, their conditions, and the jobs that model them.
//!
//! E-time-tiles, E-time-submit, E-time-cores, E-time-clock, E-time-client,
//! E-time-resident, E-time-levers; conditions are those of librocketnpu's benchmark
//! programs.

mod products;

use anyhow::Result;
use rknpu_regcmd::MatmulType::Fp16ToFp16;
use rknpu_regcmd::timing::{DriverCosts, Machine, ScheduledJob, schedule, seconds};

use super::figures::{FigureTable, row};
use super::jobs::{FAST, MS, SIZE, TASKS, TILE, TileJobs, US, latency, wait};
use super::tiles::TimedTile;

/// Mainline with its interrupts on an A76, the client on another.
const IRQ_ON_A76: DriverCosts = DriverCosts {
    kick_ps: 6_000_000,
    ..DriverCosts::MAINLINE
};
/// The same with interrupts and client on one A76.
const ONE_A76: DriverCosts = DriverCosts {
    wake_ps: 500_000,
    ..IRQ_ON_A76
};
/// Interrupts on an A55, but address spaces stay attached (a patch that mainline
/// has not).
const KEPT_ATTACHED: DriverCosts = DriverCosts {
    attach_ps: 0,
    ..DriverCosts::MAINLINE
};

/// A machine as it boots.
const SLOW: Machine = FAST.at_clock(Machine::BOOT_CLOCK_HZ);

pub(super) fn all() -> Result<Vec<FigureTable>> {
    Ok(vec![
        tiles()?,
        submits()?,
        clock()?,
        cores()?,
        products::host()?,
        products::products()?,
        products::levers()?,
    ])
}

/// Seconds of one job of one task.
fn submit(machine: &Machine, tile: TimedTile) -> Result<f64> {
    latency(machine, TileJobs::ONE, &[tile.work()?])
}

/// One of the tiles of [`wait`], seconds.
fn tile(machine: &Machine, jobs: TileJobs) -> Result<f64> {
    Ok(wait(machine, jobs)? / (jobs.each * TASKS) as f64)
}

fn tiles() -> Result<FigureTable> {
    let sixteen = TimedTile::new(Fp16ToFp16, 256, 512, 256).work()?;
    let single = TimedTile::new(Fp16ToFp16, 64, 256, 512);
    let on_a76 = FAST.with_driver(IRQ_ON_A76);
    Ok(FigureTable {
        title: "Tiles on one core",
        conditions: "fp16 in and out, 600 MHz. The first two come from the wait for 320 tiles \
                     in five jobs of 64 tasks (62 and 48 ms).",
        rows: vec![
            row(
                "256x384x256, one kick for 64 tasks",
                "us",
                150.0,
                US * tile(&FAST, TileJobs::FIVE_CHAINED)?,
            )
            .fitted(),
            row(
                "256x384x256, a kick each",
                "us",
                194.0,
                US * tile(&FAST, TileJobs::FIVE)?,
            )
            .fitted(),
            row(
                "the same on a later kernel build, one kick",
                "us",
                144.0,
                US * tile(&FAST, TileJobs::FIVE_CHAINED)?,
            ),
            row(
                "the same on a later kernel build, a kick each",
                "us",
                213.0,
                US * tile(&FAST, TileJobs::FIVE)?,
            ),
            row(
                "job of 16 tasks 256x512x256",
                "ms",
                3.0,
                MS * latency(&FAST, TileJobs::ONE, &[sixteen; 16])?,
            )
            .fitted(),
            row(
                "submit of 64x256x512",
                "us",
                109.0,
                US * submit(&FAST, single)?,
            )
            .fitted(),
            row(
                "the same, interrupts on an A76",
                "us",
                96.0,
                US * submit(&on_a76, single)?,
            ),
        ],
    })
}

fn submits() -> Result<FigureTable> {
    let tiny = TimedTile::new(Fp16ToFp16, 8, 64, 16);
    let time = |driver| Ok::<_, anyhow::Error>(US * submit(&FAST.with_driver(driver), tiny)?);
    Ok(FigureTable {
        title: "Submit and wait of a tiny job",
        conditions: "8x64x16 fp16, medians, 600 MHz.",
        rows: vec![
            row(
                "as installed, interrupts on an A55",
                "us",
                52.5,
                time(DriverCosts::MAINLINE)?,
            )
            .fitted(),
            row("IOMMU kept attached", "us", 34.0, time(KEPT_ATTACHED)?).fitted(),
            row("interrupts on an A76", "us", 32.0, time(IRQ_ON_A76)?).fitted(),
            row(
                "interrupts and client on one A76",
                "us",
                27.5,
                time(ONE_A76)?,
            )
            .fitted(),
        ],
    })
}

fn clock() -> Result<FigureTable> {
    let faster = FAST.at_clock(900_000_000);
    let work = TILE.work()?;
    let per_core = 2.0 * work.macs as f64 / seconds(work.duration_ps(&SLOW)) / 1e9;
    let saved = wait(&SLOW, TileJobs::FIVE)? - wait(&FAST, TileJobs::FIVE)?;
    // 2*512*3840*4096 operations at 56.5 and at 75.3 GFLOP/s.
    let operations = products::one_file(SIZE, (256, 384, 256)).operations();
    let published = operations / 56.5e9 - operations / 75.3e9;
    Ok(FigureTable {
        title: "Clock",
        conditions: "The same 320 tiles, a kick each, one file.",
        rows: vec![
            row(
                "one core at 200 MHz, device only",
                "GFLOP/s",
                150.0,
                per_core,
            ),
            row(
                "512x3840x4096: saved from 200 to 600 MHz",
                "ms",
                MS * published,
                MS * saved,
            ),
            row(
                "wait at 900 MHz",
                "ms",
                61.0,
                MS * wait(&faster, TileJobs::FIVE)?,
            )
            .fitted(),
        ],
    })
}

fn cores() -> Result<FigureTable> {
    const JOBS: usize = 10;
    let work = [TILE.work()?; TASKS];
    let rate = |files: usize| {
        let jobs = TileJobs {
            files,
            each: JOBS,
            ..TileJobs::ONE
        };
        let time = latency(&SLOW, jobs, &work)?;
        Ok::<_, anyhow::Error>((files * JOBS) as f64 / time)
    };
    let kept = FAST.with_driver(KEPT_ATTACHED);
    let queued = |machine: &Machine, count: usize| {
        let jobs = vec![
            ScheduledJob {
                tasks: work.to_vec(),
                ..ScheduledJob::default()
            };
            count
        ];
        let end = schedule(&jobs, machine)?.end_ps + machine.driver.wake_ps;
        Ok::<_, anyhow::Error>(MS * seconds(end))
    };
    Ok(FigureTable {
        title: "Cores and files",
        conditions: "Jobs of 64 tasks 256x384x256 fp16, every task the same tile, a kick each. \
                     Jobs per second: no clock is given; taken as 200 MHz, since at 600 MHz the \
                     same job is published with 7.68 ms (best of ten).",
        rows: vec![
            row("1 file", "jobs/s", 39.5, rate(1)?),
            row("2 files", "jobs/s", 84.3, rate(2)?),
            row("3 files", "jobs/s", 116.1, rate(3)?),
            row("4 files", "jobs/s", 120.9, rate(4)?),
            row("3 files against 1", "ratio", 2.94, rate(3)? / rate(1)?),
            row("1 job at 600 MHz", "ms", 7.68, queued(&FAST, 1)?),
            row(
                "1 job at 600 MHz, IOMMU kept attached",
                "ms",
                7.50,
                queued(&kept, 1)?,
            ),
            row(
                "3 jobs of one file at 600 MHz",
                "ms",
                23.56,
                queued(&FAST, 3)?,
            ),
            row(
                "3 jobs of one file against 1",
                "ratio",
                3.07,
                queued(&FAST, 3)? / queued(&FAST, 1)?,
            ),
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::super::figures::FigureRow;
    use super::*;

    /// Modelled and published figure of the rows that anything else rests on.
    #[test]
    fn the_figures_that_matter_are_within_a_quarter() {
        let tables = all().unwrap();
        let rows: Vec<&FigureRow> = tables.iter().flat_map(|table| &table.rows).collect();
        for what in [
            "256x384x256, one kick for 64 tasks",
            "256x384x256, a kick each",
            "512x3840x4096 fp16",
            "512x3840x4096 int8",
            "512x3840x4096 int4",
        ] {
            let row = rows.iter().find(|row| row.what == what).unwrap();
            assert!(row.error().abs() <= 0.25, "{row:?}");
        }
    }

    /// The parameter is what its documentation says it is.
    #[test]
    fn the_bytes_of_a_clock_are_the_best_fit() {
        let sixteen = TimedTile::new(Fp16ToFp16, 256, 512, 256).work().unwrap();
        let single = TimedTile::new(Fp16ToFp16, 64, 256, 512);
        let squares = |bytes: u32| {
            let mut machine = FAST;
            machine.dram.core_bytes_per_clock = bytes;
            machine.dram.core_bytes_per_second = u64::from(bytes) * FAST.clock_hz;
            let errors = [
                tile(&machine, TileJobs::FIVE_CHAINED).unwrap() / 150e-6,
                tile(&machine, TileJobs::FIVE).unwrap() / 194e-6,
                latency(&machine, TileJobs::ONE, &[sixteen; 16]).unwrap() / 3e-3,
                submit(&machine, single).unwrap() / 109e-6,
            ];
            errors
                .map(|ratio| (ratio - 1.0).powi(2))
                .iter()
                .sum::<f64>()
        };
        let best = (1..=16).min_by(|&a, &b| squares(a).total_cmp(&squares(b)));
        assert_eq!(best, Some(FAST.dram.core_bytes_per_clock));
    }
}
