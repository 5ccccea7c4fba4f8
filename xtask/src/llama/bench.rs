// SPDX-License-Identifier: MIT OR Apache-2.0
//! Check: token generation costs the CPU what it costs without the backend;
//! and what loading a model takes. With `--record` into docs/llama.md.
//!
//! Each run of the stock llama-bench generates so many tokens, and its user
//! time is taken. Two lengths give the time of a token, without start and load;
//! what is left is start and load. Runs with and without the backend alternate, so
//! that a machine that becomes busier meets both.

mod measure;

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Result, ensure};

use self::measure::{RunUsage, median};
use super::conditions;
use super::model::{ModelRecipe, Workshop};
use super::page::MeasuredSections;
use super::stats::StatsTable;
use super::stock::{Backend, Stock};
use crate::process::CommandOutput;
use crate::report::CheckVerdict;

/// The check's name in `--only` and in its verdict.
pub(super) const NAME: &str = "bench";
/// The formats of most files, and the four ways in which weights lie: as in the
/// file, and rearranged by the CPU by blocks of 32 and of 256.
const FORMATS: [&str; 4] = ["Q4_0", "Q4_K_M", "Q8_0", "F16"];
/// Tokens of a short run and of a long one.
const SHORT: u32 = 8;
const LONG: u32 = 72;
/// Tokens that llama-bench generates before, to warm up.
const WARM_UP: u32 = 1;
/// Short and long runs of each side.
const ROUNDS: usize = 5;
/// Tokens of the prompt after which memory is taken: fewest that are offloaded.
const PROMPT: u32 = 32;
/// One thread: several wait for each other in loops, and a busy machine makes
/// that a matter of luck.
const ONE_THREAD: &str = "1";
/// How many times as much user time a token may take.
const BAR: f64 = 1.1;

/// Figures of the runs on one side: with the backend, or without.
#[derive(Debug, Default)]
struct Side {
    /// User time of a token, seconds.
    token_s: Vec<f64>,
    /// Wall time of all but the tokens, seconds.
    load_wall_s: Vec<f64>,
    /// User and system time of all but the tokens, seconds.
    load_cpu_s: Vec<f64>,
}

impl Side {
    fn add(&mut self, short: &RunUsage, long: &RunUsage) {
        let slope = |of: fn(&RunUsage) -> f64| (of(long) - of(short)) / f64::from(LONG - SHORT);
        let rest = |of: fn(&RunUsage) -> f64| of(short) - slope(of) * f64::from(SHORT + WARM_UP);
        self.token_s.push(slope(|taken| taken.user_s));
        self.load_wall_s.push(rest(|taken| taken.wall_s));
        self.load_cpu_s
            .push(rest(|taken| taken.user_s + taken.system_s));
    }
}

pub(super) fn check(stock: &Stock, workshop: &Workshop, record: bool) -> Result<CheckVerdict> {
    let full = workshop.cook(ModelRecipe::BENCHMARK)?;
    let mut tokens = "| file | without, ms | with, ms | ratio |\n|---|---|---|---|\n".to_owned();
    let mut loads = "| file | load: wall, CPU | with the backend | peak memory | with the backend \
                     |\n|---|---|---|---|---|\n"
        .to_owned();
    let mut missed = Vec::new();
    let before = conditions::of(stock);
    let mut device = String::new();
    for format in FORMATS {
        let model = workshop.quantised(stock, &full, format)?;
        let bench = Bench {
            stock,
            workshop,
            model: &model,
        };
        let [without, with] = bench.sides()?;
        let ratio = median(&with.token_s) / median(&without.token_s);
        // Not "larger": a NaN must not pass.
        let verdict = if ratio <= BAR {
            ""
        } else {
            missed.push(format!("{format}: {ratio:.3}"));
            " **missed**"
        };
        writeln!(
            tokens,
            "| {format} | {:.2} | {:.2} | {ratio:.3}{verdict} |",
            median(&without.token_s) * 1e3,
            median(&with.token_s) * 1e3,
        )?;
        let load = |side: &Side| {
            let (wall, cpu) = (median(&side.load_wall_s), median(&side.load_cpu_s));
            format!("{wall:.2} s, {cpu:.2} s")
        };
        let [plain, ours];
        ([plain, ours], device) = bench.memory()?;
        writeln!(
            loads,
            "| {format} | {} | {} | {plain:.0} MiB | {ours:.0} MiB |",
            load(&without),
            load(&with),
        )?;
    }
    let conditions = format!(
        "{before} At the end of the runs: load average {}. One thread; medians of {ROUNDS} \
         alternating pairs of runs of {SHORT} and {LONG} tokens; the device is the {}.",
        conditions::load(),
        device
    );
    let mut page = MeasuredSections::default();
    page.section("llama-bench-conditions", conditions);
    page.section("llama-bench-tokens", tokens);
    page.section("llama-bench-loads", loads);
    if record {
        page.write()?;
    }
    ensure!(
        missed.is_empty(),
        "a token takes more than {BAR} times the user time: {}",
        missed.join("; ")
    );
    Ok(CheckVerdict::Pass(format!(
        "a token takes at most {BAR} times the user time with {}",
        FORMATS.join(", ")
    )))
}

/// The measurements of one model file.
struct Bench<'a> {
    stock: &'a Stock,
    workshop: &'a Workshop,
    model: &'a Path,
}

impl Bench<'_> {
    /// Generating tokens without the backend and with it.
    fn sides(&self) -> Result<[Side; 2]> {
        let mut sides = [Side::default(), Side::default()];
        // One run that does not count reads the file into the page cache.
        self.tokens(Backend::Without, SHORT)?;
        for _ in 0..ROUNDS {
            for (side, backend) in sides.iter_mut().zip([Backend::Without, Backend::With]) {
                let short = self.tokens(backend, SHORT)?;
                side.add(&short, &self.tokens(backend, LONG)?);
            }
        }
        Ok(sides)
    }

    /// What generating so many tokens takes; none of it may be the backend's.
    fn tokens(&self, backend: Backend, tokens: u32) -> Result<RunUsage> {
        let (taken, stderr) = self.run(backend, ["0", &tokens.to_string()])?;
        if backend == Backend::With {
            let stats = StatsTable::find(&stderr)?;
            let ours = stats.precisions();
            ensure!(ours.is_empty(), "products of tokens in {}", ours.join(", "));
        }
        Ok(taken)
    }

    /// Peak memory in MiB without the backend and with it, once a prompt has
    /// made it pack what it packs when it is needed; and the device.
    fn memory(&self) -> Result<([f64; 2], String)> {
        let prompt = PROMPT.to_string();
        let (without, _) = self.run(Backend::Without, [&prompt, "0"])?;
        let (with, stderr) = self.run(Backend::With, [&prompt, "0"])?;
        let stats = StatsTable::find(&stderr)?;
        stats.products()?;
        let peaks = [without, with].map(|taken| taken.peak_kib / 1024.0);
        Ok((peaks, stats.device().to_owned()))
    }

    /// A run of llama-bench with so many tokens of a prompt and so many after it.
    fn run(&self, backend: Backend, [prompt, tokens]: [&str; 2]) -> Result<(RunUsage, String)> {
        let mut command = self.stock.command("llama-bench", backend)?;
        command
            .arg("-m")
            .arg(self.model)
            .args(["-p", prompt, "-n", tokens, "-r", "1", "-t", ONE_THREAD]);
        if tokens == "0" {
            command.arg("--no-warmup");
        }
        let told = |output: &CommandOutput| {
            backend == Backend::Without || StatsTable::find(&output.stderr).is_ok()
        };
        measure::run("llama-bench", self.workshop, &command, told)
    }
}
