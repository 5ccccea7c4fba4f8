// SPDX-License-Identifier: MIT OR Apache-2.0
//! The published figures, their conditions, and the jobs that model them.
//!
//! E-time-tiles, E-time-submit, E-time-cores, E-time-clock, E-time-client,
//! E-time-resident, E-time-levers; conditions are those of librocketnpu's benchmark
//! programs.

use anyhow::Result;
use rknpu_regcmd::MatmulType::{Fp16ToFp16, Int4ToInt16, Int8ToInt32};
use rknpu_regcmd::timing::{DriverCosts, Machine, seconds};

use super::product::{CutProduct, PACK_PS, READ_PS};
use super::tiles::{TILE, TileJobs, TimedTile, latency};
use super::{FigureTable, fitted, held};

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

/// A machine at the clock of most figures, and one as it boots.
const FAST: Machine = Machine::RK3588;
const SLOW: Machine = FAST.at_clock(Machine::BOOT_CLOCK_HZ);

/// Tasks of [`TILE`] that one job has.
const TASKS: usize = 64;
/// Five jobs of them: 320 tiles.
const FIVE: TileJobs = TileJobs {
    each: 5,
    ..TileJobs::ONE
};
const FIVE_CHAINED: TileJobs = TileJobs {
    chained: true,
    ..FIVE
};
/// The tiles of longer jobs, of a lone task, and of a tiny job.
const SIXTEENTH: TimedTile = TimedTile::new(Fp16ToFp16, 256, 512, 256);
const SINGLE: TimedTile = TimedTile::new(Fp16ToFp16, 64, 256, 512);
const TINY: TimedTile = TimedTile::new(Fp16ToFp16, 8, 64, 16);

/// The product that most figures are about: M, K, N.
const SIZE: (u32, u32, u32) = (512, 3840, 4096);

const US: f64 = 1e6;
const MS: f64 = 1e3;

pub(super) fn all() -> Result<Vec<FigureTable>> {
    let tables = [tiles, submits, clock, cores, client, products, levers];
    tables.into_iter().map(|table| table()).collect()
}

/// Seconds of one job of one task.
fn submit(driver: DriverCosts, tile: TimedTile) -> Result<f64> {
    latency(&FAST.with_driver(driver), TileJobs::ONE, &[tile.work()?])
}

/// The wait for jobs of 64 tiles, seconds.
fn wait(machine: &Machine, jobs: TileJobs) -> Result<f64> {
    latency(machine, jobs, &[TILE.work()?; TASKS])
}

/// One of those tiles.
fn tile(machine: &Machine, jobs: TileJobs) -> Result<f64> {
    Ok(wait(machine, jobs)? / (jobs.each * TASKS) as f64)
}

fn tiles() -> Result<FigureTable> {
    let sixteen = MS * latency(&FAST, TileJobs::ONE, &[SIXTEENTH.work()?; 16])?;
    let [chained, kicked] = [US * tile(&FAST, FIVE_CHAINED)?, US * tile(&FAST, FIVE)?];
    let alone = |driver| Ok::<_, anyhow::Error>(US * submit(driver, SINGLE)?);
    Ok(FigureTable {
        title: "Tiles on one core",
        conditions: "fp16 in and out, 600 MHz. The first two come from the wait for 320 tiles \
                     in five jobs of 64 tasks (62 and 48 ms).",
        rows: vec![
            fitted("256x384x256, one kick for 64 tasks", "us", 150.0, chained),
            fitted("256x384x256, a kick each", "us", 194.0, kicked),
            held(
                "the same on a later kernel build, one kick",
                "us",
                144.0,
                chained,
            ),
            held(
                "the same on a later kernel build, a kick each",
                "us",
                213.0,
                kicked,
            ),
            fitted("job of 16 tasks 256x512x256", "ms", 3.0, sixteen),
            fitted(
                "submit of 64x256x512",
                "us",
                109.0,
                alone(DriverCosts::MAINLINE)?,
            ),
            held(
                "the same, interrupts on an A76",
                "us",
                96.0,
                alone(IRQ_ON_A76)?,
            ),
        ],
    })
}

fn submits() -> Result<FigureTable> {
    let time = |driver| Ok::<_, anyhow::Error>(US * submit(driver, TINY)?);
    let installed = time(DriverCosts::MAINLINE)?;
    Ok(FigureTable {
        title: "Submit and wait of a tiny job",
        conditions: "8x64x16 fp16, medians, 600 MHz.",
        rows: vec![
            fitted("as installed, interrupts on an A55", "us", 52.5, installed),
            fitted("IOMMU kept attached", "us", 34.0, time(KEPT_ATTACHED)?),
            fitted("interrupts on an A76", "us", 32.0, time(IRQ_ON_A76)?),
            fitted(
                "interrupts and client on one A76",
                "us",
                27.5,
                time(ONE_A76)?,
            ),
        ],
    })
}

fn clock() -> Result<FigureTable> {
    let work = TILE.work()?;
    let per_core = 2.0 * work.macs as f64 / seconds(work.duration_ps(&SLOW)) / 1e9;
    let saved = MS * (wait(&SLOW, FIVE)? - wait(&FAST, FIVE)?);
    let faster = MS * wait(&FAST.at_clock(900_000_000), FIVE)?;
    // 2*512*3840*4096 operations at 56.5 and at 75.3 GFLOP/s.
    let operations = fp16(SIZE).operations();
    let published = MS * (operations / 56.5e9 - operations / 75.3e9);
    Ok(FigureTable {
        title: "Clock",
        conditions: "The same 320 tiles, a kick each, one file.",
        rows: vec![
            held(
                "one core at 200 MHz, device only",
                "GFLOP/s",
                150.0,
                per_core,
            ),
            held(
                "512x3840x4096: saved from 200 to 600 MHz",
                "ms",
                published,
                saved,
            ),
            fitted("wait at 900 MHz", "ms", 61.0, faster),
        ],
    })
}

fn cores() -> Result<FigureTable> {
    const JOBS: usize = 10;
    let rate = |files: usize| {
        let jobs = TileJobs {
            files,
            each: JOBS,
            chained: false,
        };
        Ok::<_, anyhow::Error>((files * JOBS) as f64 / wait(&SLOW, jobs)?)
    };
    let job = |driver| {
        let jobs = TileJobs {
            each: JOBS,
            ..TileJobs::ONE
        };
        let time = latency(&FAST.with_driver(driver), jobs, &[TINY.work()?; TASKS])?;
        Ok::<_, anyhow::Error>(MS * time / JOBS as f64)
    };
    let [installed, kept] = [job(DriverCosts::MAINLINE)?, job(KEPT_ATTACHED)?];
    Ok(FigureTable {
        title: "Cores and files",
        conditions: "Jobs of 64 tasks, a kick each. Jobs per second: 256x384x256 fp16, every \
                     task the same tile; no clock is given, and taken as 200 MHz. The time of a \
                     job: ten of them, 600 MHz, of small tiles; taken as 8x64x16.",
        rows: vec![
            held("1 file", "jobs/s", 39.5, rate(1)?),
            held("2 files", "jobs/s", 84.3, rate(2)?),
            held("3 files", "jobs/s", 116.1, rate(3)?),
            held("4 files", "jobs/s", 120.9, rate(4)?),
            fitted("a job of small tiles", "ms", 0.768, installed),
            held(
                "IOMMU kept attached: saved of it",
                "ms",
                0.018,
                installed - kept,
            ),
        ],
    })
}

/// fp16 with sums on the NPU, five files.
fn fp16(size: (u32, u32, u32)) -> CutProduct {
    CutProduct {
        ty: Fp16ToFp16,
        size,
        tile: (256, 384, 256),
        files: 5,
        sums_on_npu: true,
        right_sized: false,
        packs_weights: false,
    }
}

fn client() -> Result<FigureTable> {
    let ms = |each_ps, elements| MS * seconds(each_ps * elements);
    let (m, k, n) = (u64::from(SIZE.0), u64::from(SIZE.1), u64::from(SIZE.2));
    let whole = MS * fp16(SIZE).run(&FAST)?.sync;
    let right_sized = CutProduct {
        right_sized: true,
        ..fp16(SIZE)
    };
    let right_sized = MS * right_sized.run(&FAST)?.sync;
    Ok(FigureTable {
        title: "Client",
        conditions: "512x3840x4096 fp16, one A76; cache maintenance summed over five files.",
        rows: vec![
            fitted("laying out B", "ms", 32.0, ms(PACK_PS, n * k)),
            held("laying out A", "ms", 4.0, ms(PACK_PS, m * k)),
            fitted(
                "reading 320 tiles",
                "ms",
                76.0,
                ms(READ_PS, 320 * 256 * 256),
            ),
            held("reading the result", "ms", 10.0, ms(READ_PS, m * n)),
            fitted("cache maintenance, buffers of 64 tiles", "ms", 127.0, whole),
            held(
                "the same, buffers as long as needed",
                "ms",
                15.0,
                right_sized,
            ),
        ],
    })
}

fn products() -> Result<FigureTable> {
    let down = (512, 15360, 3840);
    let right_sized = CutProduct {
        right_sized: true,
        ..fp16(SIZE)
    }
    .gops(&FAST)?;
    let fp16_of = |size| fp16(size).gops(&FAST);
    let int8 = |size, k| fp16(size).as_integers(Int8ToInt32, k).gops(&FAST);
    let int4 = |size, k| fp16(size).as_integers(Int4ToInt16, k).gops(&FAST);
    Ok(FigureTable {
        title: "Products, weights resident, five files",
        conditions: "600 MHz, three cores. fp16: sums and reuse of features on the NPU, a job for \
                     each tile of K, output buffers of 64 tiles. int8, int4: every tile is read \
                     and summed on the CPU. Tiles of 256x256, in K 384 of fp16, 640 or 704 of \
                     int8, 1280 or 1408 of int4: as the library's rule for CBUF gives them.",
        rows: vec![
            held("512x3840x4096 fp16", "GOP/s", 461.0, fp16_of(SIZE)?),
            held("512x3840x4096 int8", "GOP/s", 386.0, int8(SIZE, 640)?),
            held("512x3840x4096 int4", "GOP/s", 413.0, int4(SIZE, 1280)?),
            held("512x15360x3840 fp16", "GOP/s", 486.0, fp16_of(down)?),
            held("512x15360x3840 int8", "GOP/s", 452.0, int8(down, 704)?),
            held("512x15360x3840 int4", "GOP/s", 463.0, int4(down, 1408)?),
            held(
                "512x3840x4096 fp16, buffers as long as needed",
                "GOP/s",
                539.0,
                right_sized,
            ),
        ],
    })
}

/// Products whose tiles of half the width, 256x512x128 in place of 256x384x256, were
/// measured, and the gain of a call.
const NARROWED: [((u32, u32, u32), f64); 10] = [
    ((512, 2048, 2048), 1.158),
    ((512, 2048, 4096), 1.138),
    ((2048, 4096, 4096), 1.092),
    ((1024, 4096, 4096), 1.08),
    ((512, 8192, 2048), 1.081),
    ((1024, 8192, 8192), 1.072),
    ((512, 15360, 3840), 1.06),
    ((512, 4096, 4096), 1.06),
    ((512, 3840, 15360), 1.02),
    (SIZE, 1.02),
];

fn levers() -> Result<FigureTable> {
    let plain = TimedTile { adds: true, ..TILE };
    let reusing = TimedTile {
        reuses: true,
        ..plain
    };
    let device = |tile: TimedTile| {
        Ok::<_, anyhow::Error>(tile.work()?.duration_ps(&FAST) + FAST.driver.kick_ps)
    };
    // Four tiles of N share the rows of A.
    let shared = (device(plain)? + 3 * device(reusing)?) as f64 / (4 * device(plain)?) as f64;
    let mut rows = vec![held("wait, DATA_REUSE against none", "ratio", 0.79, shared)];
    for (size, published) in NARROWED {
        // As the library's one-shot call cuts it.
        let time = |tile| {
            let (right_sized, packs_weights) = (true, true);
            let call = CutProduct {
                tile,
                files: 1,
                right_sized,
                packs_weights,
                ..fp16(size)
            };
            Ok::<_, anyhow::Error>(call.run(&FAST)?.wall)
        };
        let gain = time((256, 384, 256))? / time((256, 512, 128))?;
        let (m, k, n) = size;
        rows.push(held(
            format!("tiles of half the width, {m}x{k}x{n}"),
            "ratio",
            published,
            gain,
        ));
    }
    Ok(FigureTable {
        title: "Levers",
        conditions: "Ratios of times, 600 MHz. Tiles of half the width are deeper: 256x512x128 in \
                     place of 256x384x256. Their gain is of a whole call of one file that lays \
                     out A and B and sums on the NPU.",
        rows,
    })
}

#[cfg(test)]
mod tests {
    use super::super::FigureRow;
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
            // Tiles of half the width were never slower on silicon.
            assert!(!row.what.contains("half") || row.modelled > 1.0, "{row:?}");
        }
    }

    /// The parameter is what its documentation says it is.
    #[test]
    fn the_bytes_of_a_clock_are_the_best_fit() {
        let [sixteen, single] = [SIXTEENTH, SINGLE].map(|tile| tile.work().unwrap());
        let squares = |bytes: u32| {
            let mut machine = FAST;
            machine.dram.core_bytes_per_clock = bytes;
            machine.dram.core_bytes_per_second = u64::from(bytes) * FAST.clock_hz;
            let errors = [
                tile(&machine, FIVE_CHAINED).unwrap() / 150e-6,
                tile(&machine, FIVE).unwrap() / 194e-6,
                latency(&machine, TileJobs::ONE, &[sixteen; 16]).unwrap() / 3e-3,
                latency(&machine, TileJobs::ONE, &[single]).unwrap() / 109e-6,
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
