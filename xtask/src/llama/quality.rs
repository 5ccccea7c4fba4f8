// SPDX-License-Identifier: MIT OR Apache-2.0
//! Check: what each precision loses, against the CPU and against what the
//! file's own format loses; with `--record` into the tables of docs/llama.md.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use super::divergence::{RANDOM_BAR, TRAINED_BAR};
use super::logits::{self, Logits, TextExtent};
use super::model::{FORMATS, ModelRecipe, Workshop};
use super::page::MeasuredSections;
use super::stats::StatsTable;
use super::stock::{Backend, Stock};
use super::{conditions, embedding};
use crate::report::CheckVerdict;

/// The check's name in `--only` and in its verdict.
pub(super) const NAME: &str = "quality";
const EXTENT: TextExtent = TextExtent {
    context: 128,
    chunks: 4,
};
/// Mean KL divergence (nats a token) that is none: by the order of sums, and the 16 bits
/// that logits are kept with.
const NOISE: f64 = 1e-5;

/// How many times what the file loses a model with random experts may lose: their router is hardly
/// decided, so that a rounding sends tokens to others.
const RANDOM_EXPERTS_BAR: f64 = 3.0;

/// A precision for an F16 file, and the format whose loss it is held against.
struct Policy {
    precision: &'static str,
    /// A format of about as many bits; none for F16.
    like: Option<&'static str>,
    /// The most that it may lose, times what that format does.
    bar: Option<f64>,
}

/// `w8a8` has no bar: it is for models without outliers. Nor has
/// `w4a4-hadamard`: no format has activations of four bits.
const POLICIES: [Policy; 6] = [
    Policy {
        precision: "f16",
        like: None,
        bar: None,
    },
    Policy {
        precision: "w8a8",
        like: Some("Q8_0"),
        bar: None,
    },
    Policy {
        precision: "w8a8-hadamard",
        like: Some("Q8_0"),
        bar: Some(2.0),
    },
    Policy {
        precision: "w4a8",
        like: Some("Q4_0"),
        bar: Some(2.0),
    },
    Policy {
        precision: "w4a8-hadamard",
        like: Some("Q4_0"),
        bar: Some(2.0),
    },
    Policy {
        precision: "w4a4-hadamard",
        like: Some("Q4_0"),
        bar: None,
    },
];

pub(super) fn check(stock: &Stock, workshop: &Workshop, record: bool) -> Result<CheckVerdict> {
    let mut tables = QualityTables {
        stock,
        workshop,
        missed: Vec::new(),
    };
    let mut page = MeasuredSections::default();
    page.section("llama-cosines", tables.cosines()?);
    page.section("llama-policies", tables.policies()?);
    page.section("llama-auto", tables.auto()?);
    let conditions = conditions::of(stock);
    page.section("llama-quality-conditions", conditions.clone());
    if record {
        page.write()?;
    }
    match tables.missed.is_empty() {
        true => Ok(CheckVerdict::Pass(format!(
            "all bars are reached; {conditions}"
        ))),
        false => bail!("bars are missed: {}", tables.missed.join("; ")),
    }
}

/// Makes the tables of docs/llama.md about quality, and collects the bars that are
/// missed.
struct QualityTables<'a> {
    stock: &'a Stock,
    workshop: &'a Workshop,
    missed: Vec<String>,
}

impl QualityTables<'_> {
    /// The table of sentence embeddings.
    fn cosines(&mut self) -> Result<String> {
        let mut table = "| file | `GGML_ROCKET_PRECISION` | computed in | least cosine | bar | \
                         nearest neighbours | of the file's own loss |\n|---|---|---|---|---|---|---|\n"
            .to_owned();
        for reached in embedding::measure(self.stock, self.workshop)? {
            let (file, precision) = (reached.file, reached.precision);
            let bar = self.judge(
                &format!("MiniLM {file} {precision}"),
                reached.is_good(),
                reached.bar,
            );
            let order = if reached.same_ranking {
                "the same"
            } else {
                "others"
            };
            writeln!(
                table,
                "| {file} | `{precision}` | {} | {:.6} | {bar} | {order} | {} |",
                reached.computed,
                reached.least_cosine,
                reached
                    .times_own
                    .map_or_else(String::new, |times| format!("{times:.2}"))
            )?;
        }
        Ok(table)
    }

    /// The table of each precision with the same F16 file.
    fn policies(&mut self) -> Result<String> {
        let mut table = "| model | `GGML_ROCKET_PRECISION` | KL divergence, nats a token | same \
                         likeliest token | of what a file of it loses on the CPU | bar |\n\
                         |---|---|---|---|---|---|\n"
            .to_owned();
        for recipe in [ModelRecipe::PLAIN, ModelRecipe::OUTLIERS] {
            let (full, cpu) = self.reference(recipe)?;
            for Policy {
                precision,
                like,
                bar,
            } in POLICIES
            {
                let set = [("GGML_ROCKET_PRECISION", precision)];
                let (ours, _) = self.logits(Backend::With, &full, &set)?;
                let loss = cpu.divergence(&ours)?;
                let (times, bar) = match like {
                    None => {
                        let what = format!("{} F16 {precision}", recipe.name);
                        let bar = self.judge(&what, loss.mean <= NOISE, NOISE);
                        (String::new(), bar)
                    }
                    Some(format) => {
                        let file = self.workshop.quantised(self.stock, &full, format)?;
                        let (theirs, _) = self.logits(Backend::Without, &file, &[])?;
                        let own = cpu.divergence(&theirs)?.mean;
                        let times = loss.mean / own;
                        let what = format!("{} F16 {precision}", recipe.name);
                        let bar = bar.map(|bar| self.judge(&what, times <= bar, bar));
                        let own = format!("{times:.2} of {format}'s {own:.6}");
                        (own, bar.unwrap_or_default())
                    }
                };
                writeln!(
                    table,
                    "| {} | `{precision}` | {:.6} | {:.1} % | {times} | {bar} |",
                    recipe.name,
                    loss.mean,
                    loss.same_top * 100.0
                )?;
            }
        }
        Ok(table)
    }

    /// The table of `auto` with files of all formats.
    fn auto(&mut self) -> Result<String> {
        let mut table = "| model | file | the file's own loss | with `auto` | of the file's own | \
                         computed in |\n|---|---|---|---|---|---|\n"
            .to_owned();
        let random = ModelRecipe::ALL.map(|recipe| {
            let bar = match recipe {
                ModelRecipe::EXPERTS => RANDOM_EXPERTS_BAR,
                _ => RANDOM_BAR,
            };
            (self.workshop.cook(recipe), bar)
        });
        let trained = self.workshop.trained()?;
        let trained = trained.map(|model| (Ok(model), TRAINED_BAR));
        for (full, bar) in trained.into_iter().chain(random) {
            let full = full?;
            let (exact, _) = self.logits(Backend::Without, &full, &[])?;
            let name = full.file_stem().unwrap_or_default().to_string_lossy();
            let name = name.trim_end_matches("-f16");
            for format in FORMATS {
                let file = self.workshop.quantised(self.stock, &full, format)?;
                let (cpu, _) = self.logits(Backend::Without, &file, &[])?;
                let (ours, stderr) = self.logits(Backend::With, &file, &[])?;
                let own = exact.divergence(&cpu)?.mean;
                let loss = exact.divergence(&ours)?.mean;
                let good = loss <= (own * bar).max(NOISE);
                let what = format!("{name} {format} auto");
                let missed = self.judge(&what, good, bar);
                let times = match format {
                    "F16" => "no loss of its own".to_owned(),
                    _ if good => format!("{:.2}", loss / own),
                    _ => format!("{:.2}, bar {missed}", loss / own),
                };
                writeln!(
                    table,
                    "| {name} | {format} | {own:.6} | {loss:.6} | {times} | {} |",
                    StatsTable::find(&stderr)?.precisions().join(", ")
                )?;
            }
        }
        Ok(table)
    }

    /// The F16 model of a recipe, and its logits on the CPU.
    fn reference(&self, recipe: ModelRecipe) -> Result<(PathBuf, Logits)> {
        let full = self.workshop.cook(recipe)?;
        let (logits, _) = self.logits(Backend::Without, &full, &[])?;
        Ok((full, logits))
    }

    fn logits(
        &self,
        backend: Backend,
        model: &Path,
        set: &[(&str, &str)],
    ) -> Result<(Logits, String)> {
        logits::run(self.stock, backend, model, EXTENT, set)
    }

    /// The bar as the table shows it; a missed one is kept in mind.
    fn judge(&mut self, what: &str, good: bool, bar: f64) -> String {
        if good {
            return bar.to_string();
        }
        self.missed.push(what.to_owned());
        format!("{bar} **missed**")
    }
}
