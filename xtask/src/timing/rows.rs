// SPDX-License-Identifier: MIT OR Apache-2.0
//! Models the published figures in figures.txt.

use anyhow::{Context, Result, ensure};
use npu_matmul::Profile;
use npu_matmul::profile::CostSide;
use npu_offload::{Graph, ModelShape, NumberFormat, OffloadRules, PlanTarget};
use rknpu_regcmd::TaskType::{Fp16ToFp16, Int4ToInt16, Int8ToInt32};
use rknpu_regcmd::timing::{DriverCosts, Machine, seconds};

use super::matmul::{LibraryClient, PACK_PS, READ_PS, TiledMatmul};
use super::tiles::{TILE, TileJobs, TimedTile, latency};

const FIGURES: &str = include_str!("figures.txt");

/// A published figure and the model's.
#[derive(Clone, Debug)]
pub(super) struct FigureRow {
    pub(super) what: &'static str,
    pub(super) unit: &'static str,
    pub(super) published: f64,
    /// By the constants that plans are made with.
    pub(super) modelled: f64,
    /// The least and the most by the sides of contested constants.
    pub(super) range: [f64; 2],
    /// Whether it determined a parameter of the model. Otherwise the model predicts it.
    pub(super) is_fitted: bool,
}

/// Figures of one subject, measured under the same conditions.
pub(super) struct FigureTable {
    pub(super) title: &'static str,
    pub(super) conditions: &'static str,
    pub(super) rows: Vec<FigureRow>,
}

impl FigureRow {
    pub(super) fn error(&self) -> f64 {
        self.modelled / self.published - 1.0
    }

    /// Whether the published figure lies in the range, within the rounding of both.
    pub(super) fn is_inside(&self) -> bool {
        const ROUNDING: f64 = 0.01;
        let [least, most] = self.range;
        (least * (1.0 - ROUNDING)..=most * (1.0 + ROUNDING)).contains(&self.published)
    }
}

/// A modelled board.
#[derive(Clone, Copy)]
struct ModelledBoard {
    /// At the clock of most figures.
    fast: Machine,
    /// The other library's clients.
    client: LibraryClient,
    /// The side of whole prompts.
    side: CostSide,
}

impl ModelledBoard {
    /// The board of the constants that plans are made with, and one for each choice of a side of
    /// each contested constant, all likely and all upper first. A time has its extremes in these
    /// two; a ratio or a difference need not.
    fn all() -> Vec<Self> {
        let profile = Profile::built_in();
        let ends = [CostSide::Likely, CostSide::Upper].map(|side| profile.on(side).machine);
        let board = |machine: Machine, client, side| Self {
            fast: machine.at_clock(Machine::RK3588.clock_hz),
            client,
            side,
        };
        let fitted = board(profile.machine, LibraryClient::FITTED, CostSide::Likely);
        let mut boards = vec![fitted];
        // Bits: bytes a clock, ceiling of a core, common ceiling, kick, client's rate, its cores.
        let last = (1_usize << 6) - 1;
        for corner in [0, last].into_iter().chain(1..last) {
            let upper = |bit: usize| corner >> bit & 1;
            let mut machine = ends[upper(0)];
            machine.dram.core_bytes_per_second = ends[upper(1)].dram.core_bytes_per_second;
            machine.dram.shared_bytes_per_second = ends[upper(2)].dram.shared_bytes_per_second;
            machine.driver.kick_ps = ends[upper(3)].driver.kick_ps;
            let client = LibraryClient {
                permille: LibraryClient::PERMILLE[upper(4)],
                waits_for_core: upper(5) == 0,
            };
            let side = [CostSide::Likely, CostSide::Upper][upper(0)];
            boards.push(board(machine, client, side));
        }
        boards
    }

    /// At the boot clock.
    const fn slow(&self) -> Machine {
        self.fast.at_clock(Machine::BOOT_CLOCK_HZ)
    }

    /// With interrupts on one A76 and the client on another: a kick takes 6 us less.
    const fn irq_on_a76(&self) -> DriverCosts {
        let driver = self.fast.driver;
        DriverCosts {
            kick_ps: driver.kick_ps.saturating_sub(6_000_000),
            wake_ps: 7_000_000,
            ..driver
        }
    }

    /// With interrupts and client on the same A76.
    const fn one_a76(&self) -> DriverCosts {
        DriverCosts {
            wake_ps: 2_500_000,
            ..self.irq_on_a76()
        }
    }

    /// With interrupts on an A55, and address spaces that stay attached (a patch that is not in
    /// mainline).
    const fn kept_attached(&self) -> DriverCosts {
        DriverCosts {
            attach_ps: 0,
            ..self.fast.driver
        }
    }

    /// Seconds of a job with one task.
    fn submit(&self, driver: DriverCosts, tile: TimedTile) -> Result<f64> {
        latency(
            &self.fast.with_driver(driver),
            TileJobs::ONE,
            &[tile.work()?],
        )
    }
}

/// Tasks of [`TILE`] in a job.
const TASKS: usize = 64;
/// Five such jobs: 320 tiles.
const FIVE: TileJobs = TileJobs {
    each: 5,
    ..TileJobs::ONE
};
const FIVE_CHAINED: TileJobs = TileJobs {
    chained: true,
    ..FIVE
};
/// The tiles of a job of 16 tasks, of a single task, and of a tiny job.
const SIXTEENTH: TimedTile = TimedTile::new(Fp16ToFp16, 256, 512, 256);
const SINGLE: TimedTile = TimedTile::new(Fp16ToFp16, 64, 256, 512);
const TINY: TimedTile = TimedTile::new(Fp16ToFp16, 8, 64, 16);

/// The matmul of most figures: M, K, N.
const SIZE: (u32, u32, u32) = (512, 3840, 4096);

const US: f64 = 1e6;
const MS: f64 = 1e3;

/// Returns a value for each row of a table.
type FigureModel = fn(&ModelledBoard) -> Result<Vec<f64>>;

pub(super) fn all() -> Result<Vec<FigureTable>> {
    let boards = ModelledBoard::all();
    let models: [(FigureModel, &[ModelledBoard]); 8] = [
        (tiles, &boards),
        (submits, &boards),
        (clock, &boards),
        (cores, &boards),
        (client, &boards),
        (matmuls, &boards),
        (levers, &boards),
        // Whole prompts know no mixed sides.
        (vendor, &boards[..3]),
    ];
    let tables: Vec<_> = FIGURES.split("\n## ").skip(1).collect();
    ensure!(
        tables.len() == models.len(),
        "figures.txt does not have one table for each model"
    );
    let both = tables.into_iter().zip(models);
    both.map(|(text, (model, boards))| {
        let columns: Result<Vec<_>> = boards.iter().map(model).collect();
        table(text, &columns?)
    })
    .collect()
}

/// A table of figures.txt with the values of each modelled board.
fn table(text: &'static str, modelled: &[Vec<f64>]) -> Result<FigureTable> {
    let mut lines = text.lines();
    let (title, conditions) = lines
        .next()
        .zip(lines.next())
        .context("a table has no line of conditions")?;
    let rows: Vec<_> = lines.filter(|line| !line.is_empty()).collect();
    ensure!(
        modelled.iter().all(|column| column.len() == rows.len()),
        "{title} does not have one row for each modelled value"
    );
    let row = |(index, line): (usize, &'static str)| {
        let words: Vec<_> = line.splitn(4, ' ').collect();
        let [role, unit, published, what] = words[..] else {
            anyhow::bail!("incomplete row: {line}");
        };
        let values = modelled[1..].iter().map(|column| column[index]);
        Ok(FigureRow {
            what,
            unit,
            published: published.parse()?,
            modelled: modelled[0][index],
            range: [
                values.clone().fold(f64::INFINITY, f64::min),
                values.fold(0.0, f64::max),
            ],
            is_fitted: role == "F",
        })
    };
    Ok(FigureTable {
        title,
        conditions,
        rows: rows
            .into_iter()
            .enumerate()
            .map(row)
            .collect::<Result<_>>()?,
    })
}

/// Seconds for `jobs`, each of 64 tiles.
fn wait(machine: &Machine, jobs: TileJobs) -> Result<f64> {
    latency(machine, jobs, &[TILE.work()?; TASKS])
}

/// Seconds for one of those tiles.
fn tile(machine: &Machine, jobs: TileJobs) -> Result<f64> {
    Ok(wait(machine, jobs)? / (jobs.each * TASKS) as f64)
}

fn tiles(board: &ModelledBoard) -> Result<Vec<f64>> {
    let fast = &board.fast;
    let sixteen = MS * latency(fast, TileJobs::ONE, &[SIXTEENTH.work()?; 16])?;
    let [chained, kicked] = [US * tile(fast, FIVE_CHAINED)?, US * tile(fast, FIVE)?];
    let installed = US * board.submit(fast.driver, SINGLE)?;
    let on_a76 = US * board.submit(board.irq_on_a76(), SINGLE)?;
    Ok(vec![
        chained, kicked, chained, kicked, sixteen, installed, on_a76,
    ])
}

fn submits(board: &ModelledBoard) -> Result<Vec<f64>> {
    let drivers = [
        board.fast.driver,
        board.kept_attached(),
        board.irq_on_a76(),
        board.one_a76(),
    ];
    let time = |driver| Ok(US * board.submit(driver, TINY)?);
    drivers.into_iter().map(time).collect()
}

fn clock(board: &ModelledBoard) -> Result<Vec<f64>> {
    let (fast, slow) = (&board.fast, &board.slow());
    let work = TILE.work()?;
    let per_core = 2.0 * work.macs as f64 / seconds(work.duration_ps(slow)) / 1e9;
    let saved = MS * (wait(slow, FIVE)? - wait(fast, FIVE)?);
    let faster = MS * wait(&fast.at_clock(900_000_000), FIVE)?;
    Ok(vec![per_core, saved, faster])
}

fn cores(board: &ModelledBoard) -> Result<Vec<f64>> {
    const JOBS: usize = 10;
    let slow = board.slow();
    let rate = |files: usize| {
        let jobs = TileJobs {
            files,
            each: JOBS,
            chained: false,
        };
        Ok((files * JOBS) as f64 / wait(&slow, jobs)?)
    };
    let job = |driver| {
        let jobs = TileJobs {
            each: JOBS,
            ..TileJobs::ONE
        };
        let time = latency(
            &board.fast.with_driver(driver),
            jobs,
            &[TINY.work()?; TASKS],
        )?;
        anyhow::Ok(MS * time / JOBS as f64)
    };
    let [installed, kept] = [job(board.fast.driver)?, job(board.kept_attached())?];
    let rates: Result<Vec<f64>> = (1..=4).map(rate).collect();
    Ok([rates?, vec![installed, installed - kept]].concat())
}

/// The FP16 matmul with output buffers of the needed size.
fn right_sized() -> TiledMatmul {
    TiledMatmul {
        right_sized: true,
        ..TiledMatmul::fp16(SIZE)
    }
}

fn client(board: &ModelledBoard) -> Result<Vec<f64>> {
    let ms = |each_ps, elements| MS * seconds(board.client.at_its_rate(each_ps * elements));
    let (m, k, n) = (u64::from(SIZE.0), u64::from(SIZE.1), u64::from(SIZE.2));
    Ok(vec![
        ms(PACK_PS, n * k),
        ms(PACK_PS, m * k),
        ms(READ_PS, 320 * 256 * 256),
        ms(READ_PS, m * n),
        MS * TiledMatmul::fp16(SIZE).run(&board.fast, board.client)?.sync,
        MS * right_sized().run(&board.fast, board.client)?.sync,
    ])
}

fn matmuls(board: &ModelledBoard) -> Result<Vec<f64>> {
    let down = TiledMatmul::fp16((512, 15360, 3840));
    let of = TiledMatmul::fp16(SIZE);
    let matmuls = [
        of,
        of.as_integers(Int8ToInt32, 640),
        of.as_integers(Int4ToInt16, 1280),
        down,
        down.as_integers(Int8ToInt32, 704),
        down.as_integers(Int4ToInt16, 1408),
        right_sized(),
    ];
    matmuls
        .iter()
        .map(|matmul| matmul.gops(&board.fast, board.client))
        .collect()
}

/// Matmuls that were also measured with tiles of half the width, 256x512x128 instead of
/// 256x384x256: M, K, N.
fn narrowed() -> Result<Vec<(u32, u32, u32)>> {
    let sizes = FIGURES
        .lines()
        .filter_map(|line| line.split_once("half the width, "));
    let size = |(_, size): (_, &str)| {
        let numbers: Vec<u32> = size.split('x').map(str::parse).collect::<Result<_, _>>()?;
        <[u32; 3]>::try_from(numbers)
            .map(Into::into)
            .ok()
            .context("no size")
    };
    sizes.map(size).collect()
}

fn levers(board: &ModelledBoard) -> Result<Vec<f64>> {
    let fast = &board.fast;
    let plain = TimedTile { adds: true, ..TILE };
    let reusing = TimedTile {
        reuses: true,
        ..plain
    };
    let device = |tile: TimedTile| anyhow::Ok(tile.work()?.duration_ps(fast) + fast.driver.kick_ps);
    // Four tiles of N share the rows of A.
    let shared = (device(plain)? + 3 * device(reusing)?) as f64 / (4 * device(plain)?) as f64;
    let gain = |size| {
        // As in the library's one-shot call.
        let time = |tile| {
            let call = TiledMatmul {
                tile,
                files: 1,
                right_sized: true,
                packs_weights: true,
                ..TiledMatmul::fp16(size)
            };
            anyhow::Ok(call.run(fast, board.client)?.wall)
        };
        Ok(time((256, 384, 256))? / time((256, 512, 128))?)
    };
    [Ok(shared)]
        .into_iter()
        .chain(narrowed()?.into_iter().map(gain))
        .collect()
}

/// TinyLlama, 1.1B, by its published `config.json`.
const TINY_LLAMA: ModelShape = ModelShape {
    name: "TinyLlama-1.1B",
    layers: 22,
    hidden: 2048,
    feed_forward: 5632,
    heads: 32,
    kv_heads: 4,
    head_dim: 64,
    vocabulary: 32_000,
    window: None,
};

fn vendor(board: &ModelledBoard) -> Result<Vec<f64>> {
    let format = NumberFormat::named("Q8_0").context("no format Q8_0")?;
    // The vendor's runtime leaves all matmuls to the NPU.
    let rules = OffloadRules::new(PlanTarget::at_clock(1_000_000_000).npu_alone());
    let ms = |shape| {
        let graph = Graph {
            side: board.side,
            ..Graph::new(shape, format, &rules)
        };
        MS * seconds(graph.prompt(128).total())
    };
    Ok([ModelShape::QWEN3_0_6B, TINY_LLAMA].map(ms).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The machine that the parameters were fitted for.
    const FAST: Machine = Machine::RK3588;

    /// Nobody leaves out a figure because the model misses it.
    #[test]
    fn the_list_of_held_out_figures_only_grows() {
        let tables = all().unwrap();
        let rows = tables.iter().flat_map(|table| &table.rows);
        assert!(rows.filter(|row| !row.is_fitted).count() >= 33);
    }

    /// The model agrees with the published figures that plans depend on.
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

    /// `core_bytes_per_clock` is the best fit, as its documentation says.
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
