// SPDX-License-Identifier: MIT OR Apache-2.0
//! What plans of transformers' products are predicted to take: the tables of
//! docs/matmul-figures.md.

mod products;

use std::fmt::Write;

use anyhow::{Result, ensure};
use npu_matmul::plan::{
    Candidate, Conditions, INT4_TYPICAL_CHANNELS, WeightPlan, int4_depth_within,
};
use npu_matmul::{Dtype, Plan, PlanOptions};
use rknpu_regcmd::timing::{Machine, Parts};

pub(crate) use products::FDS;
use products::{LayerProduct, PRODUCTS};

/// Name of the section of docs/matmul-figures.md that the tables stand in.
pub(crate) const SECTION: &str = "plans";

/// Rows of a batch: llama.cpp's default, and a long prompt.
const ROWS: [usize; 2] = [512, 2048];

/// Clocks, MHz: what mainline leaves, what most figures are of, the fastest.
const CLOCKS: [u64; 3] = [200, 600, 1000];

/// The most that products may pass through the CPU's caches, as a multiple of
/// what must cross.
const CACHE_BYTES_MAX: f64 = 1.5;

/// SUBMIT calls that a product may take, for each file descriptor in use.
const SUBMITS_MAX: usize = 1;

/// Most that a plan should take, over the least possible, at the clocks of the
/// last table.
const AIM: f64 = 1.4;

/// Clocks of the last table, MHz. At 1000 a core moves no more than at 600.
const AIMED_CLOCKS: [u64; 2] = [200, 600];

/// The operand types that one table is about.
struct Operands {
    name: &'static str,
    dtype: Dtype,
    int4_depth: Option<usize>,
}

const fn table(name: &'static str, dtype: Dtype, int4_depth: Option<usize>) -> Operands {
    Operands {
        name,
        dtype,
        int4_depth,
    }
}

const OPERANDS: [Operands; 4] = [
    table("int8", Dtype::Int8, None),
    table("fp16", Dtype::Fp16, None),
    table("int4, any weights", Dtype::Int4, None),
    table(
        "int4, weights of magnitude 2 on average",
        Dtype::Int4,
        Some(INT4_TYPICAL_CHANNELS),
    ),
];

/// The tables, as Markdown.
pub(crate) fn markdown() -> Result<String> {
    let mut page = String::new();
    let mut most_passed = 0.0_f64;
    let mut most_jobs = 0;
    let mut misses = Vec::new();
    for operands in &OPERANDS {
        write!(
            page,
            "\n### {}\n\n| model | product | K | N |",
            operands.name
        )?;
        for rows in ROWS {
            for clock in CLOCKS {
                write!(page, " M {rows}, {clock} MHz |")?;
            }
        }
        page.push_str("\n|---|---|---|---|");
        page.push_str(&"---|".repeat(ROWS.len() * CLOCKS.len()));
        page.push('\n');
        for product in &PRODUCTS {
            let LayerProduct { model, what, k, n } = product;
            write!(page, "| {model} | {what} | {k} | {n} |")?;
            for rows in ROWS {
                for clock in CLOCKS {
                    let (best, passed) = chosen(operands, product, rows, clock)?;
                    most_passed = most_passed.max(passed);
                    most_jobs = most_jobs.max(best.prediction.jobs);
                    let times = best.prediction.over_bound();
                    let sums = best.sum_ps as f64 / best.prediction.npu_ps.max(1) as f64;
                    write!(page, " {times:.2}")?;
                    if best.sum_ps > 0 {
                        write!(page, " + {:.0} %", 100.0 * sums)?;
                    }
                    page.push_str(" |");
                    if times > AIM && AIMED_CLOCKS.contains(&clock) {
                        misses.push((operands.name, product, rows, clock, best.prediction));
                    }
                }
            }
            page.push('\n');
        }
    }
    ensure!(
        most_passed <= CACHE_BYTES_MAX,
        "a plan passes {most_passed:.2} times the bytes through PREP_BO and FINI_BO that must \
         cross; {CACHE_BYTES_MAX} is the most"
    );
    writeln!(
        page,
        "\nBytes that PREP_BO and FINI_BO pass through the CPU's caches: in the worst of these \
         products {most_passed:.2} times those that must cross. SUBMIT calls: at most \
         {SUBMITS_MAX} for each file descriptor in use, also of the product that takes \
         {most_jobs} jobs."
    )?;
    write!(
        page,
        "\n### Beyond {AIM} at {} and {} MHz\n\n\
         | operands | product | M | MHz | times | MACs | memory | edges | driver |\n\
         |---|---|---|---|---|---|---|---|---|\n",
        AIMED_CLOCKS[0], AIMED_CLOCKS[1]
    )?;
    for (operands, LayerProduct { model, what, .. }, rows, clock, prediction) in misses {
        let bound = prediction.bound_ps().max(1) as f64;
        let Parts {
            edges_ps,
            computing_ps,
            memory_ps,
        } = prediction.parts;
        write!(
            page,
            "| {operands} | {model} {what} | {rows} | {clock} | {:.2} |",
            prediction.over_bound()
        )?;
        for part in [computing_ps, memory_ps, edges_ps, prediction.driver_ps] {
            write!(page, " {:.2} |", part as f64 / bound)?;
        }
        page.push('\n');
    }
    Ok(page)
}

/// The cheapest way to cut a product's weights, and what the product passes
/// through the CPU's caches, as a multiple of what must cross.
fn chosen(
    operands: &Operands,
    product: &LayerProduct,
    rows: usize,
    clock_mhz: u64,
) -> Result<(Candidate, f64)> {
    let any = PlanOptions {
        conditions: Conditions {
            machine: Machine::RK3588.at_clock(clock_mhz * 1_000_000),
            rows,
            ..Conditions::default()
        },
        ..PlanOptions::default()
    };
    let LayerProduct { n, k, .. } = *product;
    // How many copies there are stays when values are known, as in an engine.
    let copies = WeightPlan::new(operands.dtype, n, k, FDS, &any)?.replicas;
    let options = PlanOptions {
        int4_depth: (operands.int4_depth).map(|channels| int4_depth_within(k, channels)),
        replicate: Some(copies > 1),
        ..any
    };
    let best = Candidate::new(
        WeightPlan::new(operands.dtype, n, k, FDS, &options)?,
        &options,
    )?;
    let plan = Plan::new(&best.weights, rows, &options)?;
    let passed = plan.cache_bytes();
    let submits = plan.submits(&options.limits);
    ensure!(
        submits <= SUBMITS_MAX * FDS,
        "K {k} N {n} with {rows} rows at {clock_mhz} MHz takes {submits} SUBMIT calls; {SUBMITS_MAX} \
         for each of {FDS} file descriptors is the most"
    );
    Ok((best, passed.ratio()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_product_is_a_line_of_each_table() {
        let page = markdown().unwrap();
        let lines = page.lines().filter(|line| {
            PRODUCTS
                .iter()
                .any(|product| line.starts_with(&format!("| {} ", product.model)))
        });
        assert_eq!(lines.count(), OPERANDS.len() * PRODUCTS.len());
    }
}
