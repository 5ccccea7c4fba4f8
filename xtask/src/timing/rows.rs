// SPDX-License-Identifier: MIT OR Apache-2.0
//! The published figures, their conditions, and the jobs that model them.
//!
//! E-time-tiles, E-time-submit, E-time-cores, E-time-clock, E-time-client,
//! E-time-resident, E-time-levers; conditions are those of librocketnpu's benchmark
//! programs.

mod products;

use anyhow::Result;
use rknpu_regcmd::MatmulType::Fp16ToFp16;
use rknpu_regcmd::timing::{DriverCosts, Machine, seconds};

use super::figures::{FigureTable, row};
use super::jobs::{FAST, MS, SIZE, TASKS, TILE, TileJobs, US, latency, wait};
use super::tiles::TimedTile;

/// Mainline with its interrupts on an A76, the client on another.
const IRQ_ON_A76: DriverCosts = DriverCosts {
    kick_ps: 4_000_000,
    wake_ps: 7_000_000,
    ..DriverCosts::MAINLINE
};
/// The same with interrupts and client on one A76.
const ONE_A76: DriverCosts = DriverCosts {
    wake_ps: 2_500_000,
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

/// The tile of a tiny job.
const TINY: TimedTile = TimedTile::new(Fp16ToFp16, 8, 64, 16);

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
    let time = |driver| Ok::<_, anyhow::Error>(US * submit(&FAST.with_driver(driver), TINY)?);
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
    let job = |driver| {
        let jobs = TileJobs {
            each: JOBS,
            ..TileJobs::ONE
        };
        let time = latency(&FAST.with_driver(driver), jobs, &[TINY.work()?; TASKS])?;
        Ok::<_, anyhow::Error>(MS * time / JOBS as f64)
    };
    let [as_installed, kept] = [job(DriverCosts::MAINLINE)?, job(KEPT_ATTACHED)?];
    Ok(FigureTable {
        title: "Cores and files",
        conditions: "Jobs of 64 tasks, a kick each. Jobs per second: 256x384x256 fp16, every \
                     task the same tile; no clock is given, and taken as 200 MHz. The time of a \
                     job: ten of them, 600 MHz, of small tiles; taken as 8x64x16.",
        rows: vec![
            row("1 file", "jobs/s", 39.5, rate(1)?),
            row("2 files", "jobs/s", 84.3, rate(2)?),
            row("3 files", "jobs/s", 116.1, rate(3)?),
            row("4 files", "jobs/s", 120.9, rate(4)?),
            row("a job of small tiles", "ms", 0.768, as_installed).fitted(),
            row(
                "IOMMU kept attached: saved of it",
                "ms",
                0.018,
                as_installed - kept,
            ),
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::super::figures::FigureRow;
    use super::*;

    /// Modelled and published figure of the rows that plans rest on.
    #[test]
    fn the_figures_that_matter_are_within_a_sixth() {
        let tables = all().unwrap();
        let rows = tables.iter().flat_map(|table| &table.rows);
        let matter: Vec<&FigureRow> = rows
            .filter(|row| {
                ["jobs/s", "ratio"].contains(&row.unit)
                    || row.what.ends_with("one kick for 64 tasks")
                    || row.what.starts_with("job of 16 tasks")
                    || row.what.ends_with("int8")
            })
            .collect();
        assert_eq!(matter.len(), 4 + 11 + 1 + 1 + 2);
        for row in matter {
            assert!(row.error().abs() <= 1.0 / 6.0, "{row:?}");
        }
    }

    /// Tiles of half the width were never slower on silicon.
    #[test]
    fn tiles_of_half_the_width_gain_where_they_were_measured_to() {
        let levers = products::levers().unwrap();
        let narrowed = levers.rows.iter().filter(|row| row.what.contains("half"));
        for row in narrowed {
            assert!(row.modelled > 1.0, "{row:?}");
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
